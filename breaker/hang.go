package breaker

import "time"

// CauseHung is the cause of an open breaker whose worker hangs: its server is
// there, and its engine answers nothing.
const CauseHung = "hung"

// Hang says whether the worker hangs, as its owner finds once a second. The breaker
// of a worker that hangs opens, unless the ejection cap keeps the worker in
// rotation; then OnKept is called. A good health check says little of a hang: the
// first one counts as a failed probe does for Healthy. A breaker that Hang has
// opened becomes half-open as soon as the worker hangs no more.
func (b *Breaker) Hang(hangs bool) {
	if b == nil || !hangs && b.State() != Open {
		return
	}
	b.group.look()
	b.mu.Lock()
	now := time.Now()
	switch {
	case b.retired:
	case hangs && b.state != Open:
		if b.group.leave(b, soft, now) {
			b.refuted++
			b.turnLocked(Open, CauseHung, now)
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
