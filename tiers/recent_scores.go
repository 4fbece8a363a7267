package tiers

import (
	"slices"
	"sync"
)

const (
	// maxScores bounds the scores of a window. A share then has a standard error of 0.9 points at 20 %.
	maxScores = 2000
	// minScores is the number of scores from which a window has thresholds: at 20 % their standard
	// error is 2.8 points.
	minScores = 200
	// MaxScoreWindows bounds the windows of RecentScores. A window of 2,000 scores takes 32 KB, so that
	// all take 16 MB.
	MaxScoreWindows = 500
)

// RecentScores has the last scores of each route, of which classifier.share makes its thresholds. A
// route is an alias and a tenant: the shares hold for each tenant, and the prompts of one tenant do not
// move the thresholds of another. It holds a bounded number of routes and drops the one that was unused
// for the longest time. It is safe for concurrent use.
type RecentScores struct {
	*scoreTable
	readOnly bool
}

// scoreTable has the windows.
type scoreTable struct {
	limit int

	mu      sync.Mutex // guards all below
	windows map[windowKey]*scoreWindow
	uses    uint64 // number of requests
}

// windowKey identifies a window by hashes. Scores of another scoring are in another window, because they
// cannot be compared.
type windowKey struct{ alias, tenant, scoring uint64 }

// scoreRoute is where the scores of a request's route are; recent is nil if there are none.
type scoreRoute struct {
	recent *RecentScores
	alias  uint64
}

// NewRecentScores returns an empty RecentScores of at most limit routes.
func NewRecentScores(limit int) *RecentScores {
	return &RecentScores{scoreTable: &scoreTable{limit: limit, windows: map[windowKey]*scoreWindow{}}}
}

// ReadOnly returns a view that adds no scores.
func (r *RecentScores) ReadOnly() *RecentScores {
	if r == nil {
		return nil
	}
	return &RecentScores{scoreTable: r.scoreTable, readOnly: true}
}

// Len returns the number of routes, at most the limit.
func (t *scoreTable) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.windows)
}

// addScore appends the thresholds of a route to a list, unless it has too few scores, and then adds a score
// to the route. tiers have the share of the prompts for each tier and higher ones.
func (r *RecentScores) addScore(key windowKey, tiers []gradedTier, score float64,
	to []threshold[float64]) []threshold[float64] {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.windows[key]
	if w == nil {
		if r.readOnly {
			return to
		}
		w = r.addWindowLocked(key)
	}
	if len(w.sorted) >= minScores {
		for _, t := range tiers {
			to = append(to, threshold[float64]{t.tier, w.quantile(t.value)})
		}
	}
	if !r.readOnly {
		r.uses++
		w.used = r.uses
		w.add(score)
	}
	return to
}

// addWindowLocked returns a new window, in place of the least recently used one if there are too many.
func (t *scoreTable) addWindowLocked(key windowKey) *scoreWindow {
	w := &scoreWindow{}
	if len(t.windows) >= t.limit {
		var oldest windowKey
		w = nil
		for k, other := range t.windows {
			if w == nil || other.used < w.used {
				oldest, w = k, other
			}
		}
		delete(t.windows, oldest)
		*w = scoreWindow{ring: w.ring[:0], sorted: w.sorted[:0]}
	}
	t.windows[key] = w
	return w
}

// scoreWindow is the last scores of a route.
type scoreWindow struct {
	used   uint64    // number of the last request
	oldest int       // index in ring, once it is full
	ring   []float64 // in the order of the requests
	sorted []float64 // the same scores, ascending
}

// add adds a score, in place of the oldest if the window is full.
func (w *scoreWindow) add(score float64) {
	if len(w.ring) < maxScores {
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

// quantile returns the lowest score that at most a share of the scores exceeds; -1 for all of them. Equal
// scores get equal tiers, so that many equal prompts make the share smaller, never larger.
func (w *scoreWindow) quantile(share float64) float64 {
	n := len(w.sorted)
	above := int(share*float64(n) + 1e-9) // 0.3 of 10 is less than 3
	if above >= n {
		return -1
	}
	return w.sorted[n-1-above]
}
