package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// clientPause is the pause of a client between two requests. In virtual time answers take none, so that a client
// without a pause would never let time pass.
const clientPause = 20 * time.Millisecond

// stuck is a server with an engine that can hang. Its health check passes in every state.
type stuck struct {
	http.Handler

	mu      sync.Mutex
	hangs   bool   // generation requests get a head and no event
	metrics string // what GET /metrics returns; "": the engine's own
}

func (s *stuck) set(hangs bool, metrics string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs, s.metrics = hangs, metrics
}

func (s *stuck) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hangs, metrics := s.hangs, s.metrics
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/metrics" && metrics != "":
		io.WriteString(w, metrics) // the test fails without it
	case r.Method == http.MethodPost && hangs:
		io.Copy(io.Discard, r.Body) // whatever it is
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush() // the client may have left
		<-r.Context().Done()
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

// stuckRig returns a gateway in front of two workers. w0 can hang.
func stuckRig(t *testing.T) (*chaosRig, *stuck) {
	t.Helper()
	ws := []*rig.Worker{newEngine(t, "w0", engines.Config{}), newEngine(t, "w1", engines.Config{})}
	front := &stuck{Handler: ws[0].Handler}
	ws[0].Front = front
	ws[0].Listen()
	ws[1].Front = ws[1].Handler
	ws[1].Listen()
	r := newRig(t, 0, rig.Settings{
		"tiers":      tiers(ws),
		"admin":      `{ keys: [ { name: op, sha256: ` + rig.Digest("operator") + ` } ] }`,
		"breaker":    quickBreaker,
		"health":     `{ interval: 1s, timeout: 1s, down_after: 10 }`,
		"saturation": `{ stale_after: 1s }`,
	}, engines.Config{})
	r.Workers = ws
	return r, front
}

// stateOf returns the state of a worker in the admin API.
func (r *chaosRig) stateOf(name string) string {
	r.T.Helper()
	_, body := r.read("http://"+r.AdminAddr+"/admin/workers/"+name, "Authorization", "Bearer operator")
	for _, state := range []string{"up", "down", "asleep", "paused", "backoff", "open", "half_open"} {
		if strings.Contains(body, `"state":"`+state+`"`) {
			if state == "open" && strings.Contains(body, `"cause":"hung"`) {
				return "hung"
			}
			return state
		}
	}
	return body
}

// read GETs a URL of either plane.
func (r *chaosRig) read(url string, headers ...string) (status int, body string) {
	r.T.Helper()
	got, err := r.try(r.RequestTo(r.T.Context(), http.MethodGet, url, "", headers...))
	if err != nil {
		r.T.Fatal(err)
	}
	return got.Status, got.Body
}

// waitForState waits until the admin API reports a state of w0.
func (r *chaosRig) waitForState(state string) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.stateOf("w0"); got != state {
			return fmt.Errorf("w0 is %s, want %s", got, state)
		}
		return nil
	})
}

// countW0 sends n requests, which must all succeed, and returns how many of them w0 served.
func (r *chaosRig) countW0(n int) (w0 int) {
	r.T.Helper()
	for range n {
		got := r.post(chat.path, prompt(r.NextID(), true))
		if got.Status != http.StatusOK || !strings.Contains(got.Body, "[DONE]") {
			r.T.Fatalf("status %d: %s", got.Status, got.Body)
		}
		if got.Header.Get("X-Routed-To") == "w0" {
			w0++
		}
	}
	return w0
}

// TestHungEngineLosesItsRequestsToItsPeers sends streams to an engine that hangs, until the
// clients give up. The gateway detects the hang and sends the requests to the other worker.
func TestHungEngineLosesItsRequestsToItsPeers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, w0 := stuckRig(t)
		r.countW0(4)
		w0.set(true, "")
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for rig.Pause(ctx, clientPause) {
					impatient, cancel := context.WithTimeout(ctx, 4*time.Second)
					req := r.Request(impatient, http.MethodPost, chat.path, prompt(r.NextID(), true))
					if resp, err := r.Client.Do(req); err == nil {
						io.Copy(io.Discard, resp.Body) // the client may give up
						resp.Body.Close()
					}
					cancel()
				}
			})
		}
		r.waitForState("hung")
		stop()
		clients.Wait()
		w0.set(false, "")
		rig.Eventually(t, func() error {
			if r.countW0(4) == 0 {
				return fmt.Errorf("w0 gets no requests after it has recovered; its state is %s", r.stateOf("w0"))
			}
			return nil
		})
	})
}

