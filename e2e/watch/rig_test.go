package watch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
	"tierway/engines/chaos"
)

const (
	// patience bounds every wait for something that is expected to happen: far
	// more than it takes, on a machine that is busy with other tests.
	patience = 30 * time.Second
	// pace is how often a condition is looked at.
	pace = 5 * time.Millisecond

	tenantKey = "the-tenant-key-of-these-tests"
	adminKey  = "the-admin-key-of-these-tests"

	// answerText is what an engine says unless a test's own script does.
	answerText = "The quick brown fox jumps over the lazy dog."
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() { // a developer's own
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			if err := os.Unsetenv(name); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	os.Exit(gateway.Main(m))
}

// soak is how long a load lasts: short, or longer where TIERWAY_SOAK says so.
func soak(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv("TIERWAY_SOAK")
	if v == "" {
		return short
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("TIERWAY_SOAK is %q: %v", v, err)
	}
	return max(d, short)
}

// settings is a configuration: each top-level key with its value in YAML.
type settings map[string]string

// String writes the file.
func (s settings) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", key, s[key])
	}
	return b.String()
}

// with returns the file with another value of a key.
func (s settings) with(key, value string) string {
	s = maps.Clone(s)
	s[key] = value
	return s.String()
}

// worker is one engine behind a Chaos that does nothing until it is told to.
type worker struct {
	*chaos.Handler
	engine *engines.Engine
	server *engines.Server
	name   string

	mu    sync.Mutex     // guards asked
	asked map[string]int // requests for answers that came, well or ill served, by their ids
}

// rig is a gateway before engines of this process.
type rig struct {
	*gateway.Process
	t       *testing.T
	own     settings
	workers []*worker
	client  *http.Client
	ids     atomic.Int64
}

// newRig starts n engines named w0, w1, …, each behind front where there is one.
// The gateway is started by serve.
func newRig(t *testing.T, n int, c engines.Config, front func(http.Handler) http.Handler) *rig {
	t.Helper()
	r := &rig{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}}
	if c.Script == nil {
		c.Script = func(string, []byte) engines.Script { return engines.Script{Text: answerText} }
	}
	for i := range n {
		c.Name, c.Model = fmt.Sprintf("w%d", i), "sim"
		w := &worker{engine: engines.New(c), name: c.Name, asked: map[string]int{}}
		w.Handler = chaos.New(w.engine)
		var h http.Handler = w.Handler
		if front != nil {
			h = front(h)
		}
		w.listen(t, h, haven(i))
		t.Cleanup(w.engine.Close)
		t.Cleanup(w.server.Kill)
		r.workers = append(r.workers, w)
	}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// listen makes the worker serve h and count who asks for an answer.
func (w *worker) listen(t *testing.T, h http.Handler, addr string) {
	t.Helper()
	server, err := engines.Start(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			w.mu.Lock()
			w.asked[req.Header.Get("X-Request-Id")]++
			w.mu.Unlock()
		}
		h.ServeHTTP(rw, req)
	}), addr)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
}

// haven is a free address of the i-th worker's own, which no connection of somebody
// else takes when it is dead.
func haven(i int) string {
	own := fmt.Sprintf("127.0.0.%d:0", 2+i)
	l, err := net.Listen("tcp", own)
	if err != nil {
		return "127.0.0.1:0" // where loopback is one address only
	}
	l.Close()
	return own
}

// tiers is a configuration's tiers: one, named small, of all workers, each with
// keys of a test's own in YAML.
func (r *rig) tiers(perWorker string) string {
	var list []string
	for _, w := range r.workers {
		list = append(list, fmt.Sprintf("{ name: %s, url: %q, %s }", w.name, w.server.URL, perWorker))
	}
	return fmt.Sprintf("[ { name: small, model: sim, serves: [chat, completions, responses, messages, embeddings, rerank, audio], workers: [ %s ] } ]", strings.Join(list, ", "))
}

// serve starts the gateway. What own has replaces the rig's settings; env is added
// to its environment. When the test ends the gateway must be quiet.
func (r *rig) serve(own settings, env ...string) {
	r.t.Helper()
	r.own = settings{
		"admin":  `{ keys: [ { name: tests, sha256: ` + digest(adminKey) + ` } ] }`,
		"auth":   `{ keys: [ { name: acme, sha256: ` + digest(tenantKey) + ` } ] }`,
		"health": `{ path: "off" }`,
		"drain":  `{ accept_grace: 1ms, timeout: 20s }`,
		"store":  `{ sql: "" }`,
		"models": `{ auto: classify }`,
		"tiers":  r.tiers(""),
	}
	maps.Copy(r.own, own)
	r.Process = gateway.Start(r.t, r.own.String(), env...)
	r.t.Cleanup(r.quiet)
}

// beside is a file in the folder of the configuration.
func (r *rig) beside(name string) string { return filepath.Join(filepath.Dir(r.File), name) }

// reload changes the configuration by what own has, and waits until it is in force.
func (r *rig) reload(own settings) {
	r.t.Helper()
	before := r.sum("tierway_config_reloads_total")
	maps.Copy(r.own, own)
	if err := os.WriteFile(r.File, []byte(r.own.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.Signal(syscall.SIGHUP)
	r.eventually(func() error {
		if r.sum("tierway_config_reloads_total") <= before {
			return errors.New("the gateway does not reload")
		}
		return nil
	})
	if n := r.sum("tierway_config_reloads_total", `result="rejected"`); n != 0 {
		r.t.Fatalf("%v reloads were rejected", n)
	}
}

// sum adds up a metric's series at this moment, -1 when it cannot be had.
func (r *rig) sum(name string, pairs ...string) float64 {
	m, err := r.Metrics()
	if err != nil {
		return -1
	}
	return m.Sum(name, pairs...)
}

// quiet waits until nobody waits and nothing is in flight anywhere, and checks
// that what was begun has ended and been counted once.
func (r *rig) quiet() {
	r.t.Helper()
	r.eventually(func() error {
		if !r.Alive() {
			return nil // the test has ended it
		}
		m, err := r.Metrics()
		if err != nil {
			return err
		}
		if n := m.Sum("tierway_panics_total"); n != 0 {
			return fmt.Errorf("%v handlers panicked", n)
		}
		for _, name := range []string{"tierway_inflight", "tierway_queue_depth", "tierway_queue_bytes", "tierway_worker_inflight",
			"tierway_worker_pending_tokens", "tierway_worker_output_tokens"} {
			if v := m.Sum(name); v != 0 {
				return fmt.Errorf("%s is %v and nobody asks any more", name, v)
			}
		}
		return adds(m)
	})
}

// adds says what is wrong with the sums of a scrape: who has started has ended or
// is in flight.
func adds(m gateway.Samples) error {
	started, ended, now := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"), m.Sum("tierway_inflight")
	if started != ended+now {
		return fmt.Errorf("%v requests have started, %v have ended and %v are in flight", started, ended, now)
	}
	return nil
}

// digest is how a configuration holds a key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// eventually asks again until there is no error, and fails with the last one.
func (r *rig) eventually(holds func() error) {
	r.t.Helper()
	late := time.After(patience)
	again := time.NewTicker(pace)
	defer again.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-late:
			r.t.Fatalf("waited %v in vain: %v", patience, err)
		}
	}
}
