package routing

import (
	"errors"
	"slices"
	"time"
)

// decodeStage is what a lease has in addition if another worker computes its prompt.
type decodeStage struct {
	prefill   *Lease // of that worker; nil once the lease's own worker computes the prompt, or with Request.Computed
	refused   bool   // by the gate of that worker
	silent    silence
	timed     bool  // silent counts, from Begin on
	maxTokens int64 // Request.MaxTokens
}

// handOverLocked prepares a lease for Begin. Until then its worker owes nothing.
func (l *Lease) handOverLocked(r *Request) {
	p := l.pool
	first := firstStep + seconds(p.handover.transfer.seconds(l.prompt))
	l.decode = &decodeStage{silent: p.silenceOf(r, l.worker, first), timed: r.Timed, maxTokens: r.MaxTokens}
	l.expected = first + l.queueTime
	if !l.stream {
		l.expected = min(l.expected+seconds(float64(l.booking.output)*l.worker.value[tokenTime]), maxPrefill)
	}
}

// Prefill returns the lease of the worker that computes the prompt, or nil if the lease's worker does or if the prompt
// was computed before. Its owner owes Answered when the prompt is computed, and Release when its blocks are no longer
// needed. The Release of l releases it too.
func (l *Lease) Prefill() *Lease {
	if l.decode == nil {
		return nil
	}
	return l.decode.prefill
}

// HandedOver reports whether another worker computes the prompt, or has computed it.
func (l *Lease) HandedOver() bool { return l.handedOver }

// Begin records that the request is sent to the lease's worker now. Its time to first token counts from here. If the
// prefill worker has not answered, both stages run at once. Then the worker may be silent for the predicted time of
// both stages. The owner must call Begin again when the prefill worker has answered. Without a hand-over Begin does
// nothing.
func (l *Lease) Begin(now time.Time) {
	if l.pool == nil || !l.handedOver {
		return
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.bookedAt = now
	if b := l.booking; b != nil && b.silentAt == 0 && l.decode.timed && !l.reported {
		s := l.decode.silent
		s.began = now
		if prefill := l.decode.prefill; prefill != nil && !prefill.reported {
			s.addFirstToken(prefill.expected)
		}
		l.worker.addSilentLocked(b, s)
	}
}

// ErrNotWhole means that a worker cannot compute prompts itself.
var ErrNotWhole = errors.New("the worker serves only requests whose prompt another worker has computed")

// PrefillLocally lets the lease's worker compute the prompt after all, and releases the prefill lease. The error
// is ErrNotWhole.
func (l *Lease) PrefillLocally(now time.Time) error {
	if l.pool == nil || !l.handedOver {
		return nil
	}
	if prefill := l.Prefill(); prefill != nil {
		prefill.Release(Result{At: now, Err: ErrExcluded})
	}
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.worker.servesAny(StageWhole) {
		return ErrNotWhole
	}
	l.decode.prefill, l.handedOver, l.bookedAt = nil, false, now
	w, b := l.worker, l.booking
	if b == nil {
		return nil
	}
	p.countArrivalLocked(now)
	if l.prompt > 0 {
		b.prefill, b.assumedCached = max(1, l.prompt-l.overlap), l.overlap-l.computing
	}
	p.enqueuePrefillLocked(b, now)
	w.pending += b.prefill
	w.assumedCached += b.assumedCached
	if !l.stream && b.prefill > 0 {
		w.schedulePrefillEndLocked(b, now)
	}
	l.prefill, l.ahead, l.assumedCached = b.prefill, w.pending, w.assumedCached
	l.expected = l.expectedLocked(b.output)
	if l.decode.timed && b.silentAt == 0 {
		l.decode.silent.began = now
		p.predictSilenceLocked(&l.decode.silent, w, l.firstTokenLocked(), l.decode.maxTokens)
		w.addSilentLocked(b, l.decode.silent)
	}
	return nil
}

// RetryPrefill books another worker than tried for the prefill stage of a lease whose prefill worker failed. r.Record
// gets the selection, and must not be the record of the decode stage. The errors are those of Acquire.
func (p *Pool) RetryPrefill(r *Request, l *Lease, tried ...*Worker) error {
	if !l.handedOver {
		return ErrNoWorker
	}
	tried = append(slices.Clone(tried), l.worker)
	if prefill := l.Prefill(); prefill != nil {
		prefill.Release(Result{At: r.Now, Err: ErrExcluded})
		tried = append(tried, prefill.worker)
	}
	for {
		next := &Lease{}
		if err := p.bookPrefill(next, r, tried); err != nil {
			return err
		}
		if next.Admit() == nil {
			l.decode.prefill = next
			return nil
		}
		tried = append(tried, next.worker)
	}
}

// bookPrefill books a worker for the prefill stage of a request.
func (p *Pool) bookPrefill(l *Lease, r *Request, tried []*Worker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handover == nil {
		return ErrNoWorker // a reload has ended the hand-over
	}
	p.handover.swap(p)
	at := p.pickPrefillLocked(r.prefillRequest(r.Record), tried)
	p.handover.swap(p)
	if at.err != nil {
		return at.err
	}
	return p.bookPrefillPickLocked(l, &at)
}
