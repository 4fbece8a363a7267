package tiers

import (
	"container/list"
	"slices"
	"sync"
)

const (
	// maxScores bounds the scores of a window. A share then has a standard error of 0.9 points at 20 %.
	maxScores = 2000
	// minScores is the number of scores from which a window has thresholds: at 20 % their standard
	// error is 2.8 points.
	minScores = 200
	// firstScores is the capacity of a new window, for tenants with few prompts.
	firstScores = 64
	// MaxScoreWindows bounds the windows of RecentScores. A window of 2,000 scores in two orders takes
	// 33 KB, so that all take 16 MB.
	MaxScoreWindows = 500
)

// RecentScores stores the last scores of each window. classifier.share computes its thresholds from
// them. There is one window per alias and tenant: the shares hold for each tenant, and the prompts of
// one tenant do not move the thresholds of another. It holds a bounded number of windows and drops the
// one to which no score was added for the longest time. It is safe for concurrent use.
type RecentScores struct {
	limit int

	mu      sync.Mutex // guards all below
	windows map[windowKey]*list.Element
	uses    list.List // of *scoreWindow, the one with the latest score first
}

// windowKey identifies a window by hashes. Scores of another scoring are in another window, because they
// cannot be compared.
type windowKey struct{ alias, tenant, scoring uint64 }

// windowSource has the window of a request: its alias is that of the window's key, and recent is nil if
// there are no earlier scores.
type windowSource struct {
	recent *RecentScores
	alias  uint64
}

// PendingScore has the scores of a classified request, and the window to which the one of classifier.share belongs.
// The zero value is that of a request without scores.
type PendingScore struct {
	Scores
	key   windowKey
	value float64
	known bool
}

// NewRecentScores returns an empty RecentScores of at most limit windows.
func NewRecentScores(limit int) *RecentScores {
	return &RecentScores{limit: limit, windows: map[windowKey]*list.Element{}}
}

// Add adds the score of a request to its window. Call it once for each request, after its admission.
func (r *RecentScores) Add(p PendingScore) {
	if !p.known {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.windows[p.key]
	switch {
	case at == nil && r.uses.Len() < r.limit:
		at = r.uses.PushFront(&scoreWindow{})
	case at == nil:
		at = r.uses.Back()
		dropped := at.Value.(*scoreWindow)
		delete(r.windows, dropped.key)
		*dropped = scoreWindow{ring: dropped.ring[:0], sorted: dropped.sorted[:0]} // its memory serves the new one
	}
	w := at.Value.(*scoreWindow)
	w.key = p.key
	w.add(p.value)
	r.windows[p.key] = at
	r.uses.MoveToFront(at)
}

// appendThresholds appends the thresholds of a window to a list, unless it has too few scores. tiers have
// the share of the prompts for each tier and higher ones.
func (r *RecentScores) appendThresholds(to []threshold[float64], key windowKey,
	tiers []gradedTier) []threshold[float64] {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.windows[key]
	if at == nil {
		return to
	}
	if w := at.Value.(*scoreWindow); len(w.sorted) >= minScores {
		for _, t := range tiers {
			to = append(to, threshold[float64]{t.tier, w.quantile(t.value)})
		}
	}
	return to
}

// scoreWindow is the last scores of an alias and a tenant.
type scoreWindow struct {
	key    windowKey
	oldest int       // index in ring, once it is full
	ring   []float64 // in the order of the requests
	sorted []float64 // the same scores, ascending
}

// add adds a score, in place of the oldest if the window is full.
func (w *scoreWindow) add(score float64) {
	if len(w.ring) < maxScores {
		w.grow()
		w.ring = append(w.ring, score)
	} else {
		i, _ := slices.BinarySearch(w.sorted, w.ring[w.oldest])
		w.sorted = slices.Delete(w.sorted, i, i+1)
		w.ring[w.oldest] = score
		w.oldest = (w.oldest + 1) % maxScores
	}
	i, _ := slices.BinarySearch(w.sorted, score)
	w.sorted = slices.Insert(w.sorted, i, score)
}

// grow makes room for one more score. append would grow to 2,560.
func (w *scoreWindow) grow() {
	if len(w.ring) < cap(w.ring) {
		return
	}
	n := min(max(2*cap(w.ring), firstScores), maxScores)
	w.ring = append(make([]float64, 0, n), w.ring...)
	w.sorted = append(make([]float64, 0, n), w.sorted...)
}

// quantile returns the lowest score of the window that at most the given share of its scores exceeds, or belowAllScores
// for a share of 1. Scores equal to it do not exceed it, so that equal scores make a share smaller.
func (w *scoreWindow) quantile(share float64) float64 {
	n := len(w.sorted)
	above := int(share*float64(n) + 1e-9) // 0.3 of 10 is less than 3
	if above >= n {
		return belowAllScores
	}
	return w.sorted[n-1-above]
}
