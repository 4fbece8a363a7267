package workers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/http1"
)

func namedSpec(name, url string) Spec {
	return Spec{Config: Config{Name: name, URL: url}, Pool: "p", Engine: "auto"}
}

func fakeFleet(o Options) *Fleet {
	o.send = func(Spec) Sender { return new(fakeSender) }
	return NewFleet(o)
}

func senderOf(w *Worker) *fakeSender { return w.link.Load().sender.(*fakeSender) }

// syncDiff is the difference between the workers before and after a Sync.
type syncDiff struct{ Kept, Added, Removed []*Worker }

// syncAndCompare syncs a fleet and returns the difference.
func syncAndCompare(f *Fleet, specs []Spec) (d syncDiff) {
	before := f.Workers()
	f.Sync(specs)
	now := f.Workers()
	for _, w := range now {
		if slices.Contains(before, w) {
			d.Kept = append(d.Kept, w)
		} else {
			d.Added = append(d.Added, w)
		}
	}
	for _, w := range before {
		if !slices.Contains(now, w) {
			d.Removed = append(d.Removed, w)
		}
	}
	return d
}

func TestEqualSpecsKeepTheirWorkers(t *testing.T) {
	fleet := fakeFleet(Options{})
	first := syncAndCompare(fleet, []Spec{namedSpec("a", "http://a:1"), namedSpec("b", "http://b:1")})
	a, b := fleet.Get("a"), fleet.Get("b")
	if !slices.Equal(first.Added, []*Worker{a, b}) || first.Kept != nil || first.Removed != nil {
		t.Fatalf("first sync: %+v", first)
	}
	a.update(func(s *Status) { s.Up, s.Waiting = false, 7 })
	weight := 0
	reweighted := namedSpec("b", "http://b:1")
	reweighted.Weight, reweighted.MaxInflight, reweighted.Priority, reweighted.Models = &weight, 9, 2, []string{"m"}
	diff := syncAndCompare(fleet, []Spec{reweighted, namedSpec("c", "http://c:1"), namedSpec("a", "http://a:1")})
	if !slices.Equal(diff.Kept, []*Worker{b, a}) || !slices.Equal(diff.Added, []*Worker{fleet.Get("c")}) ||
		diff.Removed != nil {
		t.Errorf("second sync: %+v", diff)
	}
	if !slices.Equal(fleet.Workers(), []*Worker{b, fleet.Get("c"), a}) {
		t.Errorf("order: %v", fleet.Workers())
	}
	if s := a.Status(); s.Up || s.Waiting != 7 {
		t.Errorf("a kept worker lost its status: %+v", s)
	}
	if got := b.Spec(); *got.Weight != 0 || got.MaxInflight != 9 || got.Priority != 2 ||
		!slices.Equal(got.Models, []string{"m"}) {
		t.Errorf("a kept worker has the old %+v", got)
	}
}

func TestChangedSpecsGetNewWorkers(t *testing.T) {
	base := func() Spec { return namedSpec("a", "http://a:1") }
	for what, change := range map[string]func(*Spec){
		"url":    func(s *Spec) { s.URL = "http://a:2" },
		"pool":   func(s *Spec) { s.Pool = "q" },
		"engine": func(s *Spec) { s.Engine = "vllm" },
		"model":  func(s *Spec) { s.Model = "m" },
		"name":   func(s *Spec) { s.Name = "b" },
	} {
		fleet := fakeFleet(Options{})
		fleet.Sync([]Spec{base()})
		old := fleet.Get("a")
		old.update(func(s *Status) { s.Up = false })
		changed := base()
		change(&changed)
		diff := syncAndCompare(fleet, []Spec{changed})
		if !slices.Equal(diff.Removed, []*Worker{old}) || len(diff.Added) != 1 || diff.Added[0] == old || diff.Kept != nil {
			t.Errorf("%s: %+v", what, diff)
		}
		if !diff.Added[0].Status().Up {
			t.Errorf("%s: the new worker has the old one's status", what)
		}
		if senderOf(old).closed != 1 {
			t.Errorf("%s: the old worker's connections were not closed", what)
		}
	}
}

// After any sequence of Syncs, the fleet has the workers of the last one, and only removed workers are
// closed.
func TestSyncReplacesTheFleetsWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := fakeFleet(Options{})
		present := map[*Worker]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "syncs") {
			names := rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 6, rapid.ID[int]).Draw(t, "names")
			var specs []Spec
			for _, n := range names {
				specs = append(specs,
					namedSpec(fmt.Sprint("w", n), fmt.Sprintf("http://h:%d", rapid.IntRange(1, 2).Draw(t, "port"))))
			}
			diff := syncAndCompare(fleet, specs)
			for _, w := range diff.Removed {
				if !present[w] || senderOf(w).closed != 1 {
					t.Fatalf("removed %v, which was not there or is not closed", w)
				}
				delete(present, w)
			}
			for _, w := range diff.Kept {
				if !present[w] || senderOf(w).closed != 0 {
					t.Fatalf("kept %v, which was not there or is closed", w)
				}
			}
			for _, w := range diff.Added {
				present[w] = true
			}
			now := fleet.Workers()
			if len(now) != len(specs) || len(present) != len(specs) {
				t.Fatalf("%d workers, %d by the diffs; want %d", len(now), len(present), len(specs))
			}
			for i, w := range now {
				if !present[w] || w.Name() != specs[i].Name || w.Spec().URL != specs[i].URL || fleet.Get(specs[i].Name) != w {
					t.Fatalf("worker %d is %v", i, w)
				}
			}
		}
	})
}

