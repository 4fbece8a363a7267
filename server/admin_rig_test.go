package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"tierway/server/admin"
	"tierway/store"
)

// adminRig is a rig with access to its admin plane. Requests to the plane run in the test's goroutine.
// Every answer is checked against the OpenAPI document.
type adminRig struct {
	*rig
	plane *admin.Plane
	front http.Handler // the plane with its middleware
}

// digestHex is the digest of a key in the form of config.yaml.
func digestHex(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// adminYAML has a database, an admin, a viewer and a tenant, with their names as keys, and a tier with
// all workers.
func adminYAML(sql string) string {
	return fmt.Sprintf(`
store: { sql: %q }
admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }
auth: { keys: [ { name: filed, sha256: %s } ] }
health: { path: "off" }
tiers:
  - name: small
    model: fake-7b
    serves: [chat, completions]
    workers: [ %%s ]
models: { "gpt-4o-mini": small }
`, sql, digestHex("ops"), digestHex("eyes"), digestHex("filed"))
}

const memoryDB = "sqlite://:memory:"

// newAdminRig serves adminYAML before two engines.
func newAdminRig(t *testing.T) *adminRig {
	t.Helper()
	return adminRigOf(newRig(t, adminYAML(memoryDB), fakeEngine(), fakeEngine()))
}

func adminRigOf(r *rig) *adminRig {
	return &adminRig{rig: r, plane: r.planes.admin, front: r.planes.adminHandler()}
}

// twoGateways serve one database. Each sees the other's changes only after it has read the database.
func twoGateways(t *testing.T) (a, b *adminRig) {
	t.Helper()
	yaml := adminYAML("sqlite://" + filepath.Join(t.TempDir(), "t.db"))
	a, b = adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine())), adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine()))
	for _, r := range []*adminRig{a, b} {
		if err := r.control.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// call is a request of the admin API.
type call struct {
	method, path, body string
	key                string // as Bearer; empty: none
	header             http.Header
}

// callAdmin sends a request with a key, or without one if key is empty.
func (r *adminRig) callAdmin(key, method, path, body string, headers ...string) httpAnswer {
	r.t.Helper()
	c := call{method: method, path: path, body: body, key: key, header: http.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		c.header.Set(headers[i], headers[i+1])
	}
	return r.send(c)
}

// ops sends a request as the admin and fails unless the answer has the status.
func (r *adminRig) ops(status int, method, path, body string, headers ...string) httpAnswer {
	r.t.Helper()
	got := r.callAdmin("ops", method, path, body, headers...)
	if got.status != status {
		r.t.Fatalf("%s %s is %d, want %d: %s", method, path, got.status, status, got.body)
	}
	return got
}

func (r *adminRig) send(c call) httpAnswer {
	r.t.Helper()
	req := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
	req.Host = "localhost"
	for k, v := range c.header {
		req.Header[k] = v
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.body != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	rec := httptest.NewRecorder()
	r.front.ServeHTTP(rec, req)
	got := httpAnswer{status: rec.Code, header: rec.Header(), body: rec.Body.String()}
	if op := r.operationOf(c.method, req.URL.Path); op != nil {
		r.checkDocumented(op, got)
	}
	return got
}

// operationOf finds the operation of a path in the document.
func (r *adminRig) operationOf(method, path string) *huma.Operation {
	segments := strings.Split(path, "/")
	var best *huma.Operation
	for template, item := range r.plane.OpenAPI().Paths {
		parts := strings.Split(template, "/")
		op := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PATCH": item.Patch,
			"DELETE": item.Delete}[method]
		if len(parts) != len(segments) || op == nil {
			continue
		}
		same, named := true, false
		for i := range parts {
			variable := strings.HasPrefix(parts[i], "{")
			named = named || variable
			same = same && (variable || parts[i] == segments[i])
		}
		if same && (best == nil || !named) {
			best = op
		}
	}
	return best
}

// checkDocumented fails unless the document has the answer's status and media type, and the body
// matches its schema.
func (r *adminRig) checkDocumented(op *huma.Operation, got httpAnswer) {
	r.t.Helper()
	response := op.Responses[strconv.Itoa(got.status)]
	if response == nil {
		r.t.Errorf("%s %s answers %d, which the document does not have: %s", op.Method, op.Path, got.status, got.body)
		return
	}
	if got.body == "" {
		if len(response.Content) > 0 {
			r.t.Errorf("%s %s answers %d without a body", op.Method, op.Path, got.status)
		}
		return
	}
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	media := response.Content[kind]
	if media == nil {
		r.t.Errorf("%s %s answers %d in %q, which the document does not have", op.Method, op.Path, got.status, kind)
		return
	}
	if !strings.HasSuffix(kind, "json") || kind == "application/x-ndjson" {
		return
	}
	var body any
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		r.t.Errorf("%s %s answers %d: %v", op.Method, op.Path, got.status, err)
		return
	}
	res := &huma.ValidateResult{}
	huma.Validate(r.plane.OpenAPI().Components.Schemas, media.Schema, huma.NewPathBuffer([]byte{}, 0),
		huma.ModeReadFromServer, body, res)
	for _, err := range res.Errors {
		r.t.Errorf("%s %s answers %d with %v", op.Method, op.Path, got.status, err)
	}
}

// decode parses the body of an answer.
func decode[T any](t *testing.T, a httpAnswer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// auditLog returns the audit log, newest first.
func (r *adminRig) auditLog() []store.AuditEntry {
	r.t.Helper()
	all, err := r.control.Stores.SQL.Audit(r.t.Context(), store.AuditQuery{Limit: 200})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// override replaces a worker's override.
func (s *Server) override(ctx context.Context, a store.Actor, o store.Override) error {
	_, err := s.control.EditOverride(ctx, a, o.Worker, func(store.Override) (store.Override, error) { return o, nil })
	return err
}

// clearOverride removes a worker's override.
func (s *Server) clearOverride(ctx context.Context, a store.Actor, worker string) error {
	_, err := s.control.EditOverride(ctx, a, worker, func(o store.Override) (store.Override, error) {
		if !o.Says() {
			return o, store.ErrNotFound
		}
		return store.Override{}, nil
	})
	return err
}

// etagOf formats a version as ETag and If-Match carry it.
func etagOf(version int64) string { return fmt.Sprintf(`"v%d"`, version) }
