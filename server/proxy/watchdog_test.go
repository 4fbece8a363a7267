package proxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAWatchdogCountsSilenceOnly is what ends an attempt and when, in seconds from its
// start.
func TestAWatchdogCountsSilenceOnly(t *testing.T) {
	const s = time.Second
	await := func(d time.Duration) func(*watchdog) {
		return func(w *watchdog) { w.startSilence(d, errIdleTimeout) }
	}
	rest := func(w *watchdog) { w.stopSilence() }
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
		{"nothing comes", 5 * s, 60 * s, nil, 5 * s, errFirstByteTimeout},
		{"nothing comes of a whole answer", unbounded, 60 * s, nil, 60 * s, errTotalTimeout},
		{"nothing comes and the total is first", 5 * s, 3 * s, nil, 3 * s, errTotalTimeout},
		{"no time is left", 5 * s, 0, nil, 0, errTotalTimeout},
		{"it falls silent", 5 * s, 60 * s, []step{{3 * s, await(10 * s)}, {12 * s, await(10 * s)}}, 22 * s, errIdleTimeout},
		{"a shorter wait", 50 * s, 60 * s, []step{{1 * s, await(2 * s)}}, 3 * s, errIdleTimeout},
		{"a shorter wait after a longer one", 5 * s, 600 * s, []step{{1 * s, await(200 * s)}, {2 * s, await(10 * s)}}, 12 * s,
			errIdleTimeout},
		{"its answer is on its way to the client", 5 * s, 60 * s, []step{{3 * s, rest}}, 60 * s, errTotalTimeout},
		{"a slow client, then silence", 5 * s, 60 * s, []step{{3 * s, rest}, {40 * s, await(10 * s)}}, 50 * s,
			errIdleTimeout},
		{"a client that takes the whole pause", 5 * s, 60 * s,
			[]step{{3 * s, await(10 * s)}, {4 * s, rest}, {30 * s, await(10 * s)}, {31 * s, rest}}, 60 * s, errTotalTimeout},
		{"a stream goes on beyond the client's patience", 5 * s, 10 * s, []step{{3 * s, extend}, {3 * s, await(50 * s)}},
			53 * s, errIdleTimeout},
		{"a whole answer that becomes a stream", unbounded, 10 * s, []step{{3 * s, extend}, {3 * s, rest}}, 103 * s,
			errTotalTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				start := time.Now()
				var w watchdog
				w.start(cancel, c.firstByte, start.Add(c.total))
				defer w.stop()
				for _, st := range c.steps {
					time.Sleep(time.Until(start.Add(st.at)))
					synctest.Wait()
					if ctx.Err() != nil {
						t.Fatalf("it ended with %v before %v", context.Cause(ctx), st.at)
					}
					st.do(&w)
				}
				<-ctx.Done()
				if at := time.Since(start); at != c.ends || !errors.Is(context.Cause(ctx), c.cause) {
					t.Errorf("it ended after %v with %v, want %v, %v", at, context.Cause(ctx), c.ends, c.cause)
				}
			})
		})
	}
}
