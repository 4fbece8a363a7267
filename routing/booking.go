package routing

import "time"

// booking is what one lease holds in its pool's books. The pool uses bookings
// again, so that a request allocates none.
type booking struct {
	worker          *Worker
	prefill, output int64
	tokens          int64    // of the prompt, cached or not, and the expected answer
	doubt           int64    // tokens that are not in prefill because the worker had them lately
	rows            []int32  // of the prompt's landmarks in flight
	hashes          []uint64 // by which the prompt is remembered
	stream          bool
	streaming       bool // a stream's answer has begun

	// Of an answer that comes whole, whose first event says nothing about its
	// prefill: when that should be over.
	due        time.Time
	prev, next *booking // in the worker's list of such; next also in the pool's free ones
}

// maxBooked bounds the tokens that one request books on each account. A client
// may ask for any max_tokens; with 2^40 a million of such requests still sum
// up without overflow.
const maxBooked = 1 << 40

func booked(tokens int64) int64 { return min(max(tokens, 0), maxBooked) }

// maxPrefill bounds the predicted time of one prefill: an estimate beyond it
// is wrong, and the books should not believe it for longer.
const maxPrefill = 10 * time.Minute

// enterLocked books the request on the worker that the view is of. What is
// booked as prefill is what the requests in flight there do not compute already
// and those of the last minutes did not.
func (p *Pool) enterLocked(r *Request, w *Worker, v *View) *booking {
	b := p.free
	if b == nil {
		b = &booking{}
	} else {
		p.free = b.next
	}
	prompt := booked(r.PromptTokens)
	*b = booking{worker: w, rows: b.rows[:0], hashes: b.hashes[:0], output: booked(r.OutputTokens), stream: r.Stream}
	b.tokens = prompt + b.output
	if prompt > 0 {
		b.prefill, b.doubt = uncached(prompt, v), v.Overlap-v.computing
	}
	w.inflight++
	if b.stream {
		w.streams++
	}
	w.pending += b.prefill
	w.doubt += b.doubt
	w.output += b.output
	w.tokens += b.tokens
	if len(r.Blocks) > 0 {
		b.rows = p.chains.book(r.Blocks, w.slot, b.rows)
		w.chains++
		if w.slot < rememberedWorkers {
			b.hashes = appendRemembered(b.hashes, r.Blocks)
		}
	}
	if !r.Stream && b.prefill > 0 {
		w.dueLocked(b, r.Now)
	}
	return b
}

// uncached is what a worker must compute of a prompt: at least one token, since
// even a prompt that is cached whole takes a step.
func uncached(prompt int64, v *View) int64 {
	if prompt == 0 {
		return 0
	}
	return max(1, prompt-v.Overlap)
}

// leaveLocked gives all of the booking back.
func (p *Pool) leaveLocked(b *booking) {
	w := b.worker
	w.prefilledLocked(b)
	w.inflight--
	if b.stream {
		w.streams--
	}
	if b.streaming {
		w.streaming--
	}
	w.output -= b.output
	w.tokens -= b.tokens
	if len(b.rows) > 0 {
		p.chains.unbook(b.rows, w.slot)
		w.chains--
		p.partLocked(w)
	}
	b.worker, b.next = nil, p.free
	p.free = b
}

// prefilledLocked takes the booking's prefill off the worker's account.
func (w *Worker) prefilledLocked(b *booking) {
	w.pending -= b.prefill
	w.doubt -= b.doubt
	b.prefill, b.doubt = 0, 0
	if b.due.IsZero() {
		return
	}
	if b.prev == nil {
		w.firstDue = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		w.lastDue = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.prev, b.next, b.due = nil, nil, time.Time{}
}

// dueLocked notes when the booking's prefill should be over: after all that is
// pending, at the worker's rate, and not before an earlier one.
func (w *Worker) dueLocked(b *booking, now time.Time) {
	b.due = now.Add(min(maxPrefill, seconds(float64(w.pending)/w.value[prefillRate])))
	b.prev = w.lastDue
	w.lastDue = b
	if b.prev == nil {
		w.firstDue = b
		return
	}
	b.prev.next = b
	if b.due.Before(b.prev.due) {
		b.due = b.prev.due
	}
}

// expireLocked takes off what should be prefilled by now.
func (w *Worker) expireLocked(now time.Time) {
	for b := w.firstDue; b != nil && !now.Before(b.due); b = w.firstDue {
		w.prefilledLocked(b)
	}
}
