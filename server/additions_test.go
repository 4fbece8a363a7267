package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// picky is an engine that refuses requests with any of some fields, and repeats them
// in its error.
type picky struct {
	mu      sync.Mutex
	refuses []string
	taken   []string
}

func (p *picky) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, field := range p.refuses {
		if strings.Contains(string(body), `"`+field+`"`) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"%s is not supported, in %s"}}`, field,
				strings.ReplaceAll(string(body), `"`, `'`))
			return
		}
	}
	p.taken = append(p.taken, string(body))
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w,
		"data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// askPicky sends a stream of the class batch, to which both a priority and the wish
// for usage are added.
func (r *rig) askPicky(p *picky) (sent string) {
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
		if strings.Contains(p.taken[len(p.taken)-1], `"`+name+`"`) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// TestOnlyWhatAnEngineRefusesIsLeftOut: an error that repeats the request names all
// its fields; the answer to the request without one proves that one alone.
func TestOnlyWhatAnEngineRefusesIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		refuses string
		want    [3]string // of three requests, what the engine took at last
	}{
		{"", [3]string{"priority stream_options", "priority stream_options", "priority stream_options"}},
		{"stream_options", [3]string{"", "priority", "priority"}},
		{"priority", [3]string{"stream_options", "stream_options", "stream_options"}},
		{"priority stream_options", [3]string{"", "", ""}},
	} {
		p := &picky{refuses: strings.Fields(c.refuses)}
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: vllm", 1), p)
		for i, want := range c.want {
			if got := r.askPicky(p); got != want {
				t.Errorf("refuses %q, request %d: took %q, want %q", c.refuses, i, got, want)
			}
		}
	}
}

// TestAWorkerThatComesUpIsAskedAnew: it may have been started otherwise meanwhile,
// with priorities for one.
func TestAWorkerThatComesUpIsAskedAnew(t *testing.T) {
	p := &picky{refuses: []string{"priority", "stream_options"}}
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
	r.running()
	for range 3 {
		r.askPicky(p)
	}
	p.mu.Lock()
	p.refuses = nil
	p.mu.Unlock()
	before := checks.Load()
	until(t, "good checks", func() bool { return checks.Load() > before+1 })
	if got := r.askPicky(p); got != "" {
		t.Errorf("it was up all the time, and took %q", got)
	}
	isUp := func() bool { return r.control.Pools.Gauges()[0].Up }
	down.Store(true)
	until(t, "a failed check", func() bool { return !isUp() })
	down.Store(false)
	until(t, "a good check", isUp)
	if got := r.askPicky(p); got != "priority stream_options" {
		t.Errorf("it was down, and took %q", got)
	}
}
