package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
	"tierway/engines/chaos"
)

// settings is a configuration: each top-level key with its value in YAML. A rig
// merges them over its own.
type settings map[string]string

// String writes the file.
func (s settings) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", key, s[key])
	}
	return b.String()
}

// write puts the configuration into a file of the test's own.
func (s settings) write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "generated.yaml")
	if err := os.WriteFile(path, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// worker is one engine with what stands before it.
type worker struct {
	*chaos.Handler
	engine *engines.Engine
	server *engines.Server
	name   string
}

// rig is a gateway before workers of this process. When its test ends, it must
// be quiet.
type rig struct {
	*gateway.Process
	t           *testing.T
	data, admin string // the planes' addresses
	metricsAt   string // the address that has the metrics
	workers     []*worker
	client      *http.Client
	ids         atomic.Int64
}

// answerText is what every engine says unless a test's own script does.
const answerText = "The quick brown fox jumps over the lazy dog, and nobody minds at all."

// says makes engines answer every request with answerText.
func says(string, []byte) engines.Script { return engines.Script{Text: answerText} }

// newWorker starts one engine.
func newWorker(t *testing.T, name string, c engines.Config) *worker {
	t.Helper()
	w := newEngine(t, name, c)
	w.serve(t, w.Handler, "127.0.0.1:0")
	return w
}

// newEngine makes an engine that does not listen.
func newEngine(t *testing.T, name string, c engines.Config) *worker {
	t.Helper()
	c.Name, c.Model, c.Record = name, "sim", true
	if c.Script == nil {
		c.Script = says
	}
	w := &worker{engine: engines.New(c), name: name}
	w.Handler = chaos.New(w.engine)
	t.Cleanup(w.engine.Close)
	return w
}

// serve makes the worker listen, with front before it.
func (w *worker) serve(t *testing.T, front http.Handler, addr string) {
	t.Helper()
	server, err := engines.Start(front, addr)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	t.Cleanup(func() {
		if err := w.server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// newRig starts a gateway before n workers named w0, w1, …, which are asked in
// turn, w0 first. What own has replaces its settings; env is added to its environment.
func newRig(t *testing.T, n int, own settings, c engines.Config, env ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	for i := range n {
		r.workers = append(r.workers, newWorker(t, fmt.Sprintf("w%d", i), c))
	}
	all := settings{
		"auth":     `{ required: false }`,
		"hosts":    `[ gateway ]`,
		"health":   `{ path: "off" }`,
		"policy":   `{ name: round_robin }`,
		"drain":    `{ accept_grace: 1ms, timeout: 5s }`,
		"timeouts": `{ first_byte: 30s, idle: 30s }`,
		"tiers":    tiers(r.workers),
	}
	maps.Copy(all, own)
	r.Process = gateway.Start(t, all.String(), env...)
	r.data = strings.TrimSuffix(strings.TrimPrefix(r.BaseURL, "http://"), "/v1")
	r.admin = strings.TrimPrefix(r.AdminURL, "http://")
	r.metricsAt = r.admin
	r.client = &http.Client{Transport: &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		r.quiet()
		r.client.CloseIdleConnections()
	})
	return r
}

// tiers is a configuration's tiers: one, named small, that serves everything.
func tiers(ws []*worker) string {
	var list []string
	for _, w := range ws {
		list = append(list, fmt.Sprintf("{ name: %s, url: %q }", w.name, w.server.URL))
	}
	return "[ { name: small, model: sim, serves: [chat, completions, responses, messages, embeddings, rerank, score, tokenize, moderations, images, audio], workers: [ " +
		strings.Join(list, ", ") + " ] } ]"
}

// digest is how a configuration holds a key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// quiet waits until nothing is in flight anywhere, and checks that what was begun
// has ended and been counted once.
func (r *rig) quiet() {
	r.t.Helper()
	eventually(r.t, func() error {
		if !r.Alive() {
			return nil // the test has ended it
		}
		m, err := r.metrics()
		if err != nil {
			return err
		}
		if n := m.Sum("tierway_panics_total"); n != 0 {
			return fmt.Errorf("%v handlers panicked", n)
		}
		for _, name := range []string{"tierway_inflight", "tierway_worker_inflight", "tierway_worker_pending_tokens", "tierway_worker_output_tokens"} {
			for series, v := range m {
				if strings.HasPrefix(series, name) && v != 0 {
					return fmt.Errorf("%s is %v and nobody asks any more", series, v)
				}
			}
		}
		if begun, ended := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"); begun != ended {
			return fmt.Errorf("%v requests began and %v ended", begun, ended)
		}
		for _, w := range r.workers {
			if e, c := w.engine.Stats().Open, w.Stats().Open; e != 0 || c != 0 {
				return fmt.Errorf("%s still serves %d requests, %d before the chaos", w.name, e, c)
			}
		}
		return nil
	})
}

// hits is how many requests reached the workers.
func (r *rig) hits() (n int64) {
	for _, w := range r.workers {
		n += w.Stats().Requests
	}
	return n
}

// cancelled is how many requests the workers saw their client leave.
func (r *rig) cancelled() (n int64) {
	for _, w := range r.workers {
		n += w.Stats().Cancelled
	}
	return n
}

// reply is an answer that was read as far as it came.
type reply struct {
	id     string // the request's
	status int
	header http.Header
	body   string
	last   bool  // the connection ends with it
	err    error // of reading the body: a cut connection
}

// request makes a request with an id of its own, a UUID, which workers get too;
// headers are name and value in turn.
func (r *rig) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.data+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-Request-Id", fmt.Sprintf("00000000-0000-4000-8000-%012x", r.ids.Add(1)))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// try sends a request and reads its answer. It may be called on any goroutine.
func (r *rig) try(req *http.Request) (reply, error) {
	ctx, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	resp, err := r.client.Do(req.WithContext(ctx))
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got := reply{id: req.Header.Get("X-Request-Id"), status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
	if ctx.Err() != nil {
		return got, fmt.Errorf("the answer never ended after %q: %w", body, ctx.Err())
	}
	return got, nil
}

// do sends a request and reads its answer.
func (r *rig) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	got, err := r.try(r.request(context.Background(), method, path, body, headers...))
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func (r *rig) post(path, body string, headers ...string) reply {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

// line waits for the access log's line of a request.
func (r *rig) line(id string) (line map[string]any) {
	r.t.Helper()
	eventually(r.t, func() error {
		for _, line = range r.Access() {
			if line["request_id"] == id {
				return nil
			}
		}
		return errors.New("there is no access line of " + id)
	})
	return line
}

// open is a stream that is being read.
type open struct {
	t      *testing.T
	id     string
	resp   *http.Response
	cancel context.CancelFunc
	got    strings.Builder
}

// stream sends a request and returns when its header is there.
func (r *rig) stream(path, body string, headers ...string) *open {
	r.t.Helper()
	return r.streamOver(context.Background(), "http://"+r.data, path, body, headers...)
}

// streamOver is stream to another base URL.
func (r *rig) streamOver(ctx context.Context, base, path, body string, headers ...string) *open {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience+time.Minute)
	req := r.request(ctx, http.MethodPost, path, body, headers...)
	to, err := req.URL.Parse(base + path)
	if err != nil {
		r.t.Fatal(err)
	}
	req.URL = to
	resp, err := r.client.Do(req)
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		resp.Body.Close()
	})
	return &open{t: r.t, id: req.Header.Get("X-Request-Id"), resp: resp, cancel: cancel}
}

// until reads until what was read has the text.
func (o *open) until(text string) {
	o.t.Helper()
	buf := make([]byte, 4096)
	late := time.AfterFunc(patience, o.cancel)
	defer late.Stop()
	for !strings.Contains(o.got.String(), text) {
		n, err := o.resp.Body.Read(buf)
		o.got.Write(buf[:n])
		if err != nil && !strings.Contains(o.got.String(), text) {
			o.t.Fatalf("the stream ended with %v before %q; it was %q", err, text, o.got.String())
		}
	}
}

// rest reads to the end and returns all that came.
func (o *open) rest() (string, error) {
	late := time.AfterFunc(patience, o.cancel)
	defer late.Stop()
	b, err := io.ReadAll(o.resp.Body)
	o.got.Write(b)
	return o.got.String(), err
}
