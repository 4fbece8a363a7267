package sdk_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
)

// faultyModels says what goes wrong with each model of the gateway that
// startFaulty makes. Faults with Times are used up by one test of one SDK.
func faultyModels() map[string][]engines.Fault {
	later := engines.Fault{Kind: engines.FaultStatus, Status: http.StatusTooManyRequests, RetryAfter: "1", Times: 1}
	// A worker that refuses the gateway's key does so the next time too.
	never := engines.Fault{Kind: engines.FaultStatus, Status: http.StatusUnauthorized}
	// The heartbeat comes after 20 ms: several of them fit.
	slow := engines.Fault{Kind: engines.FaultSlow, Delay: 200 * time.Millisecond}
	one := func(f engines.Fault) []engines.Fault { return []engines.Fault{f} }
	return map[string][]engines.Fault{
		"good":           nil,
		"held":           nil, // its engine falls silent after a token until it is told to stop
		"later":          one(later),
		"later-async":    one(later),
		"later-messages": one(later),
		"busy":           one(engines.Fault{Kind: engines.FaultStatus, Status: http.StatusServiceUnavailable, RetryAfter: "1", Times: 1}),
		"never":          one(never),
		"limited":        one(engines.Fault{Kind: engines.FaultStatus, Status: http.StatusTooManyRequests, RetryAfter: "1"}),
		"broken":         one(engines.Fault{Kind: engines.FaultStatus, Status: http.StatusInternalServerError}),
		"html":           one(engines.Fault{Kind: engines.FaultHTML}),
		"json-error":     one(engines.Fault{Kind: engines.FaultJSONError}),
		"empty":          one(engines.Fault{Kind: engines.FaultEmpty}),
		"no-done":        one(engines.Fault{Kind: engines.FaultNoDone}),
		"error-first":    one(engines.Fault{Kind: engines.FaultErrorFirst, Form: engines.FormVLLM}),
		"error-midway":   one(engines.Fault{Kind: engines.FaultErrorEvent, Form: engines.FormVLLM, After: 3}),
		"error-messages": one(engines.Fault{Kind: engines.FaultErrorEvent, Form: engines.FormMessages, After: 3}),
		"cut":            one(engines.Fault{Kind: engines.FaultClose, After: 3}),
		"reset":          one(engines.Fault{Kind: engines.FaultReset, After: 3}),
		"truncated":      one(engines.Fault{Kind: engines.FaultTruncate, After: 3}),
		"slow":           one(slow),
		"slow-error":     {slow, {Kind: engines.FaultErrorEvent, Form: engines.FormVLLM, After: 1}},
		"crlf":           one(engines.Fault{Kind: engines.FaultCRLF}),
		"bytewise":       one(engines.Fault{Kind: engines.FaultBytewise}),
		"batched":        one(engines.Fault{Kind: engines.FaultBatch}),
		"commented":      one(engines.Fault{Kind: engines.FaultComments}),
		"null-error":     one(engines.Fault{Kind: engines.FaultNullError}),
	}
}

// faulty is a gateway all of whose engines misbehave, each in its own way.
type faulty struct {
	*gateway.Process
	chaos map[string]*engines.Chaos // by model
}

// startFaulty starts one. A worker is asked once a request, so that the SDK's
// attempts and the workers' requests can be counted against each other, and
// stays up whatever its answers are.
func startFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{chaos: map[string]*engines.Chaos{}}
	var pools strings.Builder
	for model, faults := range faultyModels() {
		e := engines.New(engines.Config{Model: model, Seed: 1, Script: func(string, []byte) engines.Script {
			if model == "held" {
				return engines.Script{HoldAfter: 1}
			}
			return engines.Script{}
		}})
		t.Cleanup(e.Close)
		c := engines.NewChaos(e)
		if err := c.Set(faults...); err != nil {
			t.Fatal(err)
		}
		f.chaos[model] = c
		fmt.Fprintf(&pools, "  - { name: %[1]s, model: %[1]s, engine: vllm, serves: [chat, responses, messages, embeddings], workers: [ { name: worker-%[1]s, url: %[2]q } ] }\n",
			model, startEngine(t, c))
	}
	f.Process = gateway.Serve(t, `
auth: { required: false }
drain: { accept_grace: 10ms, timeout: 5s }
health: { path: off }
retry: { attempts: 1 }
queue: { heartbeat_after: 20ms }
pools:
`+pools.String())
	return f
}

// TestTheSlowModelHasHeartbeats proves that the SDKs met some.
func TestTheSlowModelHasHeartbeats(t *testing.T) {
	t.Parallel()
	f := startFaulty(t)
	resp, err := http.Post(f.BaseURL+"/chat/completions", "application/json",
		strings.NewReader(`{"model":"slow","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	beats, content, ok := strings.Cut(string(body), "data: ")
	if !strings.HasPrefix(beats, ":") || !ok || !strings.HasSuffix(content, "data: [DONE]\n\n") {
		t.Errorf("a stream whose first event is late began with %q and ended with %q", beats, content[max(0, len(content)-40):])
	}
}
