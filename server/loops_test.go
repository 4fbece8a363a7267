package server

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tierway/breaker"
	"tierway/engines/chaos"
)

// loopRig serves a tier of workers that lead back to the gateway, and others. returned counts the
// requests that came back.
func loopRig(t *testing.T, workers int, others ...http.Handler) (r *rig, returned *atomic.Int64) {
	t.Helper()
	returned = new(atomic.Int64)
	to := new(atomic.Pointer[url.URL])
	back := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		returned.Add(1)
		p := httputil.NewSingleHostReverseProxy(to.Load())
		p.Transport = networkOf(t).transport
		p.ServeHTTP(w, q)
	})
	yaml := strings.Replace(plain, "auth:", "policy: { name: round_robin }\nauth:", 1)
	r = newRig(t, yaml, append(slices.Repeat([]http.Handler{back}, workers), others...)...)
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	to.Store(u)
	return r, returned
}

// TestALoopIsRejected: all workers lead back to the gateway. Each is tried once, and the answer tells
// the client not to retry.
func TestALoopIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, came := loopRig(t, 2)
		for path, body := range map[string]string{"/v1/chat/completions": hello, "/v1/messages": hello,
			"/v1/responses": `{"model":"small","input":"x","store":false}`} {
			came.Store(0)
			a := r.post(path, body)
			if a.status != 508 || !strings.Contains(a.body, "leads to a gateway") || a.header.Get("X-Should-Retry") != "false" ||
				came.Load() != 2 {
				t.Errorf("%s: %d %s after %d requests came back", path, a.status, a.body, came.Load())
			}
		}
	})
}

// TestALoopIsRetriedOnAnotherWorker: one of two workers leads back to the gateway.
func TestALoopIsRetriedOnAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, came := loopRig(t, 1, fakeEngine())
		for range 3 { // the retry budget of an idle gateway
			if a := r.post("/v1/chat/completions", hello); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if came.Load() == 0 {
			t.Error("no request came back")
		}
	})
}

// TestGatewaysCanBeChained up to a limit. Each adds itself to Via.
func TestGatewaysCanBeChained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := chaos.Record(fakeEngine())
		r := newRig(t, plain, engine)
		for n := range 5 + 2 {
			var via []string
			for i := range n {
				via = append(via, fmt.Sprintf("1.1 tierway-%d", i))
			}
			a := r.post("/v1/chat/completions", hello, "Via", "1.1 proxy.example, "+strings.Join(via, ", "))
			if want := map[bool]int{true: 200, false: 508}[n < 5]; a.status != want {
				t.Fatalf("behind %d gateways: %d %s", n, a.status, a.body)
			}
			if n >= 5 {
				if _, code, _ := errorOf(t, a); code != "loop_detected" {
					t.Errorf("the code is %s", code)
				}
				continue
			}
			seen := engine.Requests()[n].Header["Via"]
			if want := append(via, "1.1 "+r.name); cmp.Diff(want, seen) != "" {
				t.Errorf("behind %d gateways the engine sees %q, want %q", n, seen, want)
			}
		}
		if a := r.do("GET", "/v1/models", "", "Via", "1.1 "+r.name); a.status != 508 {
			t.Errorf("a list of models that comes back: %d %s", a.status, a.body)
		}
	})
}

// TestAForgedViaOpensNoBreaker of a worker that is a gateway: the client may have caused the 508.
// Another worker is tried all the same.
func TestAForgedViaOpensNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := fakeEngine()
		var rejected atomic.Int64
		next := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if strings.Count(strings.Join(q.Header["Via"], ","), "tierway-") >= 5 {
				rejected.Add(1)
				w.WriteHeader(http.StatusLoopDetected)
				return
			}
			engine.ServeHTTP(w, q)
		})
		r := newRig(t, twoTenantsYAML, next, next)
		for i := range 30 {
			if a := r.post("/v1/chat/completions", chatBody("fake-7b", fmt.Sprint("Hi ", i), ""), "Authorization",
				[]string{allKey, fewKey}[i%2],
				"Via", "1.1 tierway-a, 1.1 tierway-b, 1.1 tierway-c, 1.1 tierway-d"); a.status != http.StatusLoopDetected {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if rejected.Load() <= 30 {
			t.Error("no request was tried on another worker")
		}
		for _, name := range []string{"w0", "w1"} {
			if st := r.stateOf(name); st != breaker.Closed {
				t.Errorf("%s is %v", name, st)
			}
		}
	})
}
