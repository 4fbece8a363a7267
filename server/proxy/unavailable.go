package proxy

import (
	"slices"
	"time"

	"tierway/queue"
	"tierway/server/intake"
)

// movesIfUnavailable reports whether the request leaves its tier while no worker of the tier is up.
func (x *exchange) movesIfUnavailable() bool {
	return x.s.intake.MovesIfUnavailable(&x.in, &x.parsed, &x.resolution)
}

// nextTier returns the resolution of the request to another tier. Without one, or while a worker of its
// tier is up, ok is false.
func (x *exchange) nextTier() (to intake.Resolution, ok bool) {
	return x.s.intake.MoveUnavailable(&x.in, &x.caller, &x.parsed, x.resolution, x.dispatch.failedIn)
}

// failedIn reports whether an attempt of the request failed in a tier.
func (d *dispatch) failedIn(tier string) bool {
	return slices.ContainsFunc(d.failed, func(a *attempt) bool { return a.pool.Name == tier })
}

// leaveForNextTier takes a waiting request out of its queue if its tier has no worker up and another tier
// can take it, and returns queue.ErrMoved. Otherwise it returns nil, and the request waits on or is to be
// claimed.
func (x *exchange) leaveForNextTier(t *queue.Ticket) error {
	if !t.Movable {
		return nil
	}
	to, ok := x.nextTier()
	if !ok {
		return nil
	}
	err := x.resolution.Pool.WaitQueue.Leave(t, queue.Moved, time.Now())
	if err != nil {
		x.wait.next = &to
	}
	return err
}

// leaveUnavailable moves a request that its tier did not serve to another tier, if no worker of its tier is
// up, and reports whether there is one. The time that it has waited counts in the next queue too.
func (x *exchange) leaveUnavailable() bool {
	next := x.wait.next
	if x.wait.next = nil; next == nil {
		to, ok := x.nextTier()
		if !ok {
			return false
		}
		next = &to
	}
	if failed := x.dispatch.failed; !time.Now().Before(x.patience) ||
		len(failed) > 0 && !x.s.spendRetry(failed[len(failed)-1].failure) {
		return false
	}
	x.setTarget(*next, rejection{})
	x.dispatch.tried = nil
	x.gatherFacts()
	return true
}
