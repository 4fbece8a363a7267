package traces

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
	"tierway/engines/chaos"
	"tierway/telemetry"
)

const (
	// patience bounds every wait for something that is expected to happen: far
	// more than it takes, on a machine that is busy with other tests.
	patience = 30 * time.Second
	// pace is how often a condition is looked at.
	pace = 5 * time.Millisecond

	gatewayService = "tierway"
	engineService  = "engine"

	apiKey     = "the-key-of-these-tests"
	limitedKey = "the-key-of-one-request-a-minute"
	adminKey   = "the-admin-key-of-these-tests"

	// A caller's trace.
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	sampled     = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampled   = "00-" + callerTrace + "-" + callerSpan + "-00"

	// holding is in the text of a prompt whose answer begins and does not go on
	// until the rig lets go.
	holding = "please hold"
	// prompt is what most requests ask; no span has it.
	prompt = "tell me the secret of the sphinx"
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

// rig is a gateway before engines of this process, and a collector that both
// export to.
type rig struct {
	*gateway.Process
	t         *testing.T
	collector *receiver
	engines   []*engines.Engine
	chaos     []*chaos.Handler
	urls      []string
	release   chan struct{}
	once      sync.Once
}

// newRig starts n engines, each behind a Chaos that does nothing yet.
func newRig(t *testing.T, n int) *rig {
	t.Helper()
	r := &rig{t: t, collector: newReceiver(t), release: make(chan struct{})}
	t.Cleanup(r.letGo)
	traces := engineTraces(t, r.collector.URL)
	for i := range n {
		e := engines.New(engines.Config{Name: fmt.Sprintf("w%d", i), Model: "sim", Slots: 4096, CacheTokens: 1 << 16, Record: true, Traces: traces,
			Script: func(_ string, body []byte) engines.Script {
				if bytes.Contains(body, []byte(holding)) {
					return engines.Script{Text: "one two three", HoldAfter: 1, Release: r.release}
				}
				return engines.Script{Text: "one two three"}
			}})
		c := chaos.New(e)
		s, err := engines.Start(c, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		t.Cleanup(s.Kill)
		r.engines, r.chaos, r.urls = append(r.engines, e), append(r.chaos, c), append(r.urls, s.URL)
	}
	return r
}

// engineTraces exports what engines do, until the test ends.
func engineTraces(t *testing.T, collector string) *telemetry.Traces {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	traces, err := telemetry.NewTraces(telemetry.TracesConfig{OTLP: collector, Sample: 1, Service: engineService, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { traces.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	return traces
}

// letGo ends the holding of all requests, also of those to come.
func (r *rig) letGo() { r.once.Do(func() { close(r.release) }) }

// soon has the gateway export often, so that no test waits.
const soon = "OTEL_BSP_SCHEDULE_DELAY=20"

// serve starts the gateway: telemetry are keys of that section, perWorker those of
// each worker, in YAML.
func (r *rig) serve(telemetry, perWorker string, env ...string) {
	r.t.Helper()
	var workers []string
	for i, url := range r.urls {
		workers = append(workers, fmt.Sprintf("{ name: w%d, url: %q, %s }", i, url, perWorker))
	}
	r.Process = gateway.Serve(r.t, fmt.Sprintf(`
auth: { keys: [ { name: acme, sha256: %s }, { name: slow, sha256: %s, limits: { rpm: 1, burst: 1 } } ] }
admin: { keys: [ { name: tests, sha256: %s } ] }
drain: { accept_grace: 1ms, timeout: 10s }
store: { sql: "" }
health: { path: "off" }
telemetry: { %s }
tiers: [ { name: small, model: sim, serves: [chat, completions], policy: { name: chwbl }, workers: [ %s ] } ]
models: { auto: classify }
`, digest(apiKey), digest(limitedKey), digest(adminKey), telemetry, strings.Join(workers, ", ")), append([]string{soon}, env...)...)
	r.APIKey = apiKey
}

// traced is serve with the rig's own collector.
func (r *rig) traced(perWorker string) {
	r.t.Helper()
	r.serve("otlp: "+r.collector.URL, perWorker)
}

// digest is how a configuration holds a key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// body is a chat of one turn.
func body(text string, stream bool) string {
	return fmt.Sprintf(`{"model":"auto","stream":%v,"max_tokens":20,"messages":[{"role":"user","content":%q}]}`, stream, text)
}

// ask posts a chat as the request id and returns its status and headers. header are
// pairs beside the key; an empty value leaves the header out.
func (r *rig) ask(id, body string, header ...string) (int, http.Header) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.BaseURL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0, nil
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + r.APIKey}, "X-Request-Id": {id}}
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Errorf("%s: %v", id, err)
		return 0, nil
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		r.t.Errorf("%s: %v", id, err)
	}
	return resp.StatusCode, resp.Header
}

// sum adds up a metric, 0 while it cannot be read.
func (r *rig) sum(name string, pairs ...string) float64 {
	s, err := r.Metrics()
	if err != nil {
		return 0
	}
	return s.Sum(name, pairs...)
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
