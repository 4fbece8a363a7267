package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/fixedseed"
	"tierway/store"
	"tierway/telemetry"
)

// endings is an engine that ends a request as its prompt demands.
func endings(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch prompt := string(body); {
	case strings.Contains(prompt, "reject"):
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
	case strings.Contains(prompt, "fail"):
		w.WriteHeader(http.StatusInternalServerError)
	case strings.Contains(prompt, "cut"):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case strings.Contains(prompt, "hang"):
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, benchAnswer)
	}
}

// runningRig is a rig on which Run works until stop, with a database in a file.
type runningRig struct {
	*rig
	database string
	stop     func()
}

// newRunningRig serves a tier before an engine.
func newRunningRig(t *testing.T, engine http.HandlerFunc) *runningRig {
	t.Helper()
	database := "sqlite://" + filepath.Join(t.TempDir(), "tierway.db")
	r := &runningRig{database: database, rig: &rig{t: t, net: networkOf(t), access: &logBuffer{}, logs: &logBuffer{},
		url: "http://127.0.0.1:9900"}}
	r.text = fmt.Sprintf(`
listen: 127.0.0.1:9900
store: { sql: %q }
auth: { keys: [ { name: acme, sha256: %s, limits: { rpm: 1000, concurrent: 1 } } ] }
health: { path: "off" }
classifier: { preset: none }
breaker: { consecutive_failures: 100, min_requests: 100 }
timeouts: { total: { interactive: 30s } }
drain: { accept_grace: 0s, timeout: 5s }
tiers: [ { name: small, model: fake-7b, workers: [ { name: w0, url: %q } ] } ]
`, database, digestHex("key"), startServer(t, engine))
	r.source = func() (*config.File, error) {
		return config.Parse("test.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
	}
	file, err := r.source()
	if err != nil {
		t.Fatal(err)
	}
	r.Server, err = New(Options{Config: file, Source: r.readSource, Log: slog.New(slog.NewTextHandler(r.logs, nil)),
		Access: r.access, Metrics: telemetry.New("test"), Rand: fixedseed.Uint64(), Listen: r.net.Listen,
		Dial: r.net.Dial})
	if err == nil {
		err = r.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	return r
}

// ask sends a prompt until ctx ends.
func (r *runningRig) ask(ctx context.Context, id, prompt, key string) {
	body := fmt.Sprintf(`{"model":"small","stream":%v,"messages":[{"role":"user","content":%q}]}`, prompt == "cut", prompt)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + key},
		"X-Request-Id": {id}}
	if resp, err := r.net.transport.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body) // it may be cut
		resp.Body.Close()
	}
}

// ledgerRows returns the number of the tenant's rows in the database of a stopped gateway.
func (r *runningRig) ledgerRows() (n int64) {
	r.t.Helper()
	sql, err := store.OpenSQL(store.SQLConfig{URL: r.database})
	if err != nil {
		r.t.Fatal(err)
	}
	now := time.Now()
	rows, err := sql.Usage(r.t.Context(), store.UsageQuery{Tenant: "acme", From: now.AddDate(0, 0, -1),
		To: now.AddDate(0, 0, 2), GroupBy: "outcome"})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range rows {
		n += row.Requests
	}
	if err := sql.Close(); err != nil {
		r.t.Error(err)
	}
	return n
}

// TestEachRequestLeavesOneRecord in each consumer, however it ends: one Decision, one line of the access log, and one
// row of the ledger if it has a tenant. The limit of one concurrent request is free for the next request. A stop loses
// nothing.
func TestEachRequestLeavesOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunningRig(t, endings)
		rows, leaving := int64(0), context.CancelFunc(nil)
		all := []struct {
			id, prompt, key string
			during          func() // while the request is in flight; nil: nothing
			want            decisions.Result
		}{
			{"answered", "hi", "key", nil, decisions.OK},
			{"rejected", "reject", "key", nil, decisions.Refused},
			{"failed", "fail", "key", nil, decisions.Failed},
			{"truncated", "cut", "key", nil, decisions.Truncated},
			{"unknown", "hi", "unknown", nil, decisions.Refused},
			{"left", "hang", "key", func() { leaving() }, decisions.ClientGone},
			{"late", "hang", "key", nil, decisions.Failed},
			{"reloaded", "hang", "key", func() {
				r.text = strings.Replace(r.text, "name: small", "name: renamed", 1)
				r.reload()
				r.text = strings.Replace(r.text, "name: renamed", "name: small", 1)
				r.reload()
			}, decisions.Failed},
			{"drained", "hang", "key", r.stop, decisions.Failed},
		}
		for _, c := range all {
			ctx, leave := context.WithCancel(t.Context())
			leaving = leave
			var asking sync.WaitGroup
			asking.Go(func() { r.ask(ctx, c.id, c.prompt, c.key) })
			if c.during != nil {
				r.until(c.id+" is in flight", func() bool { return r.Inflight() == 1 })
				c.during()
			}
			asking.Wait()
			leave()
			r.until(c.id+" has ended", func() bool { return r.Inflight() == 0 })
			if c.key == "key" {
				rows++
			}
		}
		got := map[string]decisions.Result{}
		for _, d := range r.decisions.Last(0) {
			got[d.RequestID] = d.Result
		}
		if n := r.decisions.Span().Next - r.decisions.Span().First; n != int64(len(all)) {
			t.Errorf("%d records, want %d", n, len(all))
		}
		for _, c := range all {
			if got[c.id] != c.want {
				t.Errorf("%s ended as %q, want %q", c.id, got[c.id], c.want)
			}
			if n := strings.Count(r.access.String(), `"request_id":"`+c.id+`"`); n != 1 {
				t.Errorf("%s has %d lines in the access log", c.id, n)
			}
		}
		if n := r.ledgerRows(); n != rows {
			t.Errorf("the ledger has %d rows, want %d", n, rows)
		}
		r.wantMetrics(`tierway_tenant_requests_total{outcome="ok",tenant="acme"} 1`,
			`tierway_tenant_requests_total{outcome="truncated",tenant="acme"} 1`, "tierway_inflight 0")
	})
}
