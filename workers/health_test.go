package workers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/http1"
)

// reports records the calls of OnStatus.
type reports struct {
	mu  sync.Mutex
	all []Status
}

func (r *reports) add(_ *Worker, s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

func (r *reports) last() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[len(r.all)-1]
}

func (r *reports) ups() (ups []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		ups = append(ups, s.Up)
	}
	return ups
}

// scriptedHealth is an engine in memory with a status for each path, else 404.
type scriptedHealth struct {
	mu      sync.Mutex
	status  map[string]int // 0: no connection
	body    map[string]string
	hang    bool
	delay   time.Duration // of each answer
	started []time.Time   // times of the requests for /health
}

func (s *scriptedHealth) set(path string, status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == nil {
		s.status, s.body = map[string]int{}, map[string]string{}
	}
	s.status[path], s.body[path] = status, body
}

func (s *scriptedHealth) answer(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	s.mu.Lock()
	status, known := s.status[r.Path]
	body, hang, delay := s.body[r.Path], s.hang, s.delay
	if r.Path == pathHealth {
		s.started = append(s.started, time.Now())
	}
	s.mu.Unlock()
	<-time.After(delay)
	switch {
	case hang:
		<-ctx.Done()
		return nil, &http1.SendError{Phase: http1.PhaseAwait, Err: ctx.Err()}
	case known && status == 0:
		return nil, &http1.SendError{Phase: http1.PhaseConnect, Err: errors.New("connection refused")}
	case !known:
		status = http.StatusNotFound
	}
	return newAnswer(status, body), nil
}

// checks returns the times of all requests for /health.
func (s *scriptedHealth) checks() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.started)
}

// noJitter is a source of random numbers for which jittered changes nothing.
func noJitter() uint64 { return 1 << 63 }

// checkWorker runs the checks of one worker within a synctest bubble.
func checkWorker(t *testing.T, health Health, engine *scriptedHealth) (*Worker, *fakeSender, *reports, *bytes.Buffer) {
	t.Helper()
	fake, reported, log := &fakeSender{answer: engine.answer}, new(reports), new(bytes.Buffer)
	fleet := NewFleet(Options{
		Log: slog.New(slog.NewTextHandler(log, nil)), OnStatus: reported.add, Rand: noJitter,
		send: func(Spec) Sender { return fake },
	})
	fleet.Sync([]Spec{{Config: Config{Name: "w", URL: "http://h:1/v1", Health: &health, APIKeyEnv: "W_KEY"}, Pool: "p",
		Key: canary}})
	t.Cleanup(func() { // after the fleet has ended
		if strings.Contains(log.String(), canary) {
			t.Errorf("the log contains the key: %s", log)
		}
	})
	runFleet(t, fleet)
	return fleet.Get("w"), fake, reported, log
}

// advanceTime sleeps for d and waits until all goroutines are idle.
func advanceTime(d time.Duration) {
	<-time.After(d) // virtual: within a synctest bubble
	synctest.Wait()
}

func TestStateChangesAfterDownAfterFailuresAndUpAfterPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		w, _, reported, log := checkWorker(t, Health{Interval: 10 * time.Second, DownAfter: 3, UpAfter: 2}, engine)
		if s := w.Status(); !s.Up || s.Since.IsZero() || s.Health != pathHealth {
			t.Fatalf("after the first check: %+v", s)
		}
		engine.set(pathHealth, 0, "")
		for failed := 1; failed <= 4; failed++ {
			advanceTime(10 * time.Second)
			if s := w.Status(); s.Up != (failed < 3) || s.ConsecutiveFailures != failed ||
				!strings.Contains(s.LastError, "refused") {
				t.Errorf("after %d failures: %+v", failed, s)
			}
		}
		down := w.Status().Since
		engine.set(pathHealth, 204, "")
		for passed := 1; passed <= 3; passed++ {
			advanceTime(10 * time.Second)
			if s := w.Status(); s.Up != (passed >= 2) || s.ConsecutiveFailures != 0 || s.Up != (s.LastError == "") {
				t.Errorf("after %d passed checks: %+v", passed, s)
			}
		}
		if got := reported.ups(); !slices.Equal(got, []bool{true, false, true}) {
			t.Errorf("reported %v; want up, down, up", got)
		}
		if since := w.Status().Since; since.Sub(down) != 30*time.Second {
			t.Errorf("up %v after it went down; want 30s", since.Sub(down))
		}
		if lines := strings.Count(log.String(), "\n"); lines != 3 {
			t.Errorf("%d log lines for three changes:\n%s", lines, log)
		}
	})
}

func TestFirstFailedCheckMarksDownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 503, "loading")
		w, _, reported, log := checkWorker(t, Health{Interval: time.Minute, DownAfter: 5, UpAfter: 1}, engine)
		if s := w.Status(); s.Up || !strings.Contains(s.LastError, "503") || s.Health != "" {
			t.Errorf("%+v", s)
		}
		engine.set(pathHealth, 200, "")
		advanceTime(time.Minute)
		if got := reported.ups(); !slices.Equal(got, []bool{false, true}) {
			t.Errorf("reported %v; want down, up", got)
		}
		if !strings.Contains(log.String(), "worker is down") || !strings.Contains(log.String(), "503") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestEachCauseOfAWorkerThatIsDownIsLoggedOnce: the first cause may be another one than the lasting one. Each kind of
// cause is logged once, however often it occurs.
func TestEachCauseOfAWorkerThatIsDownIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{hang: true}
		_, _, _, log := checkWorker(t, Health{Path: pathHealth, Interval: time.Second, Timeout: 100 * time.Millisecond,
			DownAfter: 1, UpAfter: 1}, engine)
		lines := func(state string, want int, cause string) {
			t.Helper()
			if n := strings.Count(log.String(), "\n"); n != want || !strings.Contains(log.String(), cause) {
				t.Errorf("%s: %d lines, want %d:\n%s", state, n, want, log)
			}
		}
		set := func(hang bool, status int) {
			engine.mu.Lock()
			engine.hang = hang
			engine.mu.Unlock()
			engine.set(pathHealth, status, "")
			advanceTime(5 * time.Second)
		}
		advanceTime(5 * time.Second)
		lines("a hang", 1, "within the health timeout")
		for range 3 {
			set(false, http.StatusLoopDetected)
			lines("a loop", 2, "the url leads back to this gateway")
			set(true, 0)
			lines("another hang", 2, "")
		}
		set(false, 0)
		lines("no connection", 3, "connection refused")
		set(false, http.StatusOK)
		lines("up", 4, "worker is up")
		set(false, http.StatusLoopDetected)
		lines("down again", 5, "")
	})
}

// TestTallyAgreesWithItsDefinition: the tally agrees with the description in config.yaml for every sequence of results.
func TestTallyAgreesWithItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tally := tally{downAfter: rapid.IntRange(1, 5).Draw(t, "down_after"),
			upAfter: rapid.IntRange(1, 5).Draw(t, "up_after"), up: true}
		results := rapid.SliceOfN(rapid.Bool(), 1, 60).Draw(t, "results")
		up := results[0]
		lastRun := func(i int, ok bool) (n int) {
			for ; i >= 0 && results[i] == ok; i-- {
				n++
			}
			return n
		}
		for i, ok := range results {
			was := up
			if i > 0 {
				if up && lastRun(i, false) >= tally.downAfter {
					up = false
				} else if !up && lastRun(i, true) >= tally.upAfter {
					up = true
				}
			}
			changed := tally.addResult(ok)
			if tally.up != up || changed != (i == 0 || was != up) || tally.failures != lastRun(i, false) {
				t.Fatalf("after %v: up %t, changed %t, failures %d; want up %t", results[:i+1], tally.up, changed, tally.failures,
					up)
			}
		}
	})
}

func TestAutoFindsTheHealthPath(t *testing.T) {
	for name, c := range map[string]struct {
		health, models, other int
		path                  string
		up                    bool
	}{
		"vLLM, llama.cpp":               {health: 200, models: 200, path: pathHealth, up: true},
		"Ollama":                        {health: 404, models: 200, path: pathModels, up: true},
		"wrong method":                  {health: 405, models: 200, path: pathModels, up: true},
		"not implemented":               {health: 501, models: 200, path: pathModels, up: true},
		"hosted, 401 for unknown paths": {health: 401, models: 200, path: pathModels, up: true},
		"hosted, wrong key":             {health: 404, models: 401},
		"hosted, wrong key on both":     {health: 403, models: 403},
		"neither":                       {health: 404, models: 404},
		"loading, models answer":        {health: 503, models: 200},
		"broken, models answer":         {health: 500, models: 200},
		"redirects, models answer":      {health: 302, models: 200},
		"models redirect":               {health: 404, models: 307},
	} {
		synctest.Test(t, func(t *testing.T) {
			engine := new(scriptedHealth)
			engine.set(pathHealth, c.health, "")
			engine.set(pathModels, c.models, "")
			w, _, _, _ := checkWorker(t, Health{}, engine)
			s := w.Status()
			if s.Up != c.up || s.Health != c.path || (s.LastError == "") != c.up {
				t.Errorf("%s: %+v", name, s)
			}
			if strings.Contains(name, "key") && !strings.Contains(s.LastError, "api_key_env (W_KEY)") {
				t.Errorf("%s: %q does not name the variable of the key", name, s.LastError)
			}
			if strings.Contains(name, "redirect") && !strings.Contains(s.LastError, "redirects are not followed") {
				t.Errorf("%s: %q", name, s.LastError)
			}
		})
	}
}

func TestFoundPathIsKeptUntilItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathModels, 200, `{"data":[{"id":"a","owned_by":"library"},{"id":"b"}]}`)
		w, fake, _, _ := checkWorker(t, Health{Interval: time.Second, DownAfter: 2}, engine)
		advanceTime(3 * time.Second)
		if fake.count(pathHealth) != 1 || fake.count(pathModels) != 4 {
			t.Errorf("sent %v; want /health once and /v1/models 4 times", fake.paths())
		}
		if s := w.Status(); s.Engine != "ollama" || !slices.Equal(s.Models, []string{"a", "b"}) {
			t.Errorf("%+v", s)
		}
		// Another engine with only /health takes the address.
		engine.set(pathModels, 404, "")
		engine.set(pathHealth, 200, "")
		advanceTime(2 * time.Second)
		if s := w.Status(); !s.Up || s.Health != pathHealth || s.ConsecutiveFailures != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestExplicitPathIsTheOnlyOneChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		w, fake, _, _ := checkWorker(t, Health{Path: "/ping"}, engine)
		if s := w.Status(); s.Up || s.Health != "/ping" || !slices.Equal(fake.paths(), []string{"/ping"}) {
			t.Errorf("sent %v: %+v", fake.paths(), s)
		}
	})
}

func TestHealthOffSendsNoChecksAndReportsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, fake, reported, _ := checkWorker(t, Health{Path: "off"}, new(scriptedHealth))
		w.Suspect()
		advanceTime(time.Hour)
		if s := w.Status(); !s.Up || len(fake.paths()) != 0 || !slices.Equal(reported.ups(), []bool{true}) {
			t.Errorf("sent %v, reported %v: %+v", fake.paths(), reported.ups(), s)
		}
	})
}

func TestHangingWorkerGoesDownByItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{hang: true}
		w, _, _, _ := checkWorker(t, Health{Interval: 10 * time.Second, Timeout: 3 * time.Second}, engine)
		advanceTime(3*time.Second - 1)
		if s := w.Status(); !s.Up || !s.CheckedAt.IsZero() {
			t.Errorf("a result before the timeout: %+v", s)
		}
		advanceTime(1)
		if s := w.Status(); s.Up || !strings.Contains(s.LastError, "timeout of 3s") {
			t.Errorf("%+v", s)
		}
	})
}

func TestChecksKeepTheirIntervalWithinATenth(t *testing.T) {
	for random, want := range map[uint64]time.Duration{0: 9 * time.Second, 1 << 63: 10 * time.Second} {
		if got := jittered(10*time.Second, random); got != want {
			t.Errorf("jittered(10s, %d) = %v; want %v", random, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := jittered(10*time.Second, rapid.Uint64().Draw(t, "random"))
		if got < 9*time.Second || got > 11*time.Second {
			t.Fatalf("jittered to %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		checkWorker(t, Health{Interval: 10 * time.Second}, engine)
		advanceTime(35 * time.Second)
		started := engine.checks()
		for i, at := range started {
			if at.Sub(started[0]) != time.Duration(i)*10*time.Second {
				t.Errorf("check %d began %v after the first", i, at.Sub(started[0]))
			}
		}
		if len(started) != 4 {
			t.Errorf("%d checks in 35s; want 4", len(started))
		}
	})
}

func TestSuspectedWorkerIsCheckedAtOnceButOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		w, _, _, _ := checkWorker(t, Health{Interval: time.Minute, DownAfter: 3}, engine)
		advanceTime(20 * time.Second)
		engine.set(pathHealth, 0, "")
		start := time.Now()
		for range 50 { // many failed connects within 2.5 s
			for range 20 {
				w.Suspect()
			}
			advanceTime(50 * time.Millisecond)
		}
		advanceTime(5 * time.Second)
		var after []time.Duration
		for _, at := range engine.checks()[1:] {
			after = append(after, at.Sub(start))
		}
		want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}
		if !slices.Equal(after, want) {
			t.Errorf("checked %v after the first suspicion; want %v", after, want)
		}
		if s := w.Status(); s.Up || s.Since.Sub(start) != 2*time.Second {
			t.Errorf("%+v", s)
		}
		// The next interval begins at the last check.
		advanceTime(time.Minute)
		if last := slices.MaxFunc(engine.checks(), time.Time.Compare).Sub(start); last != 63*time.Second {
			t.Errorf("the next check came at %v; want 63s", last)
		}
	})
}

