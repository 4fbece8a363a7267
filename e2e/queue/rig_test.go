package queue

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
)

const (
	// patience bounds every wait for something that is expected to happen: far
	// more than it takes, on a machine that is busy with other tests.
	patience = 30 * time.Second
	// pace is how often a condition is looked at.
	pace = 5 * time.Millisecond
	// short is how long a load lasts at least: what is compared needs so many
	// requests.
	short = 8 * time.Second
	// whole is the TIERWAY_SOAK from which on a load has its full size.
	whole = time.Minute

	adminKey = "the-admin-key-of-these-tests"

	// waitLong are keys of a queue in which nobody's time is over.
	waitLong = `max_wait: { interactive: 10m, background: 10m, batch: 10m }`
)

func TestMain(m *testing.M) { os.Exit(gateway.Main(m)) }

// soak is how long a load lasts, and whether it has its full size.
func soak(t *testing.T) (d time.Duration, full bool) {
	t.Helper()
	v := os.Getenv("TIERWAY_SOAK")
	if v == "" {
		return short, false
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("TIERWAY_SOAK is %q: %v", v, err)
	}
	return max(d, short), d >= whole
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

// worker is one engine. It listens on an address of its own, from listen on.
type worker struct {
	*engines.Engine
	name, addr string
	front      http.Handler // what listens; nil: the engine itself
	server     *engines.Server
}

// rig is a gateway before engines of this process.
type rig struct {
	*gateway.Process
	t       *testing.T
	data    string // the data plane's address
	own     settings
	workers []*worker
	client  *http.Client
	ids     atomic.Int64
	scheme  string
	release chan struct{} // closed when engines no longer hold what they were asked to hold
	once    sync.Once
}

// holding is in the text of a prompt whose answer begins and does not go on until
// the rig lets go.
const holding = "please hold"

// answerText is what an engine says when it does not make up an answer.
const answerText = "The quick brown fox jumps over the lazy dog."

// newRig starts n engines named w0, w1, … that listen. The gateway is started by
// serve.
func newRig(t *testing.T, n int, c engines.Config) *rig {
	t.Helper()
	r := unheardRig(t, n, c)
	for _, w := range r.workers {
		w.listen(t)
	}
	return r
}

// unheardRig is newRig whose engines do not listen yet.
func unheardRig(t *testing.T, n int, c engines.Config) *rig {
	t.Helper()
	r := &rig{t: t, scheme: "http://", release: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true, TLSClientConfig: anyCertificate()}}}
	script := c.Script
	c.Script = func(path string, body []byte) engines.Script {
		if bytes.Contains(body, []byte(holding)) {
			return engines.Script{Text: answerText, HoldAfter: 1, Release: r.release}
		}
		if script != nil {
			return script(path, body)
		}
		return engines.Script{Text: answerText}
	}
	if c.Slots == 0 {
		c.Slots = 4096 // the gateway's bounds are the only ones
	}
	c.Record = true
	for i := range n {
		c.Name, c.Model = fmt.Sprintf("w%d", i), "sim"
		w := &worker{Engine: engines.New(c), name: c.Name, addr: haven(i)}
		r.workers = append(r.workers, w)
		t.Cleanup(w.Close)
		t.Cleanup(w.stop)
	}
	t.Cleanup(r.letGo)
	return r
}

// haven is a free address of the i-th worker's own: its port is below those that
// the kernel gives to outgoing connections, and not on the gateway's address
// where loopback is more than one.
func haven(i int) string {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 2+i))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "127.0.0.1:0" // listening on it tells why
	}
	defer l.Close()
	return l.Addr().String()
}

// listen makes the engine serve.
func (w *worker) listen(t *testing.T) {
	t.Helper()
	if w.front == nil {
		w.front = w.Engine
	}
	eventually(t, func() (err error) {
		w.server, err = engines.Start(w.front, w.addr)
		return err
	})
}

func (w *worker) stop() {
	if w.server != nil {
		w.server.Kill()
	}
}

// letGo ends the holding of all requests, also of those to come.
func (r *rig) letGo() { r.once.Do(func() { close(r.release) }) }

// tier is a configuration's tiers: one, named small, whose workers and itself have
// keys of a test's own, in YAML.
func (r *rig) tier(perWorker, perTier string) string {
	var list []string
	for _, w := range r.workers {
		list = append(list, fmt.Sprintf("{ name: %s, url: %q, %s }", w.name, "http://"+w.addr, perWorker))
	}
	if perTier != "" {
		perTier = ", " + perTier
	}
	return fmt.Sprintf("[ { name: small, model: sim, serves: [chat, completions, responses, messages]%s, workers: [ %s ] } ]",
		perTier, strings.Join(list, ", "))
}

// serve starts the gateway. What own has replaces the rig's settings; it has the
// tiers. When the test ends the gateway must be quiet.
func (r *rig) serve(own settings) {
	r.t.Helper()
	r.own = settings{
		"admin": `{ keys: [ { name: tests, sha256: ` + digest(adminKey) + ` } ] }`,
		"auth":  `{ required: false }`,
		"hosts": `[ gateway ]`,
		// Engines that a test does not stop are up.
		"health": `{ path: "off" }`,
		"drain":  `{ accept_grace: 1ms, timeout: 20s }`,
		"store":  `{ sql: "" }`,
		// The bounds of the tests are theirs alone.
		"saturation": `{ waiting: 0, kv_usage: 0 }`,
	}
	maps.Copy(r.own, own)
	if r.own["tls"] != "" {
		r.scheme = "https://"
	}
	r.Process = gateway.Start(r.t, r.own.String())
	r.data = strings.TrimSuffix(strings.TrimPrefix(r.BaseURL, "http://"), "/v1")
	r.t.Cleanup(func() {
		r.letGo()
		r.quiet()
		r.client.CloseIdleConnections() // a stop takes its time with those of HTTP/2
	})
}

// reload changes the configuration by what own has, and tells the gateway.
func (r *rig) reload(own settings) {
	r.t.Helper()
	before := r.reloads()
	maps.Copy(r.own, own)
	if err := os.WriteFile(r.File, []byte(r.own.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.Signal(syscall.SIGHUP)
	eventually(r.t, func() error {
		if r.reloads() == before {
			return errors.New("the gateway does not reload: " + r.Log())
		}
		return nil
	})
}

func (r *rig) reloads() float64 {
	return r.sum("tierway_config_reloads_total", `result="ok"`)
}

// digest is how a configuration holds a key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// eventually asks again until there is no error, and fails with the last one.
func eventually(t testing.TB, holds func() error) {
	t.Helper()
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
			t.Fatalf("waited %v in vain: %v", patience, err)
		}
	}
}
