package server

import (
	"context"
	"sync/atomic"
	"time"
)

// watchdog cancels an attempt whose worker stays silent for too long, or when
// the exchange's time is over. One timer serves it from the first byte to the
// last.
type watchdog struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
	total  atomic.Pointer[time.Time]
	cause  atomic.Pointer[error] // of the silence that is waited for
}

// start waits for the first byte.
func (w *watchdog) start(cancel context.CancelCauseFunc, firstByte time.Duration, total time.Time) {
	w.cancel = cancel
	w.total.Store(&total)
	w.cause.Store(&errFirstByteTimeout)
	w.timer = time.AfterFunc(w.bounded(firstByte), w.strike)
}

// bounded is d, or what is left of the exchange's time.
func (w *watchdog) bounded(d time.Duration) time.Duration { return min(d, time.Until(*w.total.Load())) }

// strike runs on the timer's goroutine.
func (w *watchdog) strike() {
	if !time.Now().Before(*w.total.Load()) {
		w.cancel(errTotalTimeout)
		return
	}
	w.cancel(*w.cause.Load())
}

// idle waits from now on for pauses of d, with one of this package's errors as
// their cause.
func (w *watchdog) idle(d time.Duration, cause *error) {
	w.cause.Store(cause)
	w.touch(d)
}

// until moves the end of the exchange's time.
func (w *watchdog) until(total time.Time) { w.total.Store(&total) }

// touch starts the pause anew.
func (w *watchdog) touch(d time.Duration) { w.timer.Reset(w.bounded(d)) }

func (w *watchdog) stop() { w.timer.Stop() }
