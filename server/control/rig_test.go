package control

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tierway/config"
	"tierway/fixedseed"
	"tierway/memnet"
	"tierway/telemetry"
)

// newTestControl returns a Control with the configuration in force.
func newTestControl(t testing.TB, yaml string) *Control {
	t.Helper()
	return newTestControlOn(t, memnet.New(), yaml)
}

// newTestControlOn returns a Control with the configuration in force and workers on a network.
func newTestControlOn(t testing.TB, network *memnet.Network, yaml string) *Control {
	t.Helper()
	if !strings.Contains(yaml, "store:") {
		yaml = "store: { sql: \"\" }\n" + yaml
	}
	f, err := config.Parse("test.yaml", []byte("classifier: { preset: none }\n"+yaml),
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	log, metrics := slog.New(slog.DiscardHandler), telemetry.New("test")
	c, err := New(Options{Config: f, Log: log, Metrics: metrics, Rand: fixedseed.Uint64(),
		Recover: NewRecoverer(log, metrics), Dial: network.Dial})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// counted returns the value of a metric without labels.
func counted(m *telemetry.Metrics, name string) string {
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// small has one tier with one worker, at a port without a server.
const small = `
auth: { required: false }
health: { path: "off" }
tiers: [ { name: small, model: m, workers: [ { name: w0, url: "http://127.0.0.1:9" } ] } ]
`

// until waits until ok holds, in a bubble in virtual time.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}
