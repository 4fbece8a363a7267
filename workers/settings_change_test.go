package workers

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
)

// TestOneEngineReachedAnotherWayIsTheSameWorker: it keeps its status, and the next
// request goes the new way.
func TestOneEngineReachedAnotherWayIsTheSameWorker(t *testing.T) {
	for what, c := range map[string]struct {
		change     func(*Spec)
		key        string // of the next request
		reconnects bool
	}{
		"key":     {change: func(s *Spec) { s.Key = "second" }, key: "second"},
		"no key":  {change: func(s *Spec) { s.Key, s.APIKeyEnv = "", "" }},
		"env":     {change: func(s *Spec) { s.APIKeyEnv = "OTHER" }, key: canary},
		"health":  {change: func(s *Spec) { s.Health = &Health{Path: pathOff} }, key: canary},
		"connect": {change: func(s *Spec) { s.ConnectTimeout = time.Second }, key: canary, reconnects: true},
	} {
		t.Run(what, func(t *testing.T) {
			fleet := fakeFleet(Options{})
			fleet.Sync([]Spec{keyedSpec("http://h:1")})
			w := fleet.Get("small-0")
			w.update(func(s *Status) { s.Waiting = 7 })
			before := senderOf(w)
			spec := keyedSpec("http://h:1")
			c.change(&spec)
			if diff := syncTo(fleet, []Spec{spec}); !slices.Equal(diff.Kept, []*Worker{w}) || diff.Added != nil ||
				diff.Removed != nil {
				t.Fatalf("%+v", diff)
			}
			if got := w.Status().Waiting; got != 7 {
				t.Errorf("the worker lost its status: %d wait", got)
			}
			if after := senderOf(w); (after != before) != c.reconnects || (before.closed == 1) != c.reconnects {
				t.Errorf("the connections were replaced: %v, dropped %d times", after != before, before.closed)
			}
			want := ""
			if c.key != "" {
				want = "Bearer " + c.key
			}
			if _, err := w.Send(t.Context(), postOf("/v1/chat/completions", "x")); err != nil ||
				senderOf(w).last().Header.Get("Authorization") != want || w.Spec().Key != c.key {
				t.Errorf("sent with %q, want %q: %v", senderOf(w).last().Header.Get("Authorization"), want, err)
			}
			if !w.RepeatsKey([]byte("your key is "+canary)) || c.key != "" && !w.RepeatsKey([]byte("your key is "+c.key)) {
				t.Error("an answer may repeat a key: of this request, or of one under way")
			}
		})
	}
}

// TestAnExchangeOutlivesAChangeOfItsWorker, as it does a removal.
func TestAnExchangeOutlivesAChangeOfItsWorker(t *testing.T) {
	release := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun ")
		w.(http.Flusher).Flush()
		<-release
		_, _ = io.WriteString(w, "and ended")
	}))
	t.Cleanup(engine.Close)
	fleet := NewFleet(Options{})
	t.Cleanup(fleet.Close)
	spec := namedSpec("a", engine.URL)
	fleet.Sync([]Spec{spec})
	answer, err := fleet.Get("a").Send(t.Context(), postOf("/v1/chat/completions", "x"))
	if err != nil {
		t.Fatal(err)
	}
	spec.Key, spec.ConnectTimeout = "second", time.Second
	fleet.Sync([]Spec{spec})
	close(release)
	if got := readAll(t, answer, nil); got != "begun and ended" {
		t.Errorf("got %q", got)
	}
}

// TestNewHealthSettingsAreUsedAtOnce: a worker that is up is not taken out by one
// check, and one that only the old settings kept down is up at the next.
func TestNewHealthSettingsAreUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set("/ready", 503, "")
		fake := &fakeSender{answer: engine.answer}
		fleet := NewFleet(Options{Rand: middle, send: func(Spec) Sender { return fake }})
		spec := namedSpec("a", "http://a:1")
		reload := func(h Health) {
			spec.Health = &h
			fleet.Sync([]Spec{spec})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		reload(Health{Path: pathHealth, Interval: time.Minute, DownAfter: 3, UpAfter: 3})
		w := fleet.Get("a")
		expect := func(when string, up bool, health string, checks int) {
			t.Helper()
			if s := w.Status(); s.Up != up || s.Health != health || fake.count(health) != checks {
				t.Errorf("%s: up %v, checked %d times at %s; want %v, %d times at %s", when, s.Up, fake.count(health), s.Health, up,
					checks, health)
			}
		}
		expect("the first check", true, pathHealth, 1)

		reload(Health{Path: "/ready", Interval: time.Minute, DownAfter: 2, UpAfter: 3})
		expect("another path", true, "/ready", 1)
		pass(time.Minute)
		expect("its second failure", false, "/ready", 2)
		if n := fake.count(pathHealth); n != 1 {
			t.Errorf("the old path was asked %d times", n)
		}

		reload(Health{Path: pathHealth, Interval: time.Minute, DownAfter: 2, UpAfter: 3})
		expect("the path that answers", true, pathHealth, 2)

		engine.set(pathHealth, 503, "")
		pass(2 * time.Minute)
		expect("the worker fails", false, pathHealth, 4)
		reload(Health{Path: pathHealth, Interval: 10 * time.Second, DownAfter: 2, UpAfter: 3})
		expect("another interval", false, pathHealth, 5)
		engine.set(pathHealth, 200, "")
		pass(20 * time.Second)
		expect("a failure has used up the one check", false, pathHealth, 7)
		pass(10 * time.Second)
		expect("three good checks", true, pathHealth, 8)

		reload(Health{Path: pathOff})
		if s := w.Status(); !s.Up || s.Health != pathOff {
			t.Errorf("off: %+v", s)
		}
		pass(time.Hour)
		reload(Health{Path: pathHealth, Interval: time.Minute})
		expect("on again", true, pathHealth, 9)
		cancel()
		run.Wait()
	})
}

// TestAWorkerThatOnlyAKeyKeptDownIsUpWithTheNext.
func TestAWorkerThatOnlyAKeyKeptDownIsUpWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeSender{answer: func(_ context.Context, r *http1.Request) (*http1.Response, error) {
			if r.Header.Get("Authorization") != "Bearer good" {
				return answered(http.StatusUnauthorized, ""), nil
			}
			return answered(http.StatusOK, ""), nil
		}}
		fleet := NewFleet(Options{Rand: middle, send: func(Spec) Sender { return fake }})
		spec := namedSpec("a", "http://a:1")
		spec.Key, spec.Health = "bad", &Health{Path: pathHealth, Interval: time.Minute, UpAfter: 5}
		fleet.Sync([]Spec{spec})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		synctest.Wait()
		if fleet.Get("a").Status().Up {
			t.Error("up with a key that is refused")
		}
		spec.Key = "good"
		fleet.Sync([]Spec{spec})
		synctest.Wait()
		if s := fleet.Get("a").Status(); !s.Up {
			t.Errorf("%+v", s)
		}
		cancel()
		run.Wait()
	})
}
