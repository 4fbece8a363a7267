package proxy

import (
	"context"
	"sync"
	"time"
)

// watchdog cancels an attempt when its worker has been silent for too long, or when the
// exchange's time is over. The worker's silence counts only while the worker is awaited:
// a client that takes its time with what came does not harm it.
type watchdog struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards all below
	timer *time.Timer
	armed time.Time // when the timer fires
	total time.Time // when the exchange's time is over
	due   time.Time // when the silence is over; zero while the worker is not awaited
	cause error     // of the silence
}

// start awaits the first byte until firstByte has passed, or until the exchange's time
// is over if that is unbounded.
func (w *watchdog) start(cancel context.CancelCauseFunc, firstByte time.Duration, total time.Time) {
	w.mu.Lock() // a timer that fires at once waits until it is known
	defer w.mu.Unlock()
	w.cancel, w.total, w.cause = cancel, total, errFirstByteTimeout
	now := time.Now()
	w.due = w.waitEnd(now, firstByte)
	w.armed = w.due
	w.timer = time.AfterFunc(w.armed.Sub(now), w.onTimer)
}

// after is the end of a wait of d, and not after that of the exchange's time.
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

// overdue returns why the attempt is to end, or nil after arming the timer anew.
func (w *watchdog) overdue(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	w.armed = at
	w.timer.Reset(at.Sub(now))
}

// await counts the worker's silence from now on: after d the attempt ends with the
// cause. The timer is left alone unless it would fire too late.
func (w *watchdog) startSilence(d time.Duration, cause error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cause, w.due = cause, w.waitEnd(now, d)
	if w.due.Before(w.armed) {
		w.armLocked(now, w.due)
	}
}

// rest stops counting until the next await: the worker has sent something.
func (w *watchdog) stopSilence() {
	w.mu.Lock()
	w.due = time.Time{}
	w.mu.Unlock()
}

// extend moves the end of the exchange's time, which never comes closer.
func (w *watchdog) extendTotal(total time.Time) {
	w.mu.Lock()
	w.total = total
	w.mu.Unlock()
}

func (w *watchdog) stop() { w.timer.Stop() }
