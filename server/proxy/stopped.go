package proxy

import (
	"time"

	"tierway/server/control"
)

// stoppedLimit is the longest silence of a worker that has stopped answering, for requests that cannot be sent to
// another worker. An engine that is only busy sends something within that time.
const stoppedLimit = 10 * time.Second

// stoppedError means that an attempt was ended because its worker has stopped answering.
type stoppedError struct{ why string }

// Error returns why the worker has stopped.
func (e *stoppedError) Error() string { return "the worker " + e.why }

// leaveStopped ends the attempts on workers that have stopped answering. An attempt without content ends if
// another worker can take its request and the retry budget has a retry for it. With content, or if the request
// may reach no further worker, the attempt may be silent for stoppedLimit.
func (px *Proxy) leaveStopped(stopped control.Stopped) {
	now := time.Now()
	for _, a := range px.inflight.attempts() {
		why, ok := stopped[a.m]
		if !ok || !a.usesEngine || a.probing || why == control.Silent && !a.lease.Overdue(now) {
			continue
		}
		switch w := a.lease.Worker(); {
		case !hasOtherWorker(a.pool, w.ID()) && !a.x.answer.committed():
			// Nothing is better than to wait: the worker may go on.
		case why == control.Silent && !a.movable:
			// It may be the request that is slow.
		case a.x.answer.committed() || !a.movable:
			a.watch.limitSilence(stoppedLimit, errStoppedSilence)
		case !a.retryPaid.Load() && px.budget.spendRetry(now):
			a.retryPaid.Store(true)
			a.watch.cancel(&stoppedError{why})
		}
	}
}
