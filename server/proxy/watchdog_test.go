package proxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdogMeasuresTheWorkersSilenceOnly checks the cause and the time of an attempt's end. Times
// count from its start.
func TestWatchdogMeasuresTheWorkersSilenceOnly(t *testing.T) {
	const s = time.Second
	start := func(d time.Duration) func(*watchdog) {
		return func(w *watchdog) { w.startSilence(d, errIdleTimeout) }
	}
	stop := func(w *watchdog) { w.stopSilence() }
	extend := func(w *watchdog) { w.extendTotal(time.Now().Add(100 * s)) }
	type step struct {
		at time.Duration
		do func(*watchdog)
	}
	for _, c := range []struct {
		name             string
		firstByte, total time.Duration
		steps            []step
		ends             time.Duration
		cause            error
	}{
		{"no first byte", 5 * s, 60 * s, nil, 5 * s, errFirstByteTimeout},
		{"no first byte of a whole answer", unbounded, 60 * s, nil, 60 * s, errTotalTimeout},
		{"no first byte, and a shorter total time", 5 * s, 3 * s, nil, 3 * s, errTotalTimeout},
		{"no total time left", 5 * s, 0, nil, 0, errTotalTimeout},
		{"silence after data", 5 * s, 60 * s, []step{{3 * s, start(10 * s)}, {12 * s, start(10 * s)}}, 22 * s,
			errIdleTimeout},
		{"a shorter limit", 50 * s, 60 * s, []step{{1 * s, start(2 * s)}}, 3 * s, errIdleTimeout},
		{"a shorter limit after a longer one", 5 * s, 600 * s,
			[]step{{1 * s, start(200 * s)}, {2 * s, start(10 * s)}}, 12 * s, errIdleTimeout},
		{"a slow client, no more silence", 5 * s, 60 * s, []step{{3 * s, stop}}, 60 * s, errTotalTimeout},
		{"a slow client, then silence", 5 * s, 60 * s, []step{{3 * s, stop}, {40 * s, start(10 * s)}}, 50 * s,
			errIdleTimeout},
		{"a slow client twice", 5 * s, 60 * s,
			[]step{{3 * s, start(10 * s)}, {4 * s, stop}, {30 * s, start(10 * s)}, {31 * s, stop}}, 60 * s, errTotalTimeout},
		{"a stream beyond the client's patience", 5 * s, 10 * s, []step{{3 * s, extend}, {3 * s, start(50 * s)}},
			53 * s, errIdleTimeout},
		{"a whole answer that becomes a stream", unbounded, 10 * s, []step{{3 * s, extend}, {3 * s, stop}}, 103 * s,
			errTotalTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				var w watchdog
				w.start(cancel, c.firstByte, began.Add(c.total))
				defer w.stop()
				for _, st := range c.steps {
					time.Sleep(time.Until(began.Add(st.at)))
					synctest.Wait()
					if ctx.Err() != nil {
						t.Fatalf("it ended with %v before %v", context.Cause(ctx), st.at)
					}
					st.do(&w)
				}
				<-ctx.Done()
				if at := time.Since(began); at != c.ends || !errors.Is(context.Cause(ctx), c.cause) {
					t.Errorf("it ended after %v with %v, want %v, %v", at, context.Cause(ctx), c.ends, c.cause)
				}
			})
		})
	}
}

// TestLimitBeforeTheFirstByteIsExtended while its owner has a reason, but not beyond the total time.
func TestLimitBeforeTheFirstByteIsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for total, want := range map[time.Duration]time.Duration{
			time.Hour:        25 * time.Second,
			20 * time.Second: 20 * time.Second,
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			began := time.Now()
			w := watchdog{firstByteEnd: limitFrom(began.Add(25 * time.Second))}
			w.start(cancel, 5*time.Second, began.Add(total))
			<-ctx.Done()
			if at := time.Since(began); at != want {
				t.Errorf("with a total of %v it ended after %v, want %v", total, at, want)
			}
			w.stop()
		}
	})
}

// limitFrom is a time from which the limit before the first byte applies.
type limitFrom time.Time

func (l limitFrom) firstByteEnd(now time.Time) time.Time {
	if now.Before(time.Time(l)) {
		return now.Add(10 * time.Second)
	}
	return now
}

// TestStoppedWatchdogIsNotArmedAgain by a call that comes too late.
func TestStoppedWatchdogIsNotArmedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var w watchdog
		w.start(cancel, time.Minute, time.Now().Add(time.Hour))
		w.stop()
		w.startSilence(time.Second, errIdleTimeout)
		time.Sleep(2 * time.Hour)
		if ctx.Err() != nil {
			t.Errorf("it ended with %v", context.Cause(ctx))
		}
	})
}

// deadLimit fails a test if the limit before the first byte is asked for after the end of the attempt.
type deadLimit struct{ t *testing.T }

func (l deadLimit) firstByteEnd(now time.Time) time.Time {
	l.t.Error("the lease of an attempt that has ended is read")
	return now
}

// TestWatchdogHasNoEffectAfterItsStop: a timer that fires in the moment of the stop cancels nothing, and neither it nor
// a late read arms the timer again.
func TestWatchdogHasNoEffectAfterItsStop(t *testing.T) {
	for _, total := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w := watchdog{firstByteEnd: deadLimit{t}}
			w.start(func(cause error) { t.Errorf("cancelled by %v", cause) }, time.Minute, began.Add(total))
			w.stop()
			w.onTimer()
			w.startSilence(time.Second, errIdleTimeout)
			time.Sleep(2 * time.Minute)
			w.onTimer() // as if the timer had fired before the stop, and its goroutine runs only now
			w.stopSilence()
			w.startSilence(time.Second, errIdleTimeout)
			time.Sleep(2 * time.Hour)
			w.onTimer()
			if w.timer.Stop() {
				t.Error("the timer is armed")
			}
		})
	}
}
