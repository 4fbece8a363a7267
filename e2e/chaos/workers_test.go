package chaos

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// wholeAnswer is a chat answer that is not a stream.
const wholeAnswer = `{"id":"x","object":"chat.completion","model":"sim","choices":[{"index":0,"finish_reason":"stop",` +
	`"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// oneTier returns the setting tiers with one tier of workers w0, w1, … at the URLs.
func oneTier(urls ...string) string {
	var list []string
	for i, url := range urls {
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q }", i, url))
	}
	return "[ { name: small, model: sim, workers: [ " + strings.Join(list, ", ") + " ] } ]"
}

// TestLargeResponseHeadersOnKeptConnections: every response of the worker, also to health checks,
// has 5 KB of headers.
func TestLargeResponseHeadersOnKeptConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		w := rig.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("X-Big", strings.Repeat("y", 5000))
			if q.URL.Path == "/health" {
				checks.Add(1)
				return
			}
			_, _ = io.Copy(io.Discard, q.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, wholeAnswer)
		}))
		r := newRig(t, 0,
			rig.Settings{"tiers": oneTier(w.URL), "health": `{ path: /health, interval: 2s, timeout: 2s, down_after: 10 }`},
			engines.Config{})
		for range 3 {
			if got := r.post(chat.path, chat.body); got.Status != 200 || got.Body != wholeAnswer {
				t.Errorf("%d %s", got.Status, got.Body)
			}
		}
		rig.Eventually(t, func() error {
			if !r.Alive() {
				return nil // the check below fails
			}
			if checks.Load() < 4 {
				return errors.New("the checks have stopped")
			}
			return nil
		})
		if !r.Alive() {
			t.Error("the gateway has crashed")
		}
	})
}

// TestQueriesOfAnyBytesReachWorkers: a query with bytes that a request line must not contain is
// escaped and served, and it ejects no worker.
func TestQueriesOfAnyBytesReachWorkers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil, engines.Config{})
		for range 20 {
			c := r.dial()
			c.send(fmt.Sprintf("POST /v1/chat/completions?q=\xc3\xa9\xff HTTP/1.1\r\nHost: gateway\r\nContent-Type: "+
				"application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(chat.body), chat.body))
			if got := c.answer(); got.Status != http.StatusOK {
				t.Errorf("with such a query: %d %s", got.Status, got.Body)
			}
			if got := r.post(chat.path, chat.body); got.Status != http.StatusOK {
				t.Errorf("another client: %d %s", got.Status, got.Body)
			}
		}
		for _, w := range r.Workers {
			for _, seen := range w.Recorder.Requests() {
				if _, q, found := strings.Cut(seen.URL, "?"); found && q != "q=%C3%A9%FF" {
					t.Errorf("%s got the query %q", w.Name, q)
				}
			}
		}
		m, err := r.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		if n := m.Sum("tierway_worker_breaker"); n != 0 {
			t.Errorf("breakers stand at %v in all", n)
		}
	})
}

// TestQueriesOverHTTP2ReachWorkers: over HTTP/2 a query may contain a space.
func TestQueriesOverHTTP2ReachWorkers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		a.issue(t, 1)
		r := newRig(t, 1, rig.Settings{"tls": a.section()}, engines.Config{})
		r.Client = rig.NewHTTP2Client(t)
		req := r.Request(t.Context(), http.MethodPost, chat.path, chat.body)
		req.URL.Scheme, req.URL.Opaque = "https", "//"+r.DataAddr+chat.path+"?q=a b"
		got, err := r.try(req)
		if err != nil || got.Status != http.StatusOK {
			t.Errorf("%d %s (%v)", got.Status, got.Body, err)
		}
	})
}

// TestWorkerThatIsTheGatewayItselfIsDetected: a chat causes at most two requests (508). With health
// checks, the worker is down.
func TestWorkerThatIsTheGatewayItselfIsDetected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for health, want := range map[string]struct {
			status int
			code   string
		}{
			`{ path: "off" }`: {http.StatusLoopDetected, "loop_detected"},
			`{ path: auto, interval: 10s, timeout: 10s }`: {http.StatusServiceUnavailable, "no_healthy_worker"},
		} {
			at := rig.Address(t)
			yaml := rig.Settings{"auth": `{ required: false }`, "health": health, "drain": `{ accept_grace: 1ms, timeout: 5s }`,
				"tiers": oneTier("http://" + at)}
			p := rig.WorldOf(t).StartAt(t, at, "127.0.0.1:0", yaml.String())
			r := rigOf(t, p)
			if want.code == "no_healthy_worker" {
				p.WaitFor("the worker to be down", func() bool {
					return strings.Contains(p.Log(), "the url leads back to this gateway")
				})
			}
			before, err := p.Metrics()
			if err != nil {
				t.Fatal(err)
			}
			checkError(t, health, r.post(chat.path, chat.body), want.status, want.code)
			after, err := p.Metrics()
			if err != nil {
				t.Fatal(err)
			}
			if n := after.Sum("tierway_requests_started_total") - before.Sum("tierway_requests_started_total"); n > 2 &&
				want.code == "loop_detected" {
				t.Errorf("one chat became %v requests", n)
			}
		}
	})
}
