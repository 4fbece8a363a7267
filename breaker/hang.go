package breaker

import "time"

// CauseHung is the cause of an open breaker whose worker hangs: its server is
// there, and its engine answers nothing.
const CauseHung = "hung"

// Hang says whether the worker hangs, as its owner finds once a second. The closed
// breaker of a worker that hangs opens, unless the ejection cap keeps the worker in
// rotation; then OnKept is called. Health checks do not end that, because they pass
// while an engine hangs. A breaker that Hang has opened becomes half-open when the
// worker hangs no more, and at the latest after OpenFor.
func (b *Breaker) Hang(hangs bool) {
	if b == nil || !hangs && b.State() != Open {
		return
	}
	b.group.look()
	b.mu.Lock()
	now := time.Now()
	switch {
	case b.retired:
	case hangs && b.state == Closed:
		if b.group.leave(b, soft, now) {
			b.turnLocked(Open, CauseHung, now)
			b.slow = true
		} else {
			b.kept = true
		}
	case !hangs && b.state == Open && b.cause == CauseHung && halved(b.core):
		b.turnLocked(HalfOpen, CauseHealthy, now)
	}
	kept := b.kept
	b.kept = false
	b.mu.Unlock()
	if kept && b.group.options.OnKept != nil {
		b.group.options.OnKept(b.id, b.ref)
	}
	b.tell()
}
