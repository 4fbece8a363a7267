package routing

import "time"

// The learned bound: the in-flight level past which an engine only lets
// requests wait. It belongs to the family of limits that are found by watching
// delay instead of loss: TCP Vegas (Brakmo, Peterson 1995), whose signal is a
// round trip longer than one without a queue; Netflix's gradient limits and
// Envoy's adaptive concurrency, which carry that over to requests; and the
// additive raise of TCP's congestion avoidance (Jacobson 1988). Where it differs
// is the delay without a queue: that of a prompt is no constant, but a line over
// its tokens (calm), learned at the lowest levels alone.
const (
	// boundBand is how many times the predicted time to first token is still
	// within the band. A stream whose time is off by a log-normal factor with
	// sigma 0.5 is past it once in twenty; one that waits inside an engine for
	// another's answer to end is past it for long.
	boundBand = 2
	// boundLate is how much later than predicted a late stream is at least: below
	// half a second nobody drowns, whatever the ratio.
	boundLate = 500 * time.Millisecond
	// boundAhead is the most that the prompts ahead of one add to its prediction.
	// While the engine lets requests wait their prompts are ahead too, and the
	// prediction would grow with the queue that it should show. What waits for
	// longer than this is more than an engine needs to be busy.
	boundAhead = 2 * time.Second
	// boundOff and boundConvoy excuse those that are behind a very long prompt: what
	// the prefill of all that is ahead explains, give or take a quarter, is not late
	// before 15 seconds, which are 120,000 tokens at the prior rate. Who waits for
	// others' answers to end waits longer than for their prefill, unless prefill is
	// nearly all that the engine does.
	boundOff    = 1.25
	boundConvoy = 15 * time.Second
	// boundWindow is how many streams are judged together: more than half of them
	// late is no chance, when one in twenty is (2 in 10⁸).
	boundWindow = 16
	// boundOpen is how many streams a window has at most that shows neither.
	boundOpen = 4 * boundWindow
	// boundRun is how many streams in the band one after the other end a window that
	// began late: of an engine that drowns that is once in thousands.
	boundRun = 8
	// boundSpan is how far apart the first events of a late window are at least.
	// What an engine held back in one slow moment comes at once when that is over;
	// what drowns comes as slowly as answers end.
	boundSpan = 2 * time.Second
	// boundCut and boundKeep are what a cut leaves at least and at most of the level
	// at which streams were late. The rate at which answers end is measured in a
	// moment, and may be far off.
	boundCut, boundKeep = 0.7, 0.95
	// boundFloor is the least. Engines for one user (Ollama, llama.cpp) run one to
	// four requests at once; any other is far from busy with four, and then they
	// are not late.
	boundFloor = 4
	// boundNear is the part of the bound from which on a stream tells what it is
	// like to be at the bound.
	boundNear = 0.9
	// boundStep is the largest raise, as a part of the bound.
	boundStep = 0.25
)

// startedStream is what a stream's first event tells.
type startedStream struct {
	bookedAt, at time.Time
	level        int   // requests in flight on the worker when it was booked, itself among them
	prompt       int64 // its tokens, cached or not
	own          int64 // those of them that were booked
	others       int64 // tokens to prefill before its own
	doubt        int64 // tokens in neither because the worker had them lately
}

// learnedBound learns how many requests one worker takes before they only wait
// inside it. The zero value knows none. A cut needs a window of streams of which
// most are late, booked after the bound was last moved; a raise needs a window
// that is in the band and was at the bound. Raises double, so that a bound that
// is far too low is gone after a few windows.
type learnedBound struct {
	limit  int       // 0 is none
	moved  time.Time // when it was last moved; zero never
	step   int       // of the next raise
	calm   calm
	ended  int64 // requests that left the worker, of those that were sent
	window boundCounts
}

// boundCounts is the streams of one window.
type boundCounts struct {
	streams, near, late int
	run                 int // in the band, one after the other, up to now
	firstLate, lastLate time.Time
	ended               int64         // learnedBound.ended at the first late one
	levels              int           // of the late ones, summed
	excess              time.Duration // over what an engine needs to be busy, of the late ones, summed
}

