package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/config"
	"tierway/engines"
	"tierway/server/control"
	"tierway/telemetry"
)

// rig is a server in front of engines of the test's own process.
type rig struct {
	*Server
	t      *testing.T
	url    string
	text   string // its configuration
	access *lines
	logs   *lines                       // of everything else
	source func() (*config.File, error) // what a reload reads; nil: nothing
}

// lines collects a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fakeEngine answers fast and always the same.
func fakeEngine() *engines.Engine {
	return engines.New(engines.Config{Name: "fake", Model: "fake-7b", Seed: 1, CacheTokens: 4096,
		Clock: func() time.Time { return time.Unix(1_700_000_000, 0) }})
}

// newRig serves a configuration whose %s is replaced by the workers' list, one
// worker for each handler.
func newRig(t *testing.T, yaml string, handlers ...http.Handler) *rig {
	t.Helper()
	return newRigWith(t, yaml, func(*Options) {}, handlers...)
}

// newRigWith is newRig with other options.
func newRigWith(t *testing.T, yaml string, change func(*Options), handlers ...http.Handler) *rig {
	t.Helper()
	var list []string
	for i, h := range handlers {
		w := httptest.NewServer(h)
		t.Cleanup(w.Close)
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q }", i, w.URL))
	}
	text := fmt.Sprintf(yaml, strings.Join(list, ", "))
	if !strings.Contains(text, "store:") {
		text = "store: { sql: \"\" }\n" + text
	}
	if !strings.Contains(text, "classifier:") {
		text = "classifier: { preset: none }\n" + text // which takes 100 ms to compile under the race detector
	}
	file, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, text: text, access: &lines{}, logs: &lines{}}
	var n uint64
	var mu sync.Mutex
	o := Options{Config: file, Source: r.reread, Log: slog.New(slog.NewTextHandler(r.logs, nil)), Access: r.access,
		Metrics: telemetry.New("test"), Rand: func() uint64 { mu.Lock(); defer mu.Unlock(); n++; return n }}
	change(&o)
	r.Server, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(r.planes.dataHandler())
	r.url = front.URL
	t.Cleanup(func() {
		front.Close()
		r.close()
		if left := r.Inflight(); left != 0 {
			t.Errorf("%d requests are still in flight", left)
		}
		if held := r.proxy.BodyMemory().Used; held != 0 {
			t.Errorf("request bodies still hold %d bytes", held)
		}
		for _, g := range r.control.Pools.Gauges() {
			if g.Inflight != 0 || g.PendingTokens != 0 || g.OutputTokens != 0 {
				t.Errorf("%s still has a load: %+v", g.Worker, g)
			}
		}
	})
	return r
}

// plain is one tier that serves everything, without keys.
const plain = `
auth: { required: false }
health: { path: "off" }
tiers:
  - name: small
    model: fake-7b
    serves: [chat, completions, responses, messages, embeddings, rerank, score, tokenize, moderations, images, audio]
    workers: [ %s ]
models: { "gpt-4o-mini": small }
`

// answered is an answer that was read whole.
type answered struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body: a cut connection
}

func (r *rig) do(method, path, body string, headers ...string) answered {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.Host = req.Header.Get("Host")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, string(got), err}
}

func (r *rig) post(path, body string, headers ...string) answered {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

// reread reads source.
func (r *rig) reread() (*config.File, error) {
	if r.source == nil {
		return nil, control.ErrNoSource
	}
	return r.source()
}

// Inflight returns the requests between their first byte and their last.
func (r *rig) Inflight() int64 { return r.proxy.Inflight() }

// member returns the worker of that name.
func (r *rig) member(name string) *control.Member {
	r.t.Helper()
	for _, p := range r.control.Snapshot().Pools {
		if m := p.Members[name]; m != nil {
			return m
		}
	}
	r.t.Fatalf("there is no worker %s", name)
	return nil
}
