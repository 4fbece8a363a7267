package sdk_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
	"tierway/engines/chaos"
)

// faultyModels returns the faults of each model of startFaulty's gateway. Faults with Times are used
// up by one test of one SDK.
func faultyModels() map[string][]chaos.Fault {
	later := chaos.Fault{Kind: chaos.Status, Status: http.StatusTooManyRequests, RetryAfter: "1", Times: 1}
	// A worker that refuses the gateway's key does so the next time too.
	never := chaos.Fault{Kind: chaos.Status, Status: http.StatusUnauthorized}
	// The heartbeat comes after 20 ms: several of them fit.
	slow := chaos.Fault{Kind: chaos.Slow, Delay: 200 * time.Millisecond}
	one := func(f chaos.Fault) []chaos.Fault { return []chaos.Fault{f} }
	return map[string][]chaos.Fault{
		"good":           nil,
		"held":           nil, // its engine falls silent after a token until it is told to stop
		"later":          one(later),
		"later-async":    one(later),
		"later-messages": one(later),
		"busy": one(chaos.Fault{Kind: chaos.Status, Status: http.StatusServiceUnavailable, RetryAfter: "1",
			Times: 1}),
		"never":          one(never),
		"limited":        one(chaos.Fault{Kind: chaos.Status, Status: http.StatusTooManyRequests, RetryAfter: "1"}),
		"broken":         one(chaos.Fault{Kind: chaos.Status, Status: http.StatusInternalServerError}),
		"html":           one(chaos.Fault{Kind: chaos.HTML}),
		"json-error":     one(chaos.Fault{Kind: chaos.JSONError}),
		"empty":          one(chaos.Fault{Kind: chaos.Empty}),
		"no-done":        one(chaos.Fault{Kind: chaos.NoDone}),
		"error-first":    one(chaos.Fault{Kind: chaos.ErrorFirst, Form: chaos.FormVLLM}),
		"error-midway":   one(chaos.Fault{Kind: chaos.ErrorEvent, Form: chaos.FormVLLM, After: 3}),
		"error-messages": one(chaos.Fault{Kind: chaos.ErrorEvent, Form: chaos.FormMessages, After: 3}),
		"cut":            one(chaos.Fault{Kind: chaos.Close, After: 3}),
		"reset":          one(chaos.Fault{Kind: chaos.Reset, After: 3}),
		"truncated":      one(chaos.Fault{Kind: chaos.Truncate, After: 3}),
		"slow":           one(slow),
		"slow-error":     {slow, {Kind: chaos.ErrorEvent, Form: chaos.FormVLLM, After: 1}},
		"crlf":           one(chaos.Fault{Kind: chaos.CRLF}),
		"bytewise":       one(chaos.Fault{Kind: chaos.Bytewise}),
		"batched":        one(chaos.Fault{Kind: chaos.Batch}),
		"commented":      one(chaos.Fault{Kind: chaos.Comments}),
		"null-error":     one(chaos.Fault{Kind: chaos.NullError}),
		"identified":     nil, // an id line in each event, after a pause for several heartbeats
	}
}

// faulty is a gateway with a different fault in each engine.
type faulty struct {
	*gateway.Process
	chaos map[string]*chaos.Handler // by model
}

// startFaulty starts the gateway. It does not retry, so that the SDK's attempts equal the workers'
// requests, and it ejects no worker.
func startFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{chaos: map[string]*chaos.Handler{}}
	var pools strings.Builder
	for model, faults := range faultyModels() {
		e := engines.New(engines.Config{Model: model, Seed: 1, Script: func(string, []byte) engines.Script {
			if model == "held" {
				return engines.Script{HoldAfter: 1}
			}
			return engines.Script{}
		}})
		t.Cleanup(e.Close)
		c := chaos.New(e)
		if model == "identified" {
			c = chaos.New(identified{e})
		}
		if err := c.Set(faults...); err != nil {
			t.Fatal(err)
		}
		f.chaos[model] = c
		// A heartbeat opens an answer, which then has no other status: the others wait for their engines.
		heartbeat := "10m"
		if slices.Contains([]string{"slow", "slow-error", "identified"}, model) {
			heartbeat = "20ms"
		}
		fmt.Fprintf(&pools, "  - { name: %[1]s, model: %[1]s, engine: vllm, serves: [chat, responses, messages, "+
			"embeddings], workers: [ { name: worker-%[1]s, url: %[2]q } ], queue: { heartbeat_after: %[3]s } }\n",
			model, startEngine(t, c), heartbeat)
	}
	f.Process = gateway.Serve(t, `
auth: { required: false }
drain: { accept_grace: 10ms, timeout: 5s }
health: { path: off }
retry: { attempts: 1 }
pools:
`+pools.String())
	return f
}

// identified is an engine that pauses before each of its events and adds an id line to it.
type identified struct{ inner http.Handler }

func (h identified) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.inner.ServeHTTP(&identifiedWriter{ResponseWriter: w}, r)
}

// identifiedWriter adds a line to each event. An engine writes each event at once.
type identifiedWriter struct {
	http.ResponseWriter
	events int
}

// Unwrap returns the writer for http.ResponseController.
func (w *identifiedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *identifiedWriter) Write(p []byte) (int, error) {
	if w.Header().Get("Content-Type") == "text/event-stream" {
		time.Sleep(50 * time.Millisecond)
		if _, err := fmt.Fprintf(w.ResponseWriter, "id: %d\n", w.events); err != nil {
			return 0, fmt.Errorf("writing an id line: %w", err)
		}
		w.events++
	}
	n, err := w.ResponseWriter.Write(p)
	if err != nil {
		return n, fmt.Errorf("writing an event: %w", err)
	}
	return n, nil
}

// TestTheSlowModelHasHeartbeats verifies that the SDKs' tests include heartbeats.
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
		t.Errorf("a stream with a late first event began with %q and ended with %q", beats,
			content[max(0, len(content)-40):])
	}
}
