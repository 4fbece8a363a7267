package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// strictEngine is an engine that rejects requests with one of some fields. Its error repeats the body.
type strictEngine struct {
	mu       sync.Mutex
	rejects  []string // fields
	accepted []string // bodies
}

func (p *strictEngine) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, field := range p.rejects {
		if strings.Contains(string(body), `"`+field+`"`) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"%s is not supported, in %s"}}`, field,
				strings.ReplaceAll(string(body), `"`, `'`))
			return
		}
	}
	p.accepted = append(p.accepted, string(body))
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w,
		"data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// askStrictEngine sends a stream of class batch. The gateway adds a priority and stream_options to it.
// It returns which of the two the engine accepted.
func (r *rig) askStrictEngine(p *strictEngine) (sent string) {
	r.t.Helper()
	a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		"X-Request-Priority", "batch")
	if a.status != http.StatusOK {
		r.t.Errorf("%d %s", a.status, a.body)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, name := range []string{"priority", "stream_options"} {
		if strings.Contains(p.accepted[len(p.accepted)-1], `"`+name+`"`) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// TestOnlyRejectedFieldsAreOmitted: an error that repeats the request names all its fields. Only the
// success of a request without a field proves that this field was the cause.
func TestOnlyRejectedFieldsAreOmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			rejects string
			want    [3]string // fields that the engine accepted, for three requests
		}{
			{"", [3]string{"priority stream_options", "priority stream_options", "priority stream_options"}},
			{"stream_options", [3]string{"", "priority", "priority"}},
			{"priority", [3]string{"stream_options", "stream_options", "stream_options"}},
			{"priority stream_options", [3]string{"", "", ""}},
		} {
			p := &strictEngine{rejects: strings.Fields(c.rejects)}
			r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: vllm", 1), p)
			for i, want := range c.want {
				if got := r.askStrictEngine(p); got != want {
					t.Errorf("rejects %q, request %d: accepted %q, want %q", c.rejects, i, got, want)
				}
			}
		}
	})
}

// TestOmittedFieldsAreSentAgainAfterAWorkerWasDown: the engine may have been restarted with other
// options.
func TestOmittedFieldsAreSentAgainAfterAWorkerWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &strictEngine{rejects: []string{"priority", "stream_options"}}
		var down atomic.Bool
		var checks atomic.Int32
		engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			switch {
			case q.Method == http.MethodPost:
				p.ServeHTTP(w, q)
			case down.Load():
				w.WriteHeader(http.StatusInternalServerError)
			case q.URL.Path == "/health":
				checks.Add(1)
			}
		})
		text := strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: vllm", 1)
		r := newRig(t,
			strings.Replace(text, `path: "off"`, "path: /health, interval: 100ms, timeout: 100ms, down_after: 4, up_after: 1", 1),
			engine)
		r.runControl()
		for range 3 {
			r.askStrictEngine(p)
		}
		p.mu.Lock()
		p.rejects = nil
		p.mu.Unlock()
		before := checks.Load()
		waitUntil(t, "good checks", func() bool { return checks.Load() > before+1 })
		if got := r.askStrictEngine(p); got != "" {
			t.Errorf("a worker that stayed up accepted %q", got)
		}
		isUp := func() bool { return r.control.Pools.Gauges()[0].Up }
		down.Store(true)
		waitUntil(t, "a failed check", func() bool { return !isUp() })
		down.Store(false)
		waitUntil(t, "a good check", isUp)
		if got := r.askStrictEngine(p); got != "priority stream_options" {
			t.Errorf("a worker that was down accepted %q", got)
		}
	})
}
