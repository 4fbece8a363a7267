package handover

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"tierway/config"
	"tierway/engines"
	"tierway/memnet"
	"tierway/server"
	"tierway/telemetry"
)

// TestMain sets what package bubble sets for tests in virtual time.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(512 << 20)
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
}

// newFleet starts engines and a gateway. The first character of a worker's name is that of its role: p, d or b. keys
// are further keys of the pool.
func newFleet(t *testing.T, c engines.Config, keys string, names ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, network: memnet.New()}
	if c.Handover != "" {
		c.Peers = new(engines.Peers)
	}
	c.Model, c.Prefill, c.PerToken, c.Interval = modelName, engineRate, engineToken, eventTokens
	c.CacheTokens, c.Context = cacheTokens, 1<<18
	engine := "vllm"
	if c.Handover == engines.HandoverSGLang {
		engine = "sglang"
	}
	var list []string
	for i, name := range names {
		w := &worker{name: name, role: map[byte]string{'p': "prefill", 'd': "decode"}[name[0]],
			address: fmt.Sprintf("127.0.0.1:%d", 9000+i)}
		c.Name, c.Seed, c.Role, c.KVAddress = name, uint64(i), w.role, fmt.Sprintf("10.1.2.%d:14579", i)
		if c.Handover == engines.HandoverSGLang {
			c.KVAddress = "" // its bootstrap servers have the host of the worker's URL
		}
		w.Engine = engines.New(c)
		role := ""
		if w.role != "" {
			role = ", role: " + w.role
		}
		if c.Handover == engines.HandoverNccl {
			role += fmt.Sprintf(", kv_address: %q", c.KVAddress)
		}
		list = append(list, fmt.Sprintf("{ name: %s, url: %q%s }", name, "http://"+w.address, role))
		f.workers = append(f.workers, w)
		f.listen(w)
	}
	f.serve(fmt.Sprintf(`
listen: %q
store: { sql: "" }
classifier: { preset: none }
drain: { accept_grace: 0s }
auth: { required: false }
retry: { attempts: 3, budget: 1 }
tiers: [ { name: small, model: %s, engine: %s, %s workers: [ %s ] } ]
`, strings.TrimPrefix(gatewayURL, "http://"), modelName, engine, keys, strings.Join(list, ", ")))
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
	w.server = engines.Serve(w.Engine, l)
	f.t.Cleanup(w.server.Kill)
}

// restart ends the worker's process, whose requests fail, and starts a new one after the time down.
func (f *fleet) restart(w *worker, down time.Duration) {
	f.t.Helper()
	w.server.Kill()
	w.Restart()
	time.Sleep(down)
	f.listen(w)
}

// serve starts the gateway.
func (f *fleet) serve(text string) {
	f.t.Helper()
	file, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		f.t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	s, err := server.New(server.Options{Config: file, Metrics: telemetry.New("test"),
		Log:    slog.New(slog.DiscardHandler),
		Rand:   func() uint64 { mu.Lock(); defer mu.Unlock(); return random.Uint64() },
		Listen: f.network.Listen, Dial: dialPeeked(f.t, f.network)})
	if err == nil {
		err = s.Listen()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}
