package liveness

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tierway/e2e/bubble"
	"tierway/http1"
	"tierway/memnet"
	"tierway/server"
	"tierway/telemetry"
)

func TestMain(m *testing.M) {
	bubble.Prepare(true)
	os.Exit(m.Run())
}

// cluster is a gateway in front of engines, on a network in memory.
type cluster struct {
	t       *testing.T
	network *memnet.Network
	wire    *wire
	workers []*process
	client  *http1.Client
	metrics *telemetry.Metrics
	log     *syncBuffer
	random  *rand.Rand // of the load; used by the test's goroutine
}

const gatewayAddress = "127.0.0.1:8080"

// tenantNames are the tenants of every gateway; their names are their keys. Immutable.
var tenantNames = []string{"acme", "bolt", "cork", "dune"}

// newCluster starts engines w0, w1, … and a gateway with the usual settings. policy may be empty.
func newCluster(t *testing.T, policy string, engines ...engineConfig) *cluster {
	t.Helper()
	c := &cluster{t: t, network: memnet.New(), metrics: telemetry.New("test"), log: new(syncBuffer),
		random: rand.New(rand.NewPCG(1, 2))}
	c.wire = newWire(c.network)
	for i, e := range engines {
		p, err := startProcess(c.network, fmt.Sprintf("w%d", i), fmt.Sprintf("127.0.0.1:%d", 9000+i), e)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.stopProcess)
		c.workers = append(c.workers, p)
	}
	bubble.Serve(t, c.settings(policy), server.Options{Metrics: c.metrics, Log: slog.New(slog.NewTextHandler(c.log, nil)),
		Listen: c.network.Listen, Dial: c.wire.dial})
	c.client = http1.New(http1.Config{Network: "tcp", Address: gatewayAddress, Host: gatewayAddress,
		Dial: c.network.Dial})
	t.Cleanup(c.client.Close)
	return c
}

// settings returns the configuration of the gateway: the defaults, with keys, a tier and no database.
func (c *cluster) settings(policy string) string {
	var keys, list []string
	for _, name := range tenantNames {
		keys = append(keys, fmt.Sprintf("{ name: %s, sha256: %x }", name, sha256.Sum256([]byte(name))))
	}
	for _, w := range c.workers {
		list = append(list, fmt.Sprintf("{ name: %s, url: %q }", w.name, "http://"+w.address))
	}
	text := fmt.Sprintf(`
listen: %q
store: { sql: "" }
classifier: { preset: none }
drain: { accept_grace: 0s }
auth: { keys: [ %s ] }
tiers: [ { name: small, model: %s, workers: [ %s ] } ]
`, gatewayAddress, strings.Join(keys, ", "), modelName, strings.Join(list, ", "))
	if policy != "" {
		text += "policy: { name: " + policy + " }\n"
	}
	return text
}

// metric returns the sum of the samples of a metric whose labels contain a text.
func (c *cluster) metric(name, labels string) (sum float64) {
	answer := httptest.NewRecorder()
	c.metrics.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		rest, found := strings.CutPrefix(line, name)
		if !found || !strings.HasPrefix(rest, "{") || !strings.Contains(rest, labels) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			c.t.Fatalf("the metric %q has no value: %v", line, err)
		}
		sum += value
	}
	return sum
}

// eligible reports whether the gateway may send requests to a worker: it is up, and its breaker is closed or
// half-open. It stays half-open until the policy selects the worker for a probe.
func (c *cluster) eligible(w *process) bool {
	label := `worker="` + w.name + `"`
	return c.metric("tierway_worker_up", label) == 1 && c.metric("tierway_worker_breaker", label) < 2
}

// syncBuffer collects a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write is part of io.Writer.
func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns what was written.
func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
