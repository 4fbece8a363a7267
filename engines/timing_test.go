package engines

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// clocked notes when each event was written.
type clocked struct {
	*httptest.ResponseRecorder
	start time.Time
	times []time.Duration
}

func (c *clocked) Write(b []byte) (int, error) {
	if strings.Contains(string(b), `"text":"`) && !strings.Contains(string(b), `"text":""`) {
		c.times = append(c.times, time.Since(c.start))
	}
	return c.ResponseRecorder.Write(b)
}

// prompt is a body whose prompt has exactly n tokens, all equal to id.
func prompt(id, n, tokens int) string {
	ids := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d,", id), n), ",")
	return fmt.Sprintf(`{"model":"m","stream":true,"ignore_eos":true,"max_tokens":%d,"prompt":[%s]}`, tokens, ids)
}

// tokenTimes asks and returns when each token came, from start on.
func tokenTimes(ctx context.Context, e *Engine, start time.Time, body string) []time.Duration {
	w := &clocked{ResponseRecorder: httptest.NewRecorder(), start: start}
	e.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/completions", strings.NewReader(body)))
	return w.times
}

func ms(ns ...int) []time.Duration {
	out := make([]time.Duration, len(ns))
	for i, n := range ns {
		out[i] = time.Duration(n) * time.Millisecond
	}
	return out
}

func timed(slots int) Config {
	return Config{Model: "m", Prefill: 1000, PerToken: 10 * time.Millisecond, Slots: slots, CacheTokens: 1 << 16}
}

func TestFirstTokenWaitsForUncachedPromptOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timed(2))
		if got, want := tokenTimes(t.Context(), e, time.Now(), prompt(5, 100, 5)),
			ms(100, 110, 120, 130, 140); !slices.Equal(got, want) {
			t.Errorf("new prompt: tokens at %v, want %v", got, want)
		}
		// Six blocks of 16 are known, four tokens are not.
		if got, want := tokenTimes(t.Context(), e, time.Now(), prompt(5, 100, 3)), ms(4, 14, 24); !slices.Equal(got, want) {
			t.Errorf("known prompt: tokens at %v, want %v", got, want)
		}
		if got, want := tokenTimes(t.Context(), e, time.Now(), prompt(6, 300, 1)), ms(300); !slices.Equal(got, want) {
			t.Errorf("longer prompt: token at %v, want %v", got, want)
		}
	})
}

func TestLoadSlowsAllRequests(t *testing.T) {
	table := []struct {
		slots         int
		first, second []time.Duration
	}{
		// While the second prompt is read (100 ms × 1.5: half of the slots decode) the
		// first's tokens take twice their time.
		{2, ms(100, 120, 140, 160, 180), ms(250, 260, 270, 280, 290)},
		// A single slot: the second begins when the first has ended.
		{1, ms(100, 110, 120, 130, 140), ms(240, 250, 260, 270, 280)},
	}
	for _, row := range table {
		synctest.Test(t, func(t *testing.T) {
			e := New(timed(row.slots))
			start := time.Now()
			var all sync.WaitGroup
			var first, second []time.Duration
			all.Go(func() { first = tokenTimes(t.Context(), e, start, prompt(5, 100, 5)) })
			synctest.Wait()
			all.Go(func() { second = tokenTimes(t.Context(), e, start, prompt(6, 100, 5)) })
			all.Wait()
			if !slices.Equal(first, row.first) || !slices.Equal(second, row.second) {
				t.Errorf("%d slots: tokens at %v and %v, want %v and %v", row.slots, first, second, row.first, row.second)
			}
		})
	}
}

func TestDecodingNeighboursSlowTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := timed(4)
		c.Prefill = 0
		e := New(c)
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				// Three requests on four slots: each token takes 10 ms × (1 + 2/4). The earlier
				// requests set their first wait before the others arrived.
				got := tokenTimes(t.Context(), e, time.Now(), prompt(5+i, 1, 6))
				gaps := got[3] - got[2]
				if gaps != 15*time.Millisecond {
					t.Errorf("tokens at %v", got)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}

func TestEqualPromptsAtOnceAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := timed(8)
		c.PerToken = 0
		e := New(c)
		start := time.Now()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { tokenTimes(t.Context(), e, start, prompt(5, 100, 1)) })
		}
		all.Wait()
		if s := e.Stats(); s.Written.Cached != 7*96 || time.Since(start) > 150*time.Millisecond {
			t.Errorf("eight equal prompts took %v with %d tokens cached", time.Since(start), s.Written.Cached)
		}
	})
}

func TestDisconnectIsDetectedWithinOneToken(t *testing.T) {
	for _, leave := range ms(5, 50, 101, 117, 133) { // in line, while the prompt is read, between tokens
		synctest.Test(t, func(t *testing.T) {
			e := New(timed(1))
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), leave)
			defer cancel()
			tokenTimes(ctx, e, start, prompt(5, 100, 50))
			if s := e.Stats(); s.Cancelled != 1 || s.Running != 0 || s.Open != 0 || s.CancelledAt.Sub(start) > leave+
				10*time.Millisecond {
				t.Errorf("left after %v: %+v, noticed after %v", leave, s, s.CancelledAt.Sub(start))
			}
			if e.decoding.Load() != 0 || e.inUse.Load() != 0 {
				t.Errorf("left after %v: %d decode, %d tokens held", leave, e.decoding.Load(), e.inUse.Load())
			}
			if want := max(0, (leave-ms(100)[0])/ms(10)[0]+1); leave > ms(100)[0] && e.Stats().Written.Output != int64(want) {
				t.Errorf("left after %v: %d tokens written, want %d", leave, e.Stats().Written.Output, want)
			}
		})
	}
}

func TestCancelledWaitingRequestKeepsTheOrderOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newTurnstile(1)
		if err := gate.enter(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		impatient, leave := context.WithCancel(t.Context())
		order := make(chan string, 3)
		var all sync.WaitGroup
		wait := func(name string, ctx context.Context) {
			all.Go(func() {
				if gate.enter(ctx, 0) != nil {
					name += " left"
				}
				order <- name
				if !strings.HasSuffix(name, "left") {
					gate.leave()
				}
			})
			synctest.Wait()
		}
		wait("first", impatient)
		wait("second", t.Context())
		wait("third", t.Context())
		leave()
		synctest.Wait()
		gate.leave()
		all.Wait()
		if got := []string{<-order, <-order, <-order}; !slices.Equal(got, []string{"first left", "second", "third"}) {
			t.Errorf("the line moved as %v", got)
		}
		if inside, waiting, most := gate.state(); inside != 0 || waiting != 0 || most != 1 {
			t.Errorf("inside %d, waiting %d, most %d", inside, waiting, most)
		}
	})
}

var _ http.ResponseWriter = (*clocked)(nil)
