package proxy

import (
	"time"

	"tierway/server/control"
)

// stoppedSilenceLimit is the longest silence of a worker that has stopped answering, for requests that cannot be sent
// to another worker. An engine that is only busy sends something within that time.
const stoppedSilenceLimit = 10 * time.Second

// stoppedError means that an attempt was ended because its worker has stopped answering.
type stoppedError struct{ reason string }

// Error returns why the worker has stopped.
func (e *stoppedError) Error() string { return "the worker " + e.reason }

// leaveStopped ends attempts on workers that have stopped answering. An attempt without content ends if another worker
// can take its request and the retry budget has a retry for it. With content, or if the request may not be sent to a
// further worker, the attempt ends after stoppedSilenceLimit.
func (px *Proxy) leaveStopped(stopped control.StoppedWorkers) {
	now := time.Now()
	for _, a := range px.inflight.attempts() {
		if stop, ok := stopped[a.m]; ok && a.usesEngine && a.affectedBy(stop, now) {
			a.leaveStopped(stop, now)
		}
	}
}

// affectedBy reports whether the worker's stop concerns the attempt. A probe has a time limit of its own. Without a
// proven hang, only overdue requests and silent streams are in doubt, and a whole answer of a worker that is down may
// still end in time.
func (a *attempt) affectedBy(stop control.Stop, now time.Time) bool {
	if _, probing := a.m.Gate.Probing(a.lease.Ticket(), 0); probing {
		return false
	}
	onlyOverdue := stop.Reason == control.ReasonSilent ||
		stop.Reason == control.ReasonDown && !a.stream
	return !onlyOverdue || a.x.answer.committed() || a.lease.Overdue(now)
}

// leaveStopped ends the attempt if that helps its request, or if it has waited for stoppedSilenceLimit.
func (a *attempt) leaveStopped(stop control.Stop, now time.Time) {
	committed := a.x.answer.committed()
	switch {
	case !committed && !a.lease.HasOtherWorker(now):
		// No other worker can answer, and this one may continue: the request waits.
	case !committed && a.retryable:
		if !a.retryPaid.Load() && a.x.s.budget.spendRetry(now) {
			a.retryPaid.Store(true)
			a.watch.cancel(&stoppedError{stop.Reason})
		}
	case !committed && stop.Reason == control.ReasonSilent:
		// The request itself may be slow.
	default:
		if since, silent := a.watch.silentSince(); silent && now.Sub(later(since, stop.Since)) >= stoppedSilenceLimit {
			a.watch.cancel(errStoppedSilence)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
