package routing

import (
	"slices"
	"time"
)

// booking is the load of one lease in its pool's books. The pool reuses bookings, so a request
// allocates none.
type booking struct {
	worker          *Worker
	prefill, output int64
	tokens          int64         // prompt tokens, cached or not, and expected output
	assumedCached   int64         // tokens that are not in prefill because the history says that they are cached
	rows            []int32       // inflightPrefixes rows of the prompt's landmarks
	blocks          []promptBlock // by which the cache model records the prompt
	recorded        bool          // the cache model has them
	published       bool          // the worker's cache events publish them to all gateways
	epoch           int32         // epoch of the journal that has them; 0: it has not
	stream          bool
	answering       bool // the stream's first event has arrived

	// due is the predicted end of the prefill of an answer that is not streamed, because its
	// first event does not show that end.
	due  time.Time
	next *booking // in the pool's list of unused bookings

	// While the first event is due, the booking is in the list of its worker's prefills.
	awaits        bool
	bookedAt      time.Time
	uncached      int64   // prompt tokens to compute
	seconds       float64 // predicted duration of that
	before, after *booking

	silence  silence
	silentAt int // place among the worker's silent requests, from 1; 0: the answer has begun, or does not count

	// Set for an answer that is not streamed, at the predicted end of its prefill or when the answer arrives.
	run    uint64 // number of its prefillRun; 0: none
	others int    // other requests in flight
}

// maxBooked bounds the tokens that one request books on each account: a million requests with
// any max_tokens then sum up without overflow.
const maxBooked = 1 << 40

func booked(tokens int64) int64 { return min(max(tokens, 0), maxBooked) }

// maxPrefill bounds the predicted time of one prefill. A longer estimate is wrong, and the books
// should not keep it for longer.
const maxPrefill = 10 * time.Minute

// bookRequestLocked books the request on the view's worker. The booked prefill is the part of
// the prompt that is neither in flight there nor cached.
func (p *Pool) bookRequestLocked(r *Request, w *Worker, v *View) *booking {
	b := p.free
	if b == nil {
		b = &booking{}
	} else {
		p.free = b.next
	}
	prompt := booked(r.PromptTokens)
	*b = booking{worker: w, rows: b.rows[:0], blocks: b.blocks[:0], output: booked(r.OutputTokens), stream: r.Stream,
		published: v.exact}
	b.tokens = prompt + b.output
	if r.decode {
		p.advanceTrafficLocked(r.Now)
	} else {
		if prompt > 0 {
			b.prefill, b.assumedCached = uncached(prompt, v), v.Overlap-v.computing
		}
		p.countArrivalLocked(r.Now)
		p.enqueuePrefillLocked(b, r.Now)
	}
	w.countTokensLocked(b.tokens, r.Now)
	w.countInflightLocked(r.Now)
	w.inflight++
	if b.stream {
		w.streams++
		w.latency.touch(r.Now)
	}
	w.pending += b.prefill
	w.assumedCached += b.assumedCached
	w.output += b.output
	w.tokens += b.tokens
	if len(r.Blocks) > 0 {
		b.rows = p.inflightPrefixes.addBooking(r.Blocks, w.column, b.rows)
		w.prefixBookings++
		if w.column < modelWorkers {
			b.blocks = appendPromptBlocks(b.blocks, r.Blocks, prompt)
			if p.journal.on && !b.published {
				b.epoch = p.journal.addPrompt(w, b.blocks, p.caches.published(b.blocks, p.journal.epoch, w.column))
			}
		}
	}
	if !r.Stream && b.prefill > 0 {
		w.schedulePrefillEndLocked(b, r.Now)
	}
	return b
}

// uncached returns the prompt tokens that a worker must compute. It is at least 1, because a
// prompt that is cached completely takes one step too.
func uncached(prompt int64, v *View) int64 {
	if prompt == 0 {
		return 0
	}
	return max(1, prompt-v.Overlap)
}

// removeBookingLocked takes the booking out of the books.
func (p *Pool) removeBookingLocked(b *booking) {
	w := b.worker
	w.removeSilentLocked(b)
	p.endPrefillLocked(b)
	w.countInflightLocked(p.traffic.at)
	w.inflight--
	if b.stream {
		w.streams--
	}
	if b.answering {
		w.answering--
	}
	w.output -= b.output
	w.tokens -= b.tokens
	if len(b.rows) > 0 {
		p.inflightPrefixes.removeBooking(b.rows, w.column)
		w.prefixBookings--
		p.releaseColumnLocked(w)
	}
	b.worker, b.next = nil, p.free
	p.free = b
}

// endPrefillLocked removes the booking's prefill from the books. If it is still among the worker's prefills, its
// end is unknown.
func (p *Pool) endPrefillLocked(b *booking) {
	if b.awaits {
		p.breakRunLocked(b.worker)
		b.worker.dequeuePrefillLocked(b)
	}
	b.worker.unbookPrefillLocked(b)
}

// unbookPrefillLocked takes the tokens of a prefill out of the worker's books.
func (w *Worker) unbookPrefillLocked(b *booking) {
	w.pending -= b.prefill
	w.assumedCached -= b.assumedCached
	b.prefill, b.assumedCached = 0, 0
	if !b.due.IsZero() {
		b.due = time.Time{}
		at := slices.Index(w.prefillEnds, b)
		w.prefillEnds = slices.Delete(w.prefillEnds, at, at+1)
	}
}

// schedulePrefillEndLocked sets the predicted end of the booking's prefill: after all pending
// tokens at the worker's rate, and not before an earlier booking's end.
func (w *Worker) schedulePrefillEndLocked(b *booking, now time.Time) {
	b.due = now.Add(min(maxPrefill, seconds(float64(w.pending)/w.value[prefillRate])))
	if n := len(w.prefillEnds); n > 0 && b.due.Before(w.prefillEnds[n-1].due) {
		b.due = w.prefillEnds[n-1].due
	}
	w.prefillEnds = append(w.prefillEnds, b)
}

// endDuePrefillsLocked ends prefills of unstreamed answers after their predicted end.
func (p *Pool) endDuePrefillsLocked(w *Worker, now time.Time) {
	for len(w.prefillEnds) > 0 && !now.Before(w.prefillEnds[0].due) {
		w.unbookPrefillLocked(w.prefillEnds[0])
	}
	p.endFirstPrefillsLocked(w, now)
}
