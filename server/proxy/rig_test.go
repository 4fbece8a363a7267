package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"tierway/config"
	"tierway/decisions"
	"tierway/engines"
	"tierway/fixedseed"
	"tierway/memnet"
	"tierway/openai"
	"tierway/pairing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
)

// proxyRig is a data plane with engines in the process of the test.
type proxyRig struct {
	*Proxy
	t         *testing.T
	network   *memnet.Network
	transport *http.Transport // of clients
	text      string          // access log; mu guards it
	mu        sync.Mutex
	url       string
}

// Write appends to the access log.
func (r *proxyRig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += string(p)
	return len(p), nil
}

// logged returns the access log, with the lines of all requests that have ended.
func (r *proxyRig) logged() string {
	r.FlushRecords()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text
}

// newProxyRig serves the configuration yaml. Its %s is replaced by a list of workers, one for each
// handler.
func newProxyRig(t *testing.T, yaml string, handlers ...http.Handler) *proxyRig {
	t.Helper()
	return newProxyRigOn(t, memnet.New(), yaml, handlers...)
}

// newProxyRigOn is newProxyRig on a network that has other servers.
func newProxyRigOn(t *testing.T, network *memnet.Network, yaml string, handlers ...http.Handler) *proxyRig {
	t.Helper()
	var list []string
	for i, h := range handlers {
		w := network.NewServer(h)
		t.Cleanup(w.Close)
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q }", i, w.URL))
	}
	text := "store: { sql: \"\" }\nclassifier: { preset: none }\nhealth: { path: \"off\" }\n" +
		fmt.Sprintf(yaml, strings.Join(list, ", "))
	f, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	r := &proxyRig{t: t, network: network, transport: network.Transport()}
	log, metrics := slog.New(slog.DiscardHandler), telemetry.New("test")
	control, err := control.New(control.Options{Config: f, Log: log, Metrics: metrics, Rand: fixedseed.Uint64(),
		Recover: control.NewRecoverer(log, metrics), Dial: network.Dial})
	if err != nil {
		t.Fatal(err)
	}
	r.Proxy = New(Options{Control: control, Access: r, Decisions: decisions.NewLog(f.Decisions.Keep), Log: log,
		Metrics: metrics, Rand: fixedseed.Uint64(), Samples: new(pairing.Samples)})
	if err := control.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	front := network.NewServer(r.Handler(nil))
	r.url = front.URL
	t.Cleanup(func() {
		r.transport.CloseIdleConnections()
		front.Close()
		control.Close()
		if n := r.Inflight(); n != 0 {
			t.Errorf("%d requests are still in flight", n)
		}
		r.checkUnloaded()
	})
	return r
}

// checkUnloaded fails if a worker has a load.
func (r *proxyRig) checkUnloaded() {
	r.t.Helper()
	for _, g := range r.control.Pools.Gauges() {
		if g.Inflight != 0 || g.PendingTokens != 0 || g.OutputTokens != 0 {
			r.t.Errorf("%s has the load %+v", g.Worker, g)
		}
	}
}

// post sends a body with the key.
func (r *proxyRig) post(url, body string) (resp *http.Response, text string, err error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer key")
	if resp, err = r.transport.RoundTrip(req); err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp, string(all), err
}

// chat sends a chat completion to the tier small.
func (r *proxyRig) chat() (resp *http.Response, text string) {
	r.t.Helper()
	resp, text, err := r.post(r.url+"/v1/chat/completions",
		`{"model":"small","messages":[{"role":"user","content":"Hi"}]}`)
	if err != nil {
		r.t.Error(err)
	}
	return resp, text
}

// lastRecord returns the record of the request that ended last.
func (r *proxyRig) lastRecord() *decisions.Decision {
	r.FlushRecords()
	return r.records.log.Last(1)[0]
}

// counter returns the value of a metric.
func (r *proxyRig) counter(name string) string {
	r.FlushRecords()
	rec := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if n, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(n)
		}
	}
	return ""
}

// limitedTier configures one tier, and a tenant with limits.
const limitedTier = `
auth: { keys: [ { name: acme, sha256: 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683, limits: LIMITS } ] }
tiers: [ { name: small, model: fake-7b, workers: [ %s ] } ]
`

// openTier configures one tier without keys. Requests go to its workers in turn.
const openTier = `
auth: { required: false }
breaker: { consecutive_failures: 1000, min_requests: 1000 }
policy: { name: round_robin }
tiers: [ { name: small, model: fake-7b, workers: [ %s ] } ]
`

func fakeAnswers() http.Handler {
	return engines.New(engines.Config{Name: "fake", Model: "fake-7b", Seed: 1, CacheTokens: 4096})
}