// TestEngineWithFrozenCountersIsEjected: by vLLM's metrics, requests run but no counter
// increases.
func TestEngineWithFrozenCountersIsEjected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, w0 := stuckRig(t)
		frozen := "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc " +
			"0.4\nvllm:generation_tokens_total 500\n"
		w0.set(true, frozen)
		r.waitForState("hung")
		if n := r.countW0(6); n != 0 {
			t.Errorf("a hung engine answered %d requests", n)
		}
		w0.set(false, strings.Replace(frozen, "500", "501", 1))
		rig.Eventually(t, func() error {
			if r.countW0(4) == 0 {
				return fmt.Errorf("w0 gets no requests after its counters moved; it is %s", r.stateOf("w0"))
			}
			return nil
		})
	})
}

// TestSleepingEngineGetsNoRequests: the gateway reads vLLM's sleep state.
func TestSleepingEngineGetsNoRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, w0 := stuckRig(t)
		state := "vllm:num_requests_running 0\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d\n"
		w0.set(true, fmt.Sprintf(state, 0))
		r.waitForState("asleep")
		if n := r.countW0(6); n != 0 {
			t.Errorf("a sleeping engine answered %d requests", n)
		}
		if status, body := r.read("http://" + r.DataAddr + "/readyz"); status != http.StatusOK ||
			!strings.Contains(body, "small") {
			t.Errorf("/readyz is %d: %s", status, body)
		}
		w0.set(false, fmt.Sprintf(state, 1))
		r.waitForState("up")
		if n := r.countW0(6); n == 0 {
			t.Error("an engine that has woken up gets no requests")
		}
	})
}

// slowReports is a healthy engine that never answers one kind of prompt.
type slowReports struct{ http.Handler }

func (s slowReports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // an incomplete body is answered like any other
	if bytes.Contains(body, []byte("a long report")) {
		<-r.Context().Done()
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.Handler.ServeHTTP(w, r)
}

// TestOneTenantCannotMakeAWorkerHung fills one of two healthy workers with requests of one tenant
// that get no byte before their clients disconnect. The other worker serves another tenant's
// streams. No breaker may open.
func TestOneTenantCannotMakeAWorkerHung(t *testing.T) {
	for name, body := range map[string]string{
		"whole answers":      `{"model":"sim","messages":[{"role":"user","content":"a long report"}]}`,
		"streams":            `{"model":"sim","stream":true,"messages":[{"role":"user","content":"a long report"}]}`,
		"streams of prompts": `{"model":"sim","stream":true,"messages":[{"role":"user","content":"a long report %d"}]}`,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			ws := []*rig.Worker{newEngine(t, "w0", engines.Config{}), newEngine(t, "w1", engines.Config{})}
			var list []string
			for _, w := range ws {
				w.Front = slowReports{w.Handler}
				w.Listen()
				list = append(list, fmt.Sprintf("{ name: %s, url: %q, max_inflight: 3 }", w.Name, w.Server.URL))
			}
			r := newRig(t, 0, rig.Settings{
				"tiers": "[ { name: small, model: sim, workers: [ " + strings.Join(list, ", ") + " ] } ]",
				"auth": `{ keys: [ { name: one, sha256: ` + rig.Digest("first") + ` }, { name: two, sha256: ` +
					rig.Digest("second") + ` } ] }`,
			}, engines.Config{})
			r.Workers = ws
			ctx, stop := context.WithCancel(t.Context())
			var clients, other sync.WaitGroup
			for i := range 5 { // one worker gets three
				clients.Go(func() {
					impatient, cancel := context.WithTimeout(ctx, 5*time.Second)
					defer cancel()
					text := strings.ReplaceAll(body, "%d", fmt.Sprint(i))
					if resp, err := r.Client.Do(r.Request(impatient, http.MethodPost, chat.path, text, "Authorization",
						"Bearer first")); err == nil {
						resp.Body.Close()
					}
				})
			}
			other.Go(func() {
				for rig.Pause(ctx, clientPause) {
					req := r.Request(ctx, http.MethodPost, chat.path, prompt(r.NextID(), true), "Authorization", "Bearer second")
					if resp, err := r.Client.Do(req); err == nil {
						io.Copy(io.Discard, resp.Body) // the test may have ended
						resp.Body.Close()
					}
				}
			})
			clients.Wait()
			stop()
			other.Wait()
			if n := r.breakerOpenings(""); n != 0 {
				t.Errorf("breakers opened %v times", n)
			}
		})
	}
}