// answered takes one stream's first event.
func (b *learnedBound) answered(s startedStream) {
	took := s.at.Sub(s.bookedAt)
	if took <= 0 || s.level <= 0 {
		return
	}
	usual, calmUpTo := b.calm.line()
	b.calm.learn(s.level, float64(s.own+s.others), took.Seconds(), usual, calmUpTo > 0)
	// Streams booked before the bound was moved tell what it was like before.
	if calmUpTo == 0 || !b.moved.IsZero() && !s.bookedAt.After(b.moved) {
		return
	}
	// Its own prompt counts whole: what is remembered may be forgotten.
	own, others := seconds(usual.base+usual.token*float64(max(s.prompt, s.own))), seconds(usual.token*float64(s.others+s.doubt))
	expected := own + min(others, boundAhead)
	allowed := max(boundBand*expected, expected+boundLate, min(seconds((own+others).Seconds()*boundOff), boundConvoy))
	if s.level <= calmUpTo {
		allowed = took // the level that others are measured by is not one to drown at
	}
	b.count(&s, took, expected, allowed)
	b.decide(s.at)
}

// count enters the stream in the window.
func (b *learnedBound) count(s *startedStream, took, expected, allowed time.Duration) {
	w := &b.window
	w.streams++
	if float64(s.level) >= boundNear*float64(b.limit) {
		w.near++
	}
	if took <= allowed {
		w.run++
		return
	}
	if w.late == 0 {
		w.firstLate, w.ended = s.at, b.ended
	}
	w.run, w.lastLate = 0, s.at
	w.late++
	w.levels += s.level
	w.excess += took - (expected+allowed)/2 // half of the band keeps the engine busy
}

// decide moves the bound once the window shows something.
func (b *learnedBound) decide(now time.Time) {
	w := &b.window
	late := 2*w.late > w.streams
	switch {
	case w.streams < boundWindow:
		return
	case late && w.lastLate.Sub(w.firstLate) >= boundSpan:
		b.cut(now)
	case late && w.run < boundRun && w.streams < boundOpen:
		return
	case 4*w.late <= w.streams && 2*w.near >= w.streams && b.limit > 0:
		b.raise(now)
	}
	*w = boundCounts{}
}

// cut lowers the bound from the level at which streams were late by those of
// them that only waited: by Little's law as many as end in the time that they
// waited for too long.
func (b *learnedBound) cut(now time.Time) {
	w := &b.window
	level := float64(w.levels) / float64(w.late)
	rate := float64(b.ended-w.ended) / w.lastLate.Sub(w.firstLate).Seconds()
	waiting := rate * w.excess.Seconds() / float64(w.late)
	limit := int(min(max(level-waiting, boundCut*level), boundKeep*level))
	if b.limit > 0 {
		limit = min(limit, b.limit)
	}
	b.limit, b.moved, b.step = max(limit, boundFloor), now, 1
}

// raise lets a few more in, twice as many as the last time.
func (b *learnedBound) raise(now time.Time) {
	step := min(max(b.step, 1), max(1, int(boundStep*float64(b.limit))))
	b.limit, b.moved, b.step = b.limit+step, now, 2*step
}

// boundLocked is how many requests the worker may have in flight, 0 for no
// bound: as configured, else as learned. Where tokens are bounded nothing else
// is needed.
func (w *Worker) boundLocked() int {
	if w.maxInflight > 0 || w.maxTokens > 0 {
		return w.maxInflight
	}
	return w.bound.limit
}

// boundLocked lets the worker's bound learn from the first event of the lease's
// stream, unless it is configured.
func (l *Lease) boundLocked(at time.Time) {
	w := l.worker
	if at.IsZero() || w.maxInflight > 0 || w.maxTokens > 0 {
		return
	}
	w.bound.answered(startedStream{
		bookedAt: l.bookedAt, at: at, level: l.level,
		prompt: l.prompt, own: l.prefill, others: l.ahead - l.prefill, doubt: l.doubt,
	})
}