func TestPanicIsAnErrorBeforeTheAnswerAndACutWithinIt(t *testing.T) {
	r := newProxyRig(t, openTier, fakeAnswers())
	e := newEngine()
	e.POST("/before", func(c *gin.Context) {
		r.begin(c.Writer, intake.Inbound{HTTP: c.Request, Dialect: openai.Chat, Shape: openai.Chat}).run(func() error {
			panic("the prompt")
		})
	})
	e.POST("/within", func(c *gin.Context) {
		x := r.begin(c.Writer, intake.Inbound{HTTP: c.Request, Dialect: openai.Chat, Shape: openai.Chat})
		x.run(func() error {
			x.answer.sendHead(http.StatusOK, func(h http.Header) { h.Set("Content-Type", "text/event-stream") })
			if err := x.answer.write([]byte("data: {}\n\n"), true); err != nil {
				t.Error(err)
			}
			panic(errors.New("the prompt"))
		})
	})
	front := r.network.NewServer(e)
	defer front.Close()
	if resp, text, _ := r.post(front.URL+"/before", "{}"); resp.StatusCode != 500 ||
		!strings.Contains(text, `"code":"internal_error"`) || strings.Contains(text, "prompt") {
		t.Errorf("before: %d %s", resp.StatusCode, text)
	}
	if resp, text, err := r.post(front.URL+"/within", "{}"); err == nil || resp.StatusCode != 200 {
		t.Errorf("within: %d %q ended well (%v)", resp.StatusCode, text, err)
	}
	if strings.Contains(r.logged(), "prompt") {
		t.Errorf("the log contains the value of the panic: %s", r.logged())
	}
}

// TestSlowUploadDoesNotRefillABucket: a request is charged when its body is complete. If it were charged
// at its start, the limits would see times out of order.
func TestSlowUploadDoesNotRefillABucket(t *testing.T) {
	r := newProxyRig(t, strings.Replace(limitedTier, "LIMITS", "{ rpm: 1, burst: 1, tpm: 100000 }", 1), fakeAnswers())
	if resp, text := r.chat(); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	// The charge of a request that began two minutes ago.
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	x := r.newExchange(r.control.Snapshot(), c.Writer, intake.Unrouted(httptest.NewRequest("POST", "/", nil)))
	x.in.Start = time.Now().Add(-2 * time.Minute)
	x.caller.Caller, _ = x.in.Snap.Identity.Directory.Authenticate("key", x.in.Start)
	var err error
	if x.parsed, err = r.intake.ReadUntouched(&x.in, &x.caller, nil); err != nil {
		t.Fatal(err)
	}
	if err := x.charge(r.control.Stores.Limits); err == nil {
		t.Error("the slow request is admitted")
	}
	if resp, _ := r.chat(); resp.StatusCode != 429 {
		t.Errorf("the request after it has status %d, want 429", resp.StatusCode)
	}
}

func TestPanicWhileRelayingReleasesTheLoadAndIsRecorded(t *testing.T) {
	r := newProxyRig(t, openTier, fakeAnswers())
	r.buffers.bodies = sync.Pool{New: func() any { return 1 }} // panics after the worker has answered
	if resp, text := r.chat(); resp.StatusCode != 500 || !strings.Contains(text, "internal_error") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	r.checkUnloaded()
	d := r.lastRecord()
	if len(d.Attempts) != 1 || d.Attempts[0].Worker != d.Worker || d.Attempts[0].ErrorType != decisions.ErrorCut ||
		d.Attempts[0].Error == "" {
		t.Errorf("the record's worker is %q, its attempts are %+v", d.Worker, d.Attempts)
	}
}

// TestSpentRetryBudgetForbidsClientRetries: otherwise the SDKs would retry beyond the budget.
func TestSpentRetryBudgetForbidsClientRetries(t *testing.T) {
	var attempts atomic.Int64
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := newProxyRig(t, openTier, fails, fails)
	later := time.Now().Add(time.Hour) // so that the trickle adds nothing meanwhile
	for _, c := range []struct {
		saved int // requests since the budget was spent; five save up one retry
		want  int64
	}{{5, 2}, {0, 1}} {
		for r.budget.spendRetry(later) {
		}
		for range c.saved {
			r.budget.creditRequest()
		}
		attempts.Store(0)
		got, _ := r.chat()
		if n := attempts.Load(); n != c.want {
			t.Errorf("after %d requests: %d attempts, want %d", c.saved, n, c.want)
		}
		if v := got.Header.Get("X-Should-Retry"); got.StatusCode != http.StatusBadGateway || v != "false" {
			t.Errorf("after %d requests: status %d, x-should-retry %q, want 502 and false", c.saved, got.StatusCode, v)
		}
	}
}

// TestPanicWhileRecordingReleasesEverything: the tenant's only concurrent request is released.
func TestPanicWhileRecordingReleasesEverything(t *testing.T) {
	r := newProxyRig(t, strings.Replace(limitedTier, "LIMITS", "{ concurrent: 1 }", 1), fakeAnswers())
	ring := r.records.ring
	r.records.ring = nil // panics when the record is published
	for range 2 {
		if resp, text := r.chat(); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	if r.records.ring = ring; r.counter("tierway_panics_total") != "2" {
		t.Errorf("%s panics", r.counter("tierway_panics_total"))
	}
}

// TestPanicInAConsumerOfRecordsIsCounted, and the next request is served.
func TestPanicInAConsumerOfRecordsIsCounted(t *testing.T) {
	r := newProxyRig(t, strings.Replace(limitedTier, "LIMITS", "{ concurrent: 1 }", 1), fakeAnswers())
	r.records.access = &decisions.AccessLog{} // panics when the record is written
	for range 2 {
		if resp, text := r.chat(); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	if n := r.counter("tierway_panics_total"); n != "2" {
		t.Errorf("%s panics", n)
	}
}
