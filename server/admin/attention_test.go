package admin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/config"
	"tierway/routing"
	"tierway/server/control"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
)

// inLines returns items as lines.
func inLines(items []AttentionItem) (lines []string) {
	for _, i := range items {
		lines = append(lines, i.Severity+" | "+i.Subject+" | "+i.Message+" | "+i.Link)
	}
	return lines
}

func TestAttentionNamesWorkersOutOfService(t *testing.T) {
	pool := func(name string, tier bool, ws ...workerState) *poolView {
		return &poolView{Pool: &control.Pool{Pool: config.Pool{Name: name, Tier: tier}}, workers: ws}
	}
	good := workerState{Name: "good", State: "up", inRotation: true, Breaker: breakerState{State: "closed"}}
	d, p, strict := good, good, good
	d.Stages, p.Stages = routing.StageWhole|routing.StageDecode, routing.StagePrefill
	strict.Stages = routing.StageDecode
	for _, tt := range []struct {
		pool *poolView
		want []string
	}{
		{pool("small", true, good, workerState{Name: "a b", State: "drained"}), nil},
		{pool("small", true, good, workerState{Name: "a b", State: "down", Since: "2026-01-02T03:04:05Z",
			LastError: "refused"}),
			[]string{"error | worker a b | Down since 2026-01-02T03:04:05Z: refused. | workers?q=a+b"}},
		{pool("small", true, good, workerState{Name: "w1", State: "open",
			Failure: &failureState{Status: 500, Message: "no GPU"},
			Breaker: breakerState{Until: "2026-01-02T03:04:05Z", Cause: "5 failures"}}),
			[]string{"error | worker w1 | Its breaker is open until 2026-01-02T03:04:05Z: 5 failures. Last error: 500 no GPU " +
				"| workers?q=w1"}},
		{pool("small", true, good, workerState{Name: "w1", State: "half_open", inRotation: true,
			Breaker: breakerState{State: "half_open", Since: "2026-01-02T03:04:05Z", Cause: "timeout"}}),
			[]string{"error | worker w1 | Its breaker is half open since 2026-01-02T03:04:05Z: timeout: only a few requests " +
				"probe it. | workers?q=w1"}},
		{pool("small", true, good, workerState{Name: "w1", State: "up", inRotation: true,
			Breaker: breakerState{State: "open", Cause: "probe_failed"}}), []string{"error | worker w1 | Its breaker is open: " +
			"probe_failed. The ejection cap keeps it in rotation with a part of its share. | workers?q=w1"}},
		{pool("small", true, d, p, workerState{Name: "p2", State: "drained", Stages: routing.StagePrefill}), nil},
		{pool("small", true, d, workerState{Name: "p", State: "drained", Stages: routing.StagePrefill}), []string{"warning " +
			"| tier small | No prefill worker is in rotation: decode workers compute the prompts. | workers?pool=small"}},
		{pool("small", true, strict, workerState{Name: "p", State: "drained", Stages: routing.StagePrefill}),
			[]string{"error | tier small | No prefill worker is in rotation, and the other workers compute no prompts. " +
				"Requests wait, move to another tier or fail. | workers?pool=small"}},
		{pool("small", true, p, workerState{Name: "d", State: "drained", Stages: routing.StageDecode}), []string{"error | " +
			"tier small | No decode worker is in rotation. Requests wait, move to another tier or fail. " +
			"| workers?pool=small"}},
		{pool("extra", false, workerState{Name: "w1", State: "half_open", inRotation: true,
			Breaker: breakerState{State: "half_open"}}), []string{"error | pool extra | The breaker of each " +
			"worker in rotation is open or half open. Most requests fail or are rejected. | workers?pool=extra",
			"error | worker w1 | Its breaker is half open: only a few requests probe it. | workers?q=w1"}},
		{pool("small", true, workerState{Name: "w1", State: "backoff", inRotation: true}), []string{"warning | " +
			"tier small | Each worker in rotation is in backoff, or its breaker is not closed. Most requests wait or are " +
			"rejected. | workers?pool=small", "warning | worker w1 | " +
			"In backoff: it returned 429, 503 or 529, or rejected the gateway's key. | workers?q=w1"}},
		{pool("small", true, good, workerState{Name: "w1", State: "backoff", inRotation: true}), []string{"warning | " +
			"worker w1 | In backoff: it returned 429, 503 or 529, or rejected the gateway's key. | workers?q=w1"}},
		{pool("small", true, workerState{Name: "w1", State: "asleep"}), []string{"error | tier small | " +
			"No worker is in rotation. Requests wait, move to another tier or fail. | workers?pool=small"}},
		{pool("extra", false), []string{"error | pool extra | " +
			"No worker is in rotation. Requests wait, move to another tier or fail. | workers?pool=extra"}},
	} {
		if diff := cmp.Diff(tt.want, inLines(poolAttention(tt.pool))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestAttentionNamesOverridesThatEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	worker := func(until time.Time) *workerState {
		return &workerState{Name: "w1", Weights: workerWeights{Effective: 5, File: 1,
			Override: &store.Override{Until: until}}}
	}
	overdue := &workerState{Name: "w1", WorkerLoad: WorkerLoad{WorkerLoad: telemetry.WorkerLoad{Inflight: 2}},
		Drain: &drainState{Overdue: true, Deadline: &now}}
	for _, tt := range []struct {
		worker *workerState
		want   []string
	}{
		{worker(now.Add(11 * time.Minute)), nil},
		{worker(time.Time{}), nil},
		{worker(now.Add(9 * time.Minute)), []string{"warning | worker w1 | Its weight 5 expires at 2026-01-02T03:13:05Z; " +
			"then the configured weight 1 applies. | workers?q=w1"}},
		{overdue, []string{"warning | worker w1 | Its drain has been overdue since 2026-01-02T03:04:05Z. " +
			"Requests in flight: 2. | workers?q=w1"}},
		{&workerState{Name: "w1", Drain: &drainState{Deadline: &now}}, nil},
	} {
		if diff := cmp.Diff(tt.want, inLines(overrideAttention(tt.worker, now))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestAttentionNamesUnavailableStores(t *testing.T) {
	for _, tt := range []struct{ redis, sql, want string }{
		{"ok", "ok", ""}, {"off", "off", ""}, {"away", "ok", "redis"}, {"ok", "away", "database"},
		{"ok", "read_only", "database"}, {"away", "away", "redis database"},
	} {
		var subjects []string
		for _, i := range storeAttention(redisView{State: tt.redis}, SQLView{State: tt.sql}) {
			subjects = append(subjects, i.Subject)
			if i.Severity != severityError || i.Message == "" {
				t.Errorf("%+v", i)
			}
		}
		if got := strings.Join(subjects, " "); got != tt.want {
			t.Errorf("redis %s, database %s: %q, want %q", tt.redis, tt.sql, got, tt.want)
		}
	}
}

// TestAttentionNamesKeysThatExpire within a week, the first to expire first. A revoked key and a key with
// a successor need no operator.
func TestAttentionNamesKeysThatExpire(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	key := func(id string, in time.Duration) tenants.Key {
		return tenants.Key{ID: id, Tenant: "team-a", ExpiresAt: now.Add(in)}
	}
	revoked, rotated := key("revoked", time.Hour), key("rotated", time.Hour)
	revoked.RevokedAt, rotated.ReplacedBy = now, "k9"
	d := directoryFacts{expiring: expiringKeys([]tenants.Key{key("later", 6*24*time.Hour), key("soon", time.Hour), revoked,
		rotated, key("month", 30*24*time.Hour), key("expired", -time.Second), {ID: "never"}})}
	want := []string{
		"warning | key soon of team-a | Expires at 2026-01-02T01:00:00Z. Rotate it, or extend its expiry. | tenants?q=team-a",
		"warning | key later of team-a | Expires at 2026-01-08T00:00:00Z. Rotate it, or extend its expiry. | tenants?q=team-a",
	}
	if diff := cmp.Diff(want, inLines(d.attention(now))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAttentionIsOrderedAndBounded: errors come first, and the last item counts the others.
func TestAttentionIsOrderedAndBounded(t *testing.T) {
	var items []AttentionItem
	for i := range 60 {
		items = append(items, AttentionItem{Severity: []string{severityWarning, severityError}[i%2], Subject: fmt.Sprint(i)})
	}
	got := orderedAttention(items)
	if len(got) != 51 || got[0].Subject != "1" || got[29].Subject != "59" || got[30].Subject != "0" ||
		got[50].Message != "and 10 more" || got[50].Severity != severityWarning {
		t.Errorf("%d items: %v", len(got), inLines(got))
	}
	if got := orderedAttention(nil); got == nil || len(got) != 0 {
		t.Errorf("without items: %v", got)
	}
}

// TestFileIsReadAfterItsStampChanged: the overview is made each second, and a parse takes milliseconds.
func TestFileIsReadAfterItsStampChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	now := time.Now()
	write := func(text string, modified time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, modified, modified)); err != nil {
			t.Fatal(err)
		}
	}
	const text = "classifier: { preset: none }\nauth: { required: false }\nstore: { sql: \"\" }\ntiers: [ { name: small, model: m, " +
		"workers: [ { name: w0, url: \"http://127.0.0.1:9\" } ] } ]\n"
	reads := 0
	read := func() (*config.File, error) {
		reads++
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return config.Parse("config.yaml", content, func(string) (string, bool) { return "", false })
	}
	write(text, now.Add(-time.Hour))
	base, err := read()
	if err != nil {
		t.Fatal(err)
	}
	snap := &control.Snapshot{Configuration: control.Configuration{Base: base, Hash: base.Hash(), Generation: 1}}
	c, reads0 := fileCheck{}, reads
	step := func(after time.Duration) string {
		now = now.Add(after)
		return strings.Join(inLines(c.attention(path, snap, now, read)), "\n")
	}
	expect := func(name, got, part string, more int) {
		t.Helper()
		if (part == "") != (got == "") || !strings.Contains(got, part) || reads-reads0 != more {
			t.Errorf("%s: %q after %d reads, want %q after %d", name, got, reads-reads0, part, more)
		}
	}
	expect("unchanged", step(0), "", 1)
	for range 100 {
		step(time.Second)
	}
	expect("later", step(time.Second), "", 1)
	write(strings.Replace(text, "name: w0", "name: w1", 1), now)
	expect("other workers", step(0), "Changes in the file that are not in force: ", 2)
	expect("the same second", step(time.Second), "not in force: ", 2)
	expect("after the clock's resolution", step(2*time.Second), "not in force: ", 3)
	expect("later", step(time.Minute), "not in force: ", 3)
	write("listen: 127.0.0.1:1\n"+text, now.Add(-time.Hour))
	expect("a restart", step(time.Second), "after a restart: listen", 4)
	write("tiers: [ { nam: small } ]\n", now.Add(-2*time.Hour))
	expect("errors", step(time.Second), "error | configuration | The file on disk has errors", 5)
	snap.Generation++
	expect("after a reload", step(time.Second), "has errors", 6)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("a missing file", step(time.Second), "cannot be read: no such file or directory", 6)
	if got := c.attention("", snap, now, read); got != nil {
		t.Errorf("without a file: %v", got)
	}
}

// TestGatewaysOfAnotherFleetNeedAttention: their tenants of equal names share limits with this fleet's.
func TestGatewaysOfAnotherFleetNeedAttention(t *testing.T) {
	own, foreign := control.GatewayView{ID: "a"}, control.GatewayView{ID: "b", Foreign: true}
	for want, of := range map[string]*control.SharingView{
		"":                         nil,
		"use the same database: 1": {Gateways: []control.GatewayView{own, foreign}},
		"use the same database: 2": {Gateways: []control.GatewayView{foreign, foreign}},
	} {
		items := fleetAttention(of)
		if want == "" && items != nil || want != "" && (len(items) != 1 || items[0].Severity != severityWarning ||
			!strings.Contains(items[0].Message, want)) {
			t.Errorf("%q: %+v", want, items)
		}
	}
	if items := fleetAttention(&control.SharingView{Gateways: []control.GatewayView{own}}); items != nil {
		t.Errorf("the own fleet: %+v", items)
	}
}
