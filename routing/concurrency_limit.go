package routing

import "time"

// The learned concurrency limit is the number of requests in flight beyond which an engine
// only queues. It is found from delay, like TCP Vegas, Netflix's gradient limits and Envoy's
// adaptive concurrency, with additive raises. The delay without a queue is not a constant: it
// is a line over the prompt's tokens (unloadedLatencyModel), learned at the lowest levels only.
// A level is the number of requests in flight on the worker.
const (
	// limitBand is the width of the band in multiples of the predicted time to first token. A
	// log-normal error with sigma 0.5 leaves the band once in 20 streams.
	limitBand = 2
	// limitLate is the least delay over the prediction of a late stream.
	limitLate = 500 * time.Millisecond
	// limitAhead bounds the part of a prediction that is due to other prompts ahead. It is more
	// than an engine needs to be busy. Without it the prediction would grow with the queue that
	// it should reveal.
	limitAhead = 2 * time.Second
	// limitConvoyBand and limitConvoy excuse streams behind a very long prompt. A delay of up to
	// limitConvoy is not late if it is at most limitConvoyBand times the prefill of all prompts
	// ahead. 15 s are 120,000 tokens at the prior rate.
	limitConvoyBand = 1.25
	limitConvoy     = 15 * time.Second
	// limitWindowStreams is the number of streams that one decision uses. More than half of
	// them are late by chance with a probability of 2 in 10⁸.
	limitWindowStreams = 16
	// limitWindowMost is the largest number of streams in an undecided window.
	limitWindowMost = 4 * limitWindowStreams
	// limitInBandRun is the number of consecutive streams in the band that end a window which
	// began late: an overloaded engine has such a run once in thousands of streams.
	limitInBandRun = 8
	// limitLateSpan is the least time between the first and the last late stream of a cut: the
	// streams that an engine delays in one slow moment arrive together.
	limitLateSpan = 2 * time.Second
	// limitCutLeast and limitCutMost bound what a cut leaves of the level at which streams were
	// late, because the rate of endings is measured over a short time.
	limitCutLeast, limitCutMost = 0.7, 0.95
	// limitFloor is the least limit: engines for one user run one to four requests at once, and
	// any other engine is not late with four.
	limitFloor = 4
	// limitNear is the part of the limit from which a stream counts as being at the limit.
	limitNear = 0.9
	// limitStep is the largest raise, as a part of the limit.
	limitStep = 0.25
)

// startedStream holds what the first event of a stream shows.
type startedStream struct {
	bookedAt, at  time.Time
	level         int   // requests in flight on the worker at its booking, itself included
	prompt        int64 // its tokens, cached or not
	own           int64 // its booked tokens
	others        int64 // tokens to prefill before its own
	assumedCached int64 // tokens in neither, because the history says that they are cached
}

// concurrencyLimit learns how many requests one worker runs before it only queues them. The
// zero value has no limit. A cut needs a window in which most streams are late. A raise needs
// a window within the band whose streams were at the limit. Each raise doubles the next one.
type concurrencyLimit struct {
	limit    int       // 0 is none
	moved    time.Time // when it last changed; zero never
	step     int       // of the next raise
	unloaded unloadedLatencyModel
	ended    int64 // requests that left the worker after they were sent
	window   limitWindow
}

// limitWindow counts the streams of one window.
type limitWindow struct {
	streams, near, late int
	run                 int // streams in the band since the last late one
	firstLate, lastLate time.Time
	ended               int64         // concurrencyLimit.ended at the first late stream
	levels              int           // sum over the late streams
	excess              time.Duration // time over what a busy engine needs, summed over the late streams
}

// learnStream learns from the first event of one stream.
func (b *concurrencyLimit) learnStream(s startedStream) {
	took := s.at.Sub(s.bookedAt)
	if took <= 0 || s.level <= 0 {
		return
	}
	usual, calmUpTo := b.unloaded.line()
	b.unloaded.learn(s.level, float64(s.own+s.others), took.Seconds(), usual, calmUpTo > 0)
	// Streams that were booked before the last change show the effect of the limit before it.
	if calmUpTo == 0 || !b.moved.IsZero() && !s.bookedAt.After(b.moved) {
		return
	}
	// Its own prompt counts completely, because a cached prefix may be evicted.
	own, others := seconds(usual.base+usual.token*float64(max(s.prompt, s.own))),
		seconds(usual.token*float64(s.others+s.assumedCached))
	expected := own + min(others, limitAhead)
	allowed := max(limitBand*expected, expected+limitLate,
		min(seconds((own+others).Seconds()*limitConvoyBand), limitConvoy))
	if s.level <= calmUpTo {
		allowed = took // this level is the reference for others
	}
	b.count(&s, took, expected, allowed)
	b.decide(s.at)
}

// count adds a stream to the window.
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

// decide cuts or raises the limit once the window is conclusive.
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

// cut sets the limit to the level at which streams were late, less the requests that only
// waited: by Little's law, as many as end during the excess time.
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

// raise adds twice as many as the last raise, at most limitStep of the limit.
func (b *concurrencyLimit) raise(now time.Time) {
	step := min(max(b.step, 1), max(1, int(limitStep*float64(b.limit))))
	b.limit, b.moved, b.step = b.limit+step, now, 2*step
}

// concurrencyLimitLocked returns how many requests the worker may have in flight, 0 for no limit:
// the configured bound, or else the learned limit. With a bound on tokens none is learned.
func (w *Worker) concurrencyLimitLocked() int {
	if w.maxInflight > 0 || w.maxTokens > 0 {
		return w.maxInflight
	}
	return w.concurrencyLimit.limit
}

// learnConcurrencyLimitLocked lets the worker's limit learn from a first event, unless a bound is
// configured.
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