func TestExchangeOfARemovedWorkerCompletes(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		release := make(chan struct{})
		engine := loopback.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
			<-release
			_, _ = io.WriteString(w, "last")
		}))
		fleet := NewFleet(Options{Dial: loopback.Dial})
		if scheme == "https" {
			engine.StartTLS()
			fleet.options.send = func(s Spec) Sender {
				send := newSender(s, loopback.Dial, slog.New(slog.DiscardHandler)).(addressed).Sender.(*standard)
				kept := send.current.Load().kept
				kept.TLSClientConfig.RootCAs = engine.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
				return send
			}
		} else {
			engine.Start()
		}
		fleet.Sync([]Spec{namedSpec("a", engine.URL)})
		answer, err := fleet.Get("a").Send(t.Context(), postRequest("/v1/chat/completions", "x"))
		if err != nil {
			t.Fatal(err)
		}
		fleet.Close()
		if len(fleet.Workers()) != 0 {
			t.Error("workers are left after Close")
		}
		close(release)
		if got := readAll(t, answer, nil); got != "first last" {
			t.Errorf("%s: got %q", scheme, got)
		}
		engine.Close()
	}
}

func TestRunChecksLaterWorkersAndLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	engine := loopback.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	results := make(chan string, 16)
	fleet := NewFleet(Options{Dial: loopback.Dial,
		OnStatus: func(w *Worker, s Status) { results <- fmt.Sprint(w.Name(), " ", s.Up) }})
	fleet.Sync([]Spec{namedSpec("a", engine.URL)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fleet.Run(ctx)
	}()
	if got := <-results; got != "a true" {
		t.Errorf("first result %q", got)
	}
	fleet.Sync([]Spec{namedSpec("a", engine.URL), namedSpec("b", engine.URL+"/v1")})
	if got := <-results; got != "b true" {
		t.Errorf("second result %q", got)
	}
	fleet.Sync([]Spec{namedSpec("b", engine.URL+"/v1")})
	cancel()
	<-ended
	fleet.Close()
	engine.Close()
	goleak.VerifyNone(t, before)
}

func TestRemovedWorkerIsNeverReportedNorChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		var removed atomic.Bool
		fake := &fakeSender{answer: engine.answer}
		fleet := NewFleet(Options{Rand: noJitter, OnStatus: func(*Worker, Status) {
			if removed.Load() {
				t.Error("a removed worker was reported")
			}
		}, send: func(Spec) Sender { return fake }})
		fleet.Sync([]Spec{namedSpec("a", "http://a:1")})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		synctest.Wait()
		w := fleet.Get("a")
		fleet.Sync(nil)
		removed.Store(true)
		w.update(func(s *Status) { s.Up = false })
		w.reportTo(fleet.options.OnStatus)
		sent := len(fake.paths())
		advanceTime(time.Hour)
		if len(fake.paths()) != sent {
			t.Error("a removed worker was checked")
		}
		cancel()
		run.Wait()
	})
}

// A check that ends with the gateway is not a failed check.
func TestEndOfRunIsNotAFailedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeSender{answer: (&scriptedHealth{hang: true}).answer}
		fleet := NewFleet(Options{OnStatus: func(_ *Worker, s Status) { t.Errorf("reported %+v", s) },
			send: func(Spec) Sender { return fake }})
		fleet.Sync([]Spec{namedSpec("a", "http://a:1")})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		synctest.Wait()
		cancel()
		run.Wait()
		if s := fleet.Get("a").Status(); !s.Up || s.LastError != "" {
			t.Errorf("%+v", s)
		}
	})
}

func TestReportsOfAWorkerDoNotOverlap(t *testing.T) {
	var inside atomic.Int32
	engine := loopback.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_waiting 1\n")
	}))
	t.Cleanup(engine.Close)
	enough := make(chan struct{})
	var calls atomic.Int32
	fleet := NewFleet(Options{Dial: loopback.Dial, OnStatus: func(*Worker, Status) {
		if inside.Add(1) != 1 {
			t.Error("two reports of one worker at once")
		}
		if calls.Add(1) == 20 {
			close(enough)
		}
		inside.Add(-1)
	}})
	spec := namedSpec("a", engine.URL)
	spec.Health = &Health{Interval: time.Millisecond}
	fleet.Sync([]Spec{spec})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { fleet.Run(ctx) })
	for waiting := true; waiting; {
		fleet.Get("a").Suspect()
		fleet.Sync([]Spec{spec})
		select {
		case <-enough:
			waiting = false
		default:
		}
	}
	cancel()
	run.Wait()
	fleet.Close()
}

// Requests over every kind of URL have the worker's key and base path.
func TestEveryKindOfURLReachesItsEngine(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Accept-Encoding"))
	})
	overTCP := loopback.NewServer(handler)
	t.Cleanup(overTCP.Close)
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	overUnix := loopback.NewUnstartedServer(handler)
	_ = overUnix.Listener.Close()
	overUnix.Listener = listener
	overUnix.Start()
	t.Cleanup(overUnix.Close)
	for url, want := range map[string]string{
		overTCP.URL + "/v1":              "/v1/models Bearer " + canary + " identity",
		overTCP.URL + "/api":             "/api/v1/models Bearer " + canary + " identity",
		"unix://" + socket:               "/v1/models Bearer " + canary + " identity",
		"unix://" + socket + ":/base/v1": "/base/v1/models Bearer " + canary + " identity",
	} {
		fleet := NewFleet(Options{Dial: loopback.Dial})
		fleet.Sync([]Spec{keyedSpec(url)})
		answer, err := fleet.Get("small-0").Send(t.Context(), &http1.Request{Method: http.MethodGet, Path: "/v1/models"})
		if got := readAll(t, answer, err); got != want {
			t.Errorf("%s: the engine received %q; want %q", url, got, want)
		}
		fleet.Close()
	}
}
