package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// classRequest is a way to request a class, with the class that each tenant gets.
type classRequest struct {
	name, path, body string
	headers          []string
	all              string // class of a tenant that may use every class; "" if none is requested, which is interactive
	night            string // class of a tenant with priority: batch
	side             string // class of a tenant with priority: background
}

func classRequests() []classRequest {
	const v1 = "/v1/chat/completions"
	priority := func(class string) []string { return []string{"X-Request-Priority", class} }
	return []classRequest{
		{"no class", v1, plain, nil, "", "batch", "background"},
		{"header interactive", v1, plain, priority("interactive"), "interactive", "batch", "background"},
		{"header batch", v1, plain, priority("batch"), "batch", "batch", "batch"},
		{"header in capitals", v1, plain, priority("BACKGROUND"), "background", "batch", "background"},
		{"header with an unknown class", v1, plain, priority("urgent"), "", "batch", "background"},
		{"service_tier priority", v1, chat("hello", `"service_tier":"priority"`), nil, "interactive", "batch", "background"},
		{"service_tier flex", v1, chat("hello", `"service_tier":"flex"`), nil, "batch", "batch", "batch"},
		{"service_tier auto", v1, chat("hello", `"service_tier":"auto"`), nil, "", "batch", "background"},
		{"path /background", "/background/v1/chat/completions", plain, nil, "background", "batch", "background"},
		{"path /batch", "/batch/v1/chat/completions", plain, nil, "batch", "batch", "batch"},
		{"path /background/v1 before v1", "/background/v1/v1/chat/completions", chat("hello", `"service_tier":"priority"`), nil,
			"background", "batch", "background"},
		{"path /batch/v1 before v1", "/batch/v1/v1/chat/completions", plain, nil, "batch", "batch", "batch"},
		{"header overrides path", "/batch/v1/chat/completions", plain, priority("background"), "background", "batch",
			"background"},
		{"path overrides service_tier", "/batch/v1/chat/completions", chat("hello", `"service_tier":"priority"`), nil,
			"batch", "batch", "batch"},
	}
}

// vllmPriority returns the field priority of a request as an engine received it. there is false
// if the field is missing.
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
				r.T.Fatalf("the engine received %s: %v", got.Body, err)
			}
			if body.Priority == nil {
				return 0, false
			}
			return *body.Priority, true
		}
	}
	r.T.Fatalf("no engine received the request %s", id)
	return 0, false
}

// TestPriorityIsClamped requests every class in every way. No request gets a class above the
// highest one of its tenant. vLLM receives the class as a priority (a lower number goes first;
// a missing one is 0); other engines do not. The access log has the class, and the requested one if it is higher.
//
// QU-08: a class above the tenant's highest.
func TestPriorityIsClamped(t *testing.T) {
	for _, engine := range []string{"vllm", "llamacpp"} {
		bubble.Run(t, engine, func(t *testing.T) {
			r := newRig(t, 1, engines.Config{})
			r.Serve(rig.Settings{
				"tiers": r.Tiers("max_inflight: 4", "engine: "+engine),
				"auth": "{ keys: [ " + tenant("all", "weight: 1") + ", " + tenant("night", "priority: batch") + ", " +
					tenant("side", "priority: background") + " ] }",
			})
			r.checkClasses(engine == "vllm")
		})
	}
}

// checkClasses requests every class in every way for each tenant. It checks the classes in the
// access log and, if the engine receives priorities, in its requests.
func (r *queueRig) checkClasses(priorities bool) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
	defer cancel()
	type classes struct{ class, asked any }                  // members of a line of the access log
	wanted := map[string]classes{}                           // by request
	numbers := map[string]int{"background": 10, "batch": 20} // interactive is sent without a priority
	for _, a := range classRequests() {
		for tenant, want := range map[string]string{"all": cmp.Or(a.all, "interactive"), "night": a.night, "side": a.side} {
			got := r.Send(r.request(ctx, a.path, a.body, append(bearer(tenant), a.headers...)...))
			if err := got.CheckOK(); err != nil {
				r.T.Fatalf("%s by %s: %v", a.name, tenant, err)
			}
			wanted[got.ID] = classes{class: want}
			if a.all != "" && a.all != want {
				wanted[got.ID] = classes{class: want, asked: a.all}
			}
			priority, there := r.vllmPriority(got.ID)
			if of, below := numbers[want]; there != (priorities && below) || there && priority != of {
				r.T.Errorf("%s by %s: the engine got priority %d (%v) for class %s", a.name, tenant, priority, there, want)
			}
		}
	}
	for id, want := range wanted {
		if line := r.AccessLine(id); (classes{line["class"], line["asked_class"]}) != want {
			r.T.Errorf("the access log has the classes %v and %v, want %v", line["class"], line["asked_class"], want)
		}
	}
}
