package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/engines"
	"tierway/server/control"
	"tierway/telemetry"
)

// rig is a server in front of engines in the test's process.
type rig struct {
	*Server
	t      *testing.T
	net    *network
	url    string
	text   string // the configuration
	access *logBuffer
	logs   *logBuffer                   // the log without the access log
	source func() (*config.File, error) // the configuration for a reload; nil: none
	// stopControl stops the control loops that narrowRig started. Nothing reads the state of workers from then on.
	stopControl func()
}

// logBuffer collects a log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fakeEngine is a fast engine with constant answers.
func fakeEngine() *engines.Engine {
	return engines.New(engines.Config{Name: "fake", Model: "fake-7b", Seed: 1, CacheTokens: 4096,
		Clock: func() time.Time { return time.Unix(1_700_000_000, 0) }})
}

// newRig serves a configuration. Its %s is replaced by a list of workers, one per handler.
func newRig(t *testing.T, yaml string, handlers ...http.Handler) *rig {
	t.Helper()
	return newRigWith(t, yaml, func(*Options) {}, handlers...)
}

// newRigWith is newRig with changed options.
func newRigWith(t *testing.T, yaml string, change func(*Options), handlers ...http.Handler) *rig {
	t.Helper()
	var list []string
	for i, h := range handlers {
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q }", i, startServer(t, h)))
	}
	text := fmt.Sprintf(yaml, strings.Join(list, ", "))
	if !strings.Contains(text, "store:") {
		text = "store: { sql: \"\" }\n" + text
	}
	if !strings.Contains(text, "classifier:") {
		text = "classifier: { preset: none }\n" + text // the default preset takes 100 ms to compile under the race detector
	}
	file, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, text: text, net: networkOf(t), access: &logBuffer{}, logs: &logBuffer{}}
	var n uint64
	var mu sync.Mutex
	o := Options{Config: file, Source: r.readSource, Log: slog.New(slog.NewTextHandler(r.logs, nil)), Access: r.access,
		Metrics: telemetry.New("test"), Rand: func() uint64 { mu.Lock(); defer mu.Unlock(); n++; return n },
		Listen: r.net.Listen, Dial: r.net.Dial}
	change(&o)
	r.Server, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	front := newGateway(t, r.planes.dataHandler())
	r.url = front.URL
	recordsCtx, stopRecords := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { r.proxy.RunRecords(recordsCtx) })
	t.Cleanup(func() {
		closeGateway(front)
		stopRecords()
		recording.Wait()
		r.close()
		if left := r.Inflight(); left != 0 {
			t.Errorf("%d requests are still in flight", left)
		}
		if used := r.proxy.BodyMemory().Used; used != 0 {
			t.Errorf("request bodies still use %d bytes", used)
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
    serves: [chat, completions, responses, messages, embeddings, rerank, score, pooling, tokenize, moderations, images, audio]
    workers: [ %s ]
models: { "gpt-4o-mini": small }
`

// httpAnswer is an answer that was read to its end.
type httpAnswer struct {
	status int
	header http.Header
	body   string
	err    error // from reading the body, for example of a cut connection
}

func (r *rig) do(method, path, body string, headers ...string) httpAnswer {
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
	resp, err := r.net.transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return httpAnswer{resp.StatusCode, resp.Header, string(got), err}
}

func (r *rig) post(path, body string, headers ...string) httpAnswer {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

// readSource returns the configuration of source.
func (r *rig) readSource() (*config.File, error) {
	if r.source == nil {
		return nil, control.ErrNoSource
	}
	return r.source()
}

// recorded returns the log of records, with those of all requests that have ended.
func (r *rig) recorded() *decisions.Log {
	r.proxy.FlushRecords()
	return r.decisions
}

// accessLog returns the access log, with the lines of all requests that have ended.
func (r *rig) accessLog() string {
	r.proxy.FlushRecords()
	return r.access.String()
}

// Inflight returns the number of requests in flight.
func (r *rig) Inflight() int64 { return r.proxy.Inflight() }

// member returns the worker with that name.
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
