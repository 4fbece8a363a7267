package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"tierway/server/control"
)

// watchdog cancels an attempt when its worker is silent for too long, or at the deadline of the
// exchange. Silence is measured only while the gateway waits for the worker, so that a slow client
// is not the worker's fault.
type watchdog struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards all below
	timer *time.Timer
	armed time.Time // when the timer fires
	total time.Time // deadline of the exchange
	due   time.Time // limit of the silence; zero while it is not measured
	since time.Time // beginning of the silence
	cause error     // cause of the cancellation at due
	ended bool      // stop was called

	firstByteEnd firstByteLimiter // nil: the limit before the first byte is final. Set before start
}

// firstByteLimiter decides whether the limit before the first byte applies when it is reached.
type firstByteLimiter interface {
	// firstByteEnd returns the end of the silence: now, or a later time.
	firstByteEnd(now time.Time) time.Time
}

// start measures silence until the first byte, with the limit firstByte. total is the deadline of the
// exchange.
func (w *watchdog) start(cancel context.CancelCauseFunc, firstByte time.Duration, total time.Time) {
	w.mu.Lock() // a timer that fires at once waits until w.timer is set
	defer w.mu.Unlock()
	w.cancel, w.total, w.cause = cancel, total, errFirstByteTimeout
	now := time.Now()
	w.since, w.due = now, w.waitEnd(now, firstByte)
	w.armed = w.due
	w.timer = time.AfterFunc(w.armed.Sub(now), w.onTimer)
}

// waitEnd returns the end of a wait of d, or the deadline of the exchange if that is earlier.
func (w *watchdog) waitEnd(now time.Time, d time.Duration) time.Time {
	if d >= w.total.Sub(now) {
		return w.total
	}
	return now.Add(d)
}

// onTimer runs on the timer's goroutine.
func (w *watchdog) onTimer() {
	if cause := w.overdue(time.Now()); cause != nil {
		w.cancel(cause)
	}
}

// overdue returns the cause for which the attempt must end. Otherwise it arms the timer again and
// returns nil.
func (w *watchdog) overdue(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended { // the timer fired before stop
		return nil
	}
	if now.Before(w.total) && !w.due.IsZero() && !now.Before(w.due) && w.firstByteEnd != nil &&
		errors.Is(w.cause, errFirstByteTimeout) {
		w.due = earlier(w.firstByteEnd.firstByteEnd(now), w.total)
	}
	switch {
	case !now.Before(w.total):
		return errTotalTimeout
	case w.due.IsZero():
		w.armLocked(now, w.total)
	case now.Before(w.due):
		w.armLocked(now, w.due)
	default:
		return w.cause
	}
	return nil
}

func (w *watchdog) armLocked(now, at time.Time) {
	if w.ended {
		return
	}
	w.armed = at
	w.timer.Reset(at.Sub(now))
}

// startSilence measures the worker's silence from now on: after d the attempt ends with the cause. The
// timer is set only if it would fire too late, because setting it for each read costs too much.
func (w *watchdog) startSilence(d time.Duration, cause error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cause, w.since, w.due = cause, now, w.waitEnd(now, d)
	if w.due.Before(w.armed) {
		w.armLocked(now, w.due)
	}
}

// silentSince returns since when the gateway waits for the worker; ok is false while it does not wait.
func (w *watchdog) silentSince() (since time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, !w.due.IsZero()
}

// stopSilence ends the measurement until the next startSilence, because the worker sent data.
func (w *watchdog) stopSilence() {
	w.mu.Lock()
	w.due = time.Time{}
	w.mu.Unlock()
}

// extendTotal sets a later deadline of the exchange.
func (w *watchdog) extendTotal(total time.Time) {
	w.mu.Lock()
	w.total = total
	w.mu.Unlock()
}

// stop ends the watchdog. Later calls do not arm its timer again.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}

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
