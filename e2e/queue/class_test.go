package queue

import (
	"context"
	"encoding/json"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
)

// asking is a way to ask for a class.
type asking struct {
	name, path, body string
	headers          []string
	class            string // of a tenant who may ask for every class
	clamped          string // of one who may ask for batch alone
	capped           string // of one who may ask for background
}

func askings() []asking {
	const v1 = "/v1/chat/completions"
	priority := func(class string) []string { return []string{"X-Request-Priority", class} }
	return []asking{
		{"nothing", v1, plain, nil, "interactive", "batch", "background"},
		{"the header", v1, plain, priority("interactive"), "interactive", "batch", "background"},
		{"the header for less", v1, plain, priority("batch"), "batch", "batch", "batch"},
		{"the header in capitals", v1, plain, priority("BACKGROUND"), "background", "batch", "background"},
		{"a header that says nothing", v1, plain, priority("urgent"), "interactive", "batch", "background"},
		{"service_tier priority", v1, chat("hello", `"service_tier":"priority"`), nil, "interactive", "batch", "background"},
		{"service_tier flex", v1, chat("hello", `"service_tier":"flex"`), nil, "batch", "batch", "batch"},
		{"service_tier auto", v1, chat("hello", `"service_tier":"auto"`), nil, "interactive", "batch", "background"},
		{"the path of background", "/background/v1/chat/completions", plain, nil, "background", "batch", "background"},
		{"the path of batch", "/batch/v1/chat/completions", plain, nil, "batch", "batch", "batch"},
		{"the header before the path", "/batch/v1/chat/completions", plain, priority("background"), "background", "batch",
			"background"},
		{"the path before service_tier", "/batch/v1/chat/completions", chat("hello", `"service_tier":"priority"`), nil,
			"batch", "batch", "batch"},
	}
}

// vllmPriority is the body's priority as an engine got it; there is none of a
// request without.
func (r *queueRig) vllmPriority(id string) (priority int, there bool) {
	r.T.Helper()
	for _, w := range r.Workers {
		for _, got := range w.Recorder.Requests() {
			if got.Header.Get("X-Request-Id") != id {
				continue
			}
			var body struct {
				Priority *int `json:"priority"`
			}
			if err := json.Unmarshal(got.Body, &body); err != nil {
				r.T.Fatalf("the engine got %s: %v", got.Body, err)
			}
			if body.Priority == nil {
				return 0, false
			}
			return *body.Priority, true
		}
	}
	r.T.Fatalf("no engine got %s", id)
	return 0, false
}

// TestPriorityIsClamped: from whatever source, nobody has a class above the
// tenant's highest; vLLM is told of it, where a lower number goes first and none is
// 0, and no other engine is.
//
// QU-08: a priority that the tenant has no right to.
func TestPriorityIsClamped(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"vllm", "llamacpp"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1, engines.Config{})
			r.Serve(rig.Settings{
				"tiers": r.Tiers("max_inflight: 4", "engine: "+engine),
				"auth": "{ keys: [ " + tenant("all", "weight: 1") + ", " + tenant("night", "priority: batch") + ", " +
					tenant("side", "priority: background") + " ] }",
			})
			r.classed(engine == "vllm")
		})
	}
}

// classed asks for every class in every way in every tenant's name, and wants the
// tenant's in the log and, where the engine is told, in what it got.
func (r *queueRig) classed(told bool) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
	defer cancel()
	wanted := map[string]string{} // classes by request
	for _, a := range askings() {
		for who, want := range map[string]string{"all": a.class, "night": a.clamped, "side": a.capped} {
			got := r.Send(r.request(ctx, a.path, a.body, append(bearer(who), a.headers...)...))
			if err := got.CheckOK(); err != nil {
				r.T.Fatalf("%s by %s: %v", a.name, who, err)
			}
			wanted[got.ID] = want
			priority, there := r.vllmPriority(got.ID)
			if below := told && want != "interactive"; there != below || below && priority < 1 {
				r.T.Errorf("%s by %s: the engine got priority %d (%v) of a request of class %s", a.name, who, priority, there, want)
			}
		}
	}
	for id, want := range wanted { // the log's lines come together
		if line := r.AccessLine(id); line["class"] != want {
			r.T.Errorf("the log says %v, want %s: %v", line["class"], want, line)
		}
	}
}

// TestVLLMPutsBatchLast: of two requests in vLLM's own queue the one with the lower
// number goes first.
func TestVLLMPutsBatchLast(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 4", "engine: vllm")})
	var last int
	for _, class := range []string{"background", "batch"} {
		a := r.now(plain, "X-Request-Priority", class)
		if err := a.CheckOK(); err != nil {
			t.Fatal(err)
		}
		priority, there := r.vllmPriority(a.ID)
		if !there || priority <= last {
			t.Errorf("%s has priority %d (%v), the class above %d", class, priority, there, last)
		}
		last = priority
	}
}
