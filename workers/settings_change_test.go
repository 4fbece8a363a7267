package workers

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
)

// The next request uses the new settings.
func TestWorkerKeepsItsStatusWhenItsConnectionSettingsChange(t *testing.T) {
	for what, c := range map[string]struct {
		change     func(*Spec)
		key        string // of the next request
		reconnects bool
	}{
		"key":     {change: func(s *Spec) { s.Key = "second" }, key: "second"},
		"no key":  {change: func(s *Spec) { s.Key, s.APIKeyEnv = "", "" }},
		"env":     {change: func(s *Spec) { s.APIKeyEnv = "OTHER" }, key: canary},
		"health":  {change: func(s *Spec) { s.Health = &Health{Path: HealthOff} }, key: canary},
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
			if diff := syncAndCompare(fleet, []Spec{spec}); !slices.Equal(diff.Kept, []*Worker{w}) || diff.Added != nil ||
				diff.Removed != nil {
				t.Fatalf("%+v", diff)
			}
			if got := w.Status().Waiting; got != 7 {
				t.Errorf("the worker lost its status: %d requests wait", got)
			}
			if after := senderOf(w); (after != before) != c.reconnects || (before.closed == 1) != c.reconnects {
				t.Errorf("the sender was replaced: %v, closed %d times", after != before, before.closed)
			}
			want := ""
			if c.key != "" {
				want = "Bearer " + c.key
			}
			if _, err := w.Send(t.Context(), postRequest("/v1/chat/completions", "x")); err != nil ||
				senderOf(w).last().Header.Get("Authorization") != want || w.Spec().Key != c.key {
				t.Errorf("sent with %q, want %q: %v", senderOf(w).last().Header.Get("Authorization"), want, err)
			}
			if !w.RepeatsKey([]byte("your key is "+canary)) || c.key != "" && !w.RepeatsKey([]byte("your key is "+c.key)) {
				t.Error("RepeatsKey misses the current key, or the previous one that requests in flight have")
			}
		})
	}
}

func TestExchangeCompletesAfterAChangeOfItsWorker(t *testing.T) {
	release := make(chan struct{})
	engine := loopback.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
		<-release
		_, _ = io.WriteString(w, "last")
	}))
	t.Cleanup(engine.Close)
	fleet := NewFleet(Options{Dial: loopback.Dial})
	t.Cleanup(fleet.Close)
	spec := namedSpec("a", engine.URL)
	fleet.Sync([]Spec{spec})
	answer, err := fleet.Get("a").Send(t.Context(), postRequest("/v1/chat/completions", "x"))
	if err != nil {
		t.Fatal(err)
	}
	spec.Key, spec.ConnectTimeout = "second", time.Second
	fleet.Sync([]Spec{spec})
	close(release)
	if got := readAll(t, answer, nil); got != "first last" {
		t.Errorf("got %q", got)
	}
}

// One failed check with the new settings does not mark a worker down. One passed check marks a
// worker up.
func TestNewHealthSettingsAreUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set("/ready", 503, "")
		fake := &fakeSender{answer: engine.answer}
		fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender { return fake }})
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
		advanceTime(time.Minute)
		expect("the second failure", false, "/ready", 2)
		if n := fake.count(pathHealth); n != 1 {
			t.Errorf("the old path was checked %d times", n)
		}

		reload(Health{Path: pathHealth, Interval: time.Minute, DownAfter: 2, UpAfter: 3})
		expect("the path that answers", true, pathHealth, 2)

		engine.set(pathHealth, 503, "")
		advanceTime(2 * time.Minute)
		expect("the worker fails", false, pathHealth, 4)
		reload(Health{Path: pathHealth, Interval: 10 * time.Second, DownAfter: 2, UpAfter: 3})
		expect("another interval", false, pathHealth, 5)
		engine.set(pathHealth, 200, "")
		advanceTime(20 * time.Second)
		expect("two passed checks after a failure", false, pathHealth, 7)
		advanceTime(10 * time.Second)
		expect("three passed checks", true, pathHealth, 8)

		reload(Health{Path: HealthOff})
		if s := w.Status(); !s.Up || s.Health != HealthOff {
			t.Errorf("off: %+v", s)
		}
		advanceTime(time.Hour)
		reload(Health{Path: pathHealth, Interval: time.Minute})
		expect("checks on again", true, pathHealth, 9)
		cancel()
		run.Wait()
	})
}

func TestCorrectedKeyBringsTheWorkerUpWithOneCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeSender{answer: func(_ context.Context, r *http1.Request) (*http1.Response, error) {
			if r.Header.Get("Authorization") != "Bearer good" {
				return newAnswer(http.StatusUnauthorized, ""), nil
			}
			return newAnswer(http.StatusOK, ""), nil
		}}
		fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender { return fake }})
		spec := namedSpec("a", "http://a:1")
		spec.Key, spec.Health = "bad", &Health{Path: pathHealth, Interval: time.Minute, UpAfter: 5}
		fleet.Sync([]Spec{spec})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		synctest.Wait()
		if fleet.Get("a").Status().Up {
			t.Error("up with a rejected key")
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