// TestSuspectedWorkerIsCheckedAfterTheCheckThatRuns: the result of the requested check is reported
// although nothing has changed, and checks never overlap.
func TestSuspectedWorkerIsCheckedAfterTheCheckThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{delay: 3 * time.Second}
		engine.set(pathHealth, 200, "")
		w, fake, reported, _ := checkWorker(t, Health{Path: pathHealth, Interval: time.Minute}, engine)
		advanceTime(61 * time.Second) // the second check runs
		before := len(reported.ups())
		suspected := time.Now()
		for range 100 {
			w.Suspect()
		}
		advanceTime(4900 * time.Millisecond)
		if n := fake.count(pathHealth); n != 3 {
			t.Fatalf("sent %d checks, want the one that ran and one more", n)
		}
		if got := w.Status(); got.CheckedAt.After(suspected) || len(reported.ups()) != before {
			t.Fatalf("reported before the requested check has ended: %+v", got)
		}
		advanceTime(100 * time.Millisecond)
		started := engine.checks()
		if ended := started[1].Add(engine.delay); started[2].Before(ended) {
			t.Errorf("checks overlap: %v began before %v", started[2], ended)
		}
		if got := len(reported.ups()); got != before+1 || reported.last().CheckedAt != started[2] {
			t.Errorf("reported %d times: %+v", got-before, reported.last())
		}
		advanceTime(10 * time.Minute)
		if got := len(reported.ups()); got != before+1 {
			t.Errorf("%d later checks without a change were reported", got-before-1)
		}
	})
}

// The gateway lacks file descriptors, which is no fault of the worker.
func TestCheckWithoutADescriptorDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{}
		engine.set(pathHealth, 200, "")
		var mu sync.Mutex
		exhausted := false
		fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender {
			return &fakeSender{answer: func(ctx context.Context, r *http1.Request) (*http1.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if exhausted {
					return nil, &http1.SendError{Phase: http1.PhaseConnect, Err: syscall.EMFILE}
				}
				return engine.answer(ctx, r)
			}}
		}})
		fleet.Sync([]Spec{{Config: Config{Name: "w0", URL: "http://w0:1"}, Pool: "small"}})
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		time.Sleep(time.Second)
		synctest.Wait()
		before := fleet.Get("w0").Status()
		mu.Lock()
		exhausted = true
		mu.Unlock()
		time.Sleep(10 * DefaultHealth().Interval)
		synctest.Wait()
		if after := fleet.Get("w0").Status(); !after.Up || after.Failed != 0 || after.Passed != before.Passed {
			t.Errorf("the status is %+v, was %+v", after, before)
		}
		stop()
		run.Wait()
	})
}

// A check that returns to its own gateway is rejected with 508, as requests are.
func TestWorkerThatIsThisGatewayIsDownWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen [][]string
		fleet := NewFleet(Options{Rand: noJitter, Via: "1.1 tierway-x", send: func(Spec) Sender {
			return &fakeSender{answer: func(_ context.Context, r *http1.Request) (*http1.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r.Header["Via"])
				return &http1.Response{Status: 508, Body: http.NoBody}, nil
			}}
		}})
		fleet.Sync([]Spec{{Config: Config{Name: "w0", URL: "http://w0:1"}, Pool: "small"}})
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		time.Sleep(time.Second)
		synctest.Wait()
		if st := fleet.Get("w0").Status(); st.Up || !strings.Contains(st.LastError, "leads back to this gateway") {
			t.Errorf("the status is %+v", st)
		}
		if len(seen) != 1 || !slices.Equal(seen[0], []string{"1.1 tierway-x"}) {
			t.Errorf("the checks had the Via headers %q", seen)
		}
		stop()
		run.Wait()
	})
}

// TestRoundTripFollowsTheFastestAnswers: a lower time counts at once, one slow answer hardly, and failed checks not
// at all.
func TestRoundTripFollowsTheFastestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{}
		engine.set("/health", http.StatusOK, "")
		w, _, _, _ := checkWorker(t, Health{Path: "/health", Interval: 5 * time.Second, Timeout: 4 * time.Second}, engine)
		for _, step := range []struct {
			delay, least, most time.Duration
			checks             int
			status             int
		}{
			{80 * time.Millisecond, 80 * time.Millisecond, 80 * time.Millisecond, 1, http.StatusOK},
			{30 * time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond, 1, http.StatusOK},
			{190 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond, 1, http.StatusOK},
			{time.Second, 40 * time.Millisecond, 40 * time.Millisecond, 3, 0},
			{200 * time.Millisecond, 180 * time.Millisecond, 200 * time.Millisecond, 40, http.StatusOK},
		} {
			engine.set("/health", step.status, "")
			engine.mu.Lock()
			engine.delay = step.delay
			engine.mu.Unlock()
			advanceTime(time.Duration(step.checks) * 6 * time.Second)
			if got := w.Status().RoundTrip; got < step.least || got > step.most {
				t.Errorf("after answers in %v the round trip is %v, not %v to %v", step.delay, got, step.least, step.most)
			}
		}
	})
}
