package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tierway/config"
	"tierway/decisions"
	"tierway/fixedseed"
	"tierway/server/control"
	"tierway/store"
	"tierway/telemetry"
)

// planeRig is an admin plane with its own Control, without a data plane.
type planeRig struct {
	plane     *Plane
	decisions *decisions.Log
	t         *testing.T
	log       strings.Builder
	metrics   *telemetry.Metrics
}

// newPlaneRig returns a plane with a database, the admin ops, the viewer eyes and the tenant filed. The
// key of each is its name.
func newPlaneRig(t *testing.T) *planeRig {
	t.Helper()
	return newPlaneRigWith(t, `tiers: [ { name: small, model: fake-7b, workers: [ { name: w0, url: "http://127.0.0.1:9" } ] } ]
`)
}

// newPlaneRigWith is newPlaneRig with other tiers and further sections.
func newPlaneRigWith(t *testing.T, sections string) *planeRig {
	t.Helper()
	digest := func(key string) string { sum := sha256.Sum256([]byte(key)); return hex.EncodeToString(sum[:]) }
	f, err := config.Parse("test.yaml", []byte(fmt.Sprintf(`
classifier: { preset: none }
store: { sql: "sqlite://:memory:" }
admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }
auth: { keys: [ { name: filed, sha256: %s } ] }
health: { path: "off" }
%s`, digest("ops"), digest("eyes"), digest("filed"), sections)), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	r := &planeRig{t: t, metrics: telemetry.New("test")}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	c, err := control.New(control.Options{Config: f, Log: slog.New(slog.DiscardHandler), Metrics: r.metrics,
		Rand: fixedseed.Uint64(), Recover: control.NewRecoverer(log, r.metrics),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r.decisions = decisions.NewLog(10)
	r.plane = New(Options{Control: c, Decisions: r.decisions, Log: log, Counts: r.metrics, Rand: fixedseed.Uint64(),
		Explain: func(*http.Request, control.Question) (*decisions.Explanation, *uint64) {
			return &decisions.Explanation{}, nil
		},
		Draining: func() bool { return false }, NotReady: func() []string { return nil },
		Inflight: func() int64 { return 0 }})
	return r
}

// ask sends a request with a key.
func (r *planeRig) ask(key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	r.plane.engine.ServeHTTP(rec, req)
	return rec
}

// audited returns the audit log, the newest line first.
func (r *planeRig) audited() []store.AuditEntry {
	r.t.Helper()
	all, err := r.plane.control.Stores.SQL.Audit(r.t.Context(), store.AuditQuery{Limit: 200})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}
