package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"tierway/decisions"
)

// counter reads a counter without labels from the metrics.
func (r *rig) counter(name string) int {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				r.t.Fatal(err)
			}
			return n
		}
	}
	r.t.Fatalf("there is no metric %s", name)
	return 0
}

func TestARecoveredPanicIsCountedAndLoggedWithoutItsValue(t *testing.T) {
	r := newRig(t, plain, fakeEngine())
	log := &lines{}
	r.log = slog.New(slog.NewJSONHandler(log, nil))
	err := r.runRecovered("reading an answer", func() error { panic("a prompt") })
	if !errors.Is(err, errPanicked) || r.counter("tierway_panics_total") != 1 {
		t.Errorf("%v, %d panics counted", err, r.counter("tierway_panics_total"))
	}
	line := log.String()
	for _, want := range []string{`"msg":"recovered from a panic"`, `"work":"reading an answer"`, `panics_test.go`} {
		if !strings.Contains(line, want) {
			t.Errorf("the line has no %s: %s", want, line)
		}
	}
	if strings.Contains(line, "a prompt") || strings.Count(line, "\n") != 1 {
		t.Errorf("the log is %s", line)
	}
	if err := r.runRecovered("reading an answer", func() error { return io.EOF }); err != io.EOF {
		t.Errorf("a step's own error is %v", err)
	}
}

func TestAPanicOnTheAdminPlaneIsAProblemAndCounted(t *testing.T) {
	r := adminRigOf(newRig(t, plain, fakeEngine()))
	r.plane.engine.GET("/broken", func(*gin.Context) { panic("a key") })
	w := httptest.NewRecorder()
	r.plane.engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/broken", nil))
	if w.Code != 500 || w.Header().Get("Content-Type") != "application/problem+json" || strings.Contains(w.Body.String(), "a key") || r.counter("tierway_panics_total") != 1 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestAPanicWhileTheDatabaseIsReadDoesNotEndItsFollower has a fault of the program
// in each reading.
func TestAPanicWhileTheDatabaseIsReadDoesNotEndItsFollower(t *testing.T) {
	r := newRig(t, strings.Replace(plain, "auth:", "store: { sql: \"sqlite://:memory:\" }\nauth:", 1), fakeEngine())
	r.local = nil
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { r.followDatabase(ctx) })
	for n := range 2 {
		r.lookSoon()
		for deadline := time.Now().Add(10 * time.Second); r.counter("tierway_panics_total") <= n; {
			if time.Now().After(deadline) {
				t.Fatalf("the reading after %d panics never came", n)
			}
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	run.Wait()
	r.applying.Lock() // it is free: else this hangs
	defer r.applying.Unlock()
}

// TestAPanicWhileARequestIsRecordedGivesEverythingBack: the tenant's only slot is
// free for the next request.
func TestAPanicWhileARequestIsRecordedGivesEverythingBack(t *testing.T) {
	r := limitedRig(t, "limits: { concurrent: 1 }", fakeEngine(), bigEngine())
	r.Server.access = &decisions.AccessLog{} // a fault of the program where the request's record goes
	for range 2 {
		if a := r.ask("small"); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := r.counter("tierway_panics_total"); n != 2 {
		t.Errorf("%d panics", n)
	}
}

// A panic after the client has content cuts the connection, so that the client does
// not take the answer for whole.
func TestAPanicWithinAStreamCutsItAndGivesEverythingBack(t *testing.T) {
	r := newRig(t, plain, fakeEngine())
	for _, m := range r.snapshot.Load().byName["small"].members {
		m.series.Prompt = nil // a fault of the program where usage is counted
	}
	a := r.post("/v1/chat/completions", strings.Replace(hello, "{", `{"stream":true,`, 1))
	if a.status != 200 || a.err == nil || r.counter("tierway_panics_total") != 1 {
		t.Errorf("%d %q, %v, %d panics", a.status, a.body, a.err, r.counter("tierway_panics_total"))
	}
}
