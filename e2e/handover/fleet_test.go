package handover

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/engines"
	"tierway/memnet"
	"tierway/server"
)

func TestMain(m *testing.M) {
	bubble.Prepare(true)
	os.Exit(m.Run())
}

const (
	engineRate  = 10_000 // prompt tokens per second
	engineToken = 20 * time.Millisecond
	eventTokens = 4 // of a stream's event: fewer events take less of the machine's time
	cacheTokens = 1_024_000
	modelName   = "sim"
	gatewayURL  = "http://127.0.0.1:8080"
)

// fleet is a gateway in front of engines, on a network in memory.
type fleet struct {
	t       *testing.T
	network *memnet.Network
	workers []*worker
	client  *http.Client
}

// worker is an engine on a fixed address.
type worker struct {
	*engines.Engine
	name, role, address string
	server              *engines.Server

	mu     sync.Mutex
	ending bool           // its process is killed
	cut    map[string]int // requests that it had when it was killed, by X-Request-Id
	served map[string]end // the other ones
	downs  [][2]time.Time // from when until when it accepted no connection
}

// end is the end of a request.
type end struct {
	status int
	at     time.Time
}

// statusWriter records the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the writer for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP answers a request, and records how it ended.
func (w *worker) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	out := &statusWriter{to, http.StatusOK}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		id := r.Header.Get("X-Request-Id")
		if w.ending {
			w.cut[id]++
		} else {
			w.served[id] = end{out.status, time.Now()}
		}
	}()
	w.Engine.ServeHTTP(out, r)
}

// setEnding records that the process is killed, or that a new one begins.
func (w *worker) setEnding(ending bool) {
	w.mu.Lock()
	w.ending = ending
	w.mu.Unlock()
}

// newFleet starts engines and a gateway. The first character of a worker's name is that of its role: p, d or b. keys
// are further keys of the pool.
func newFleet(t *testing.T, c engines.Config, keys string, names ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, network: memnet.New()}
	if c.Handover != "" {
		c.Peers = new(engines.Peers)
	}
	c.Model, c.PerToken, c.Interval = modelName, engineToken, eventTokens
	c.Prefill, c.CacheTokens, c.Context = cmp.Or(c.Prefill, engineRate), cacheTokens, cmp.Or(c.Context, 1<<18)
	engine := "vllm"
	if c.Handover == engines.HandoverSGLang {
		engine = "sglang"
	}
	var list []string
	for i, name := range names {
		w := &worker{name: name, role: map[byte]string{'p': "prefill", 'd': "decode"}[name[0]],
			address: fmt.Sprintf("127.0.0.1:%d", 9000+i), cut: map[string]int{}, served: map[string]end{}}
		c.Name, c.Seed, c.Role, c.KVAddress = name, uint64(i), w.role, fmt.Sprintf("10.1.2.%d:14579", i)
		if c.Handover == engines.HandoverSGLang {
			c.KVAddress = "" // its bootstrap servers have the host of the worker's URL
		}
		w.Engine = engines.New(c)
		role := ""
		if w.role != "" {
			role = ", role: " + w.role
		}
		if c.Handover == engines.HandoverP2PNCCL {
			role += fmt.Sprintf(", kv_address: %q", c.KVAddress)
		}
		list = append(list, fmt.Sprintf("{ name: %s, url: %q%s }", name, "http://"+w.address, role))
		f.workers = append(f.workers, w)
		f.listen(w)
	}
	bubble.Serve(t, fmt.Sprintf(`
listen: %q
store: { sql: "" }
classifier: { preset: none }
drain: { accept_grace: 0s }
auth: { required: false }
retry: { attempts: 3 }
tiers: [ { name: small, model: %s, engine: %s, %s workers: [ %s ] } ]
`, strings.TrimPrefix(gatewayURL, "http://"), modelName, engine, keys, strings.Join(list, ", ")),
		server.Options{Listen: f.network.Listen, Dial: dialPeeked(t, f.network)})
	transport := &http.Transport{DialContext: f.network.Dial, MaxIdleConnsPerHost: 256, DisableCompression: true}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	time.Sleep(5 * time.Second) // the gateway learns what the engines are
	return f
}

// listen opens the worker's port.
func (f *fleet) listen(w *worker) {
	f.t.Helper()
	l, err := f.network.Listen("tcp", w.address)
	if err != nil {
		f.t.Fatal(err)
	}
	w.server = engines.Serve(w, l)
	f.t.Cleanup(w.server.Kill)
}

// restart ends the worker's process, whose requests fail, and starts a new one after the time down.
func (f *fleet) restart(w *worker, down time.Duration) {
	f.t.Helper()
	w.setEnding(true)
	w.Engine.Kill()
	w.server.Kill()
	w.Restart()
	w.setEnding(false)
	killed := time.Now()
	time.Sleep(down)
	f.listen(w)
	w.downs = append(w.downs, [2]time.Time{killed, time.Now()})
}
