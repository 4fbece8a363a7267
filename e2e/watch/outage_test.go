package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

const (
	// outage is the duration of the load. It is some seconds, because the bound is per second.
	outage = 3 * time.Second
	// linesPerSecond is the maximum number of lines of one message per second.
	linesPerSecond = 10
)

// TestAnOutageDoesNotFloodTheLog: OB-08: all workers, Redis and the collector are down, the log level
// is debug, and clients send requests. No message is written more than ten times in any second, and
// every request has its access line.
func TestAnOutageDoesNotFloodTheLog(t *testing.T) {
	t.Parallel() // another parallel test mostly waits
	r := newRig(t, 4, engines.Config{}, nil)
	r.Serve(rig.Settings{
		"auth":      "{ keys: [ { name: acme, sha256: " + rig.Digest(rig.TenantKey) + ", limits: { rpm: 100000000 } } ] }",
		"store":     `{ sql: "", redis: "redis://127.0.0.1:1" }`,
		"telemetry": `{ otlp: "http://127.0.0.1:1" }`,
		"log":       "{ level: debug }",
		"breaker":   "{ consecutive_failures: 1, open_for: 10ms }",
		"retry":     "{ attempts: 5, budget: 1 }",
	}, "OTEL_BSP_SCHEDULE_DELAY=5")
	for _, w := range r.Workers {
		w.Server.Kill()
	}
	var sent, served atomic.Int64
	var clients sync.WaitGroup
	begin := time.Now()
	// The load goes on until the log reports lines that were left out, also on a slow machine.
	over := func() bool {
		took := time.Since(begin)
		return took > rig.Patience || took > outage && strings.Contains(r.Log(), `"left_out"`)
	}
	for range 16 {
		clients.Go(func() {
			for !over() {
				sent.Add(1)
				if got := r.Post("/v1/chat/completions", rig.Chat("sim", "hello")); got.Err != nil || got.Status == http.StatusOK {
					served.Add(1)
				}
			}
		})
	}
	clients.Wait()
	rig.Eventually(r.T, func() error {
		if n := len(r.AccessLines()); int64(n) < sent.Load() {
			return fmt.Errorf("%d requests were sent, %d have access lines", sent.Load(), n)
		}
		return nil
	})
	if got := r.Sum("tierway_requests_total", `outcome="failed"`); got != float64(sent.Load()) || served.Load() != 0 ||
		len(r.AccessLines()) != int(sent.Load()) {
		t.Errorf("%d requests were sent: %v have failed, %d were served, %d have access lines", sent.Load(), got,
			served.Load(), len(r.AccessLines()))
	}
	most, left := repeated(t, r.Log())
	for msg, n := range most {
		if n > linesPerSecond {
			t.Errorf("%q is written %d times in a second", msg, n)
		}
	}
	if left == 0 {
		t.Errorf("no line was suppressed, so the load was too small: %v", most)
	}
	t.Logf("%d requests in %v; %d lines were left out; of each message, so many in a second: %v", sent.Load(),
		time.Since(begin), left, most)
}

// repeated returns the maximum number of lines per second of each message, and the number of
// suppressed lines that the log reports.
func repeated(t *testing.T, log string) (most map[string]int, left int) {
	t.Helper()
	at := map[string][]time.Time{}
	most = map[string]int{}
	for text := range strings.Lines(log) {
		var line struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
			Left int       `json:"left_out"`
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%v: %s", err, text)
			continue
		}
		if left += line.Left; line.Left == 0 { // a stop writes summaries without the limit
			at[line.Msg] = append(at[line.Msg], line.Time)
		}
	}
	for msg, times := range at {
		slices.SortFunc(times, time.Time.Compare) // lines of two goroutines may be out of order
		first := 0
		for i := range times {
			for times[i].Sub(times[first]) >= time.Second {
				first++
			}
			most[msg] = max(most[msg], i-first+1)
		}
	}
	return most, left
}
