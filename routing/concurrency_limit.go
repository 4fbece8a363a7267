package routing

import "time"

// The learned concurrency limit: the in-flight level beyond which an engine only queues.
// It is found by watching delay, like TCP Vegas, Netflix's gradient limits and Envoy's
// adaptive concurrency, with additive raises. The delay without a queue is no constant
// but a line over the prompt's tokens (calm), learned at the lowest levels alone.
const (
	// limitBand is how many times the predicted time to first token is in the band. A
	// stream that is off by a log-normal factor with sigma 0.5 is beyond it once in 20.
	limitBand = 2
	// limitLate is how much later than predicted a late stream is at least.
	limitLate = 500 * time.Millisecond
	// limitAhead is the most that the prompts ahead add to a prediction: more than an
	// engine needs to be busy. Without it the prediction would grow with the queue that
	// it should show.
	limitAhead = 2 * time.Second
	// limitConvoyBand and limitConvoy excuse streams behind a very long prompt: what the prefill
	// of all that is ahead explains, give or take a quarter, is not late before 15 seconds,
	// which are 120,000 tokens at the prior rate.
	limitConvoyBand = 1.25
	limitConvoy     = 15 * time.Second
	// limitWindowStreams is how many streams are judged together: more than half of them are
	// late by chance with a probability of 2 in 10⁸.
	limitWindowStreams = 16
	// limitWindowMost is how many streams an undecided window has at most.
	limitWindowMost = 4 * limitWindowStreams
	// limitInBandRun is how many streams in the band in a row end a window that began late: an
	// overloaded engine has them once in thousands.
	limitInBandRun = 8
	// limitLateSpan is how far apart the first events of a late window are at least: what an
	// engine held back in one slow moment comes at once.
	limitLateSpan = 2 * time.Second
	// limitCutLeast and limitCutMost are what a cut leaves at least and at most of the level at
	// which streams were late: the rate of endings is measured in a moment, and may be off.
	limitCutLeast, limitCutMost = 0.7, 0.95
	// limitFloor is the least: engines for one user run one to four requests at once, and
	// any other is not late with four.
	limitFloor = 4
	// limitNear is the part of the bound from which on a stream was at the bound.
	limitNear = 0.9
	// limitStep is the largest raise, as a part of the bound.
	limitStep = 0.25
)

// startedStream is what a stream's first event tells.
type startedStream struct {
	bookedAt, at  time.Time
	level         int   // requests in flight on the worker when it was booked, itself among them
	prompt        int64 // its tokens, cached or not
	own           int64 // those of them that were booked
	others        int64 // tokens to prefill before its own
	assumedCached int64 // tokens in neither because the worker had them lately
}

// concurrencyLimit learns how many requests one worker takes before it only queues them. The
// zero value knows no bound. A cut needs a window of streams of which most are late; a
// raise needs a window that is in the band and was at the bound. Raises double.
type concurrencyLimit struct {
	limit    int       // 0 is none
	moved    time.Time // when it was last moved; zero never
	step     int       // of the next raise
	unloaded unloadedLatencyModel
	ended    int64 // requests that left the worker, of those that were sent
	window   limitWindow
}

// limitWindow is the streams of one window.
type limitWindow struct {
	streams, near, late int
	run                 int // in the band, one after the other, up to now
	firstLate, lastLate time.Time
	ended               int64         // concurrencyLimit.ended at the first late one
	levels              int           // of the late ones, summed
	excess              time.Duration // over what an engine needs to be busy, of the late ones, summed
}

// answered takes one stream's first event.
func (b *concurrencyLimit) learnStream(s startedStream) {
	took := s.at.Sub(s.bookedAt)
	if took <= 0 || s.level <= 0 {
		return
	}
	usual, calmUpTo := b.unloaded.line()
	b.unloaded.learn(s.level, float64(s.own+s.others), took.Seconds(), usual, calmUpTo > 0)
	// Streams booked before the bound was moved show the bound before.
	if calmUpTo == 0 || !b.moved.IsZero() && !s.bookedAt.After(b.moved) {
		return
	}
	// Its own prompt counts whole: what is remembered may be forgotten.
	own, others := seconds(usual.base+usual.token*float64(max(s.prompt, s.own))), seconds(usual.token*float64(s.others+s.assumedCached))
	expected := own + min(others, limitAhead)
	allowed := max(limitBand*expected, expected+limitLate, min(seconds((own+others).Seconds()*limitConvoyBand), limitConvoy))
	if s.level <= calmUpTo {
		allowed = took // others are measured by this level
	}
	b.count(&s, took, expected, allowed)
	b.decide(s.at)
}

func (b *concurrencyLimit) count(s *startedStream, took, expected, allowed time.Duration) {
	w := &b.window
	w.streams++
	if float64(s.level) >= limitNear*float64(b.limit) {
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
func (b *concurrencyLimit) decide(now time.Time) {
	w := &b.window
	late := 2*w.late > w.streams
	switch {
	case w.streams < limitWindowStreams:
		return
	case late && w.lastLate.Sub(w.firstLate) >= limitLateSpan:
		b.cut(now)
	case late && w.run < limitInBandRun && w.streams < limitWindowMost:
		return
	case 4*w.late <= w.streams && 2*w.near >= w.streams && b.limit > 0:
		b.raise(now)
	}
	*w = limitWindow{}
}

// cut lowers the bound from the level at which streams were late by those that only
// waited: by Little's law as many as end in the time that they waited too long.
func (b *concurrencyLimit) cut(now time.Time) {
	w := &b.window
	level := float64(w.levels) / float64(w.late)
	rate := float64(b.ended-w.ended) / w.lastLate.Sub(w.firstLate).Seconds()
	waiting := rate * w.excess.Seconds() / float64(w.late)
	limit := int(min(max(level-waiting, limitCutLeast*level), limitCutMost*level))
	if b.limit > 0 {
		limit = min(limit, b.limit)
	}
	b.limit, b.moved, b.step = max(limit, limitFloor), now, 1
}

// raise adds a few, twice as many as the last time.
func (b *concurrencyLimit) raise(now time.Time) {
	step := min(max(b.step, 1), max(1, int(limitStep*float64(b.limit))))
	b.limit, b.moved, b.step = b.limit+step, now, 2*step
}

// boundLocked is how many requests the worker may have in flight, 0 for no bound: as
// configured, else as learned. A worker with a bound on tokens learns none.
func (w *Worker) concurrencyLimitLocked() int {
	if w.maxInflight > 0 || w.maxTokens > 0 {
		return w.maxInflight
	}
	return w.concurrencyLimit.limit
}

// boundLocked lets the worker's bound learn from a first event, unless it is configured.
func (l *Lease) learnConcurrencyLimitLocked(at time.Time) {
	w := l.worker
	if at.IsZero() || w.maxInflight > 0 || w.maxTokens > 0 {
		return
	}
	w.concurrencyLimit.learnStream(startedStream{
		bookedAt: l.bookedAt, at: at, level: l.level,
		prompt: l.prompt, own: l.prefill, others: l.ahead - l.prefill, assumedCached: l.assumedCached,
	})
}
