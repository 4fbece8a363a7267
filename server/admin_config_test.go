package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tierway/config"
	"tierway/server/admin"
	"tierway/store"
)

// fileRig is an adminRig with a configuration file that can be rewritten. write replaces the tier's model.
func fileRig(t *testing.T) (r *adminRig, write func(model string)) {
	t.Helper()
	r = newAdminRig(t)
	url := func(name string) string { return r.member(name).Worker.Spec().URL }
	text := fmt.Sprintf(adminYAML(memoryDB), fmt.Sprintf("{ name: w0, url: %q }, { name: w1, url: %q }", url("w0"),
		url("w1")))
	var mu sync.Mutex
	var now string
	write = func(model string) {
		mu.Lock()
		defer mu.Unlock()
		now = strings.Replace(text, "fake-7b", model, 1)
	}
	write("fake-7b")
	r.source = func() (*config.File, error) {
		mu.Lock()
		defer mu.Unlock()
		return config.Parse("config.yaml", []byte(now), func(string) (string, bool) { return "", false })
	}
	return r, write
}

// TestReloadAppliesThePreviewedFile. CF-07: with the hash of a preview, another file is rejected.
func TestReloadAppliesThePreviewedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, write := fileRig(t)
		write("other-7b")
		preview := decode[admin.ReloadAnswer](t, r.callAdmin("eyes", http.MethodPost, "/admin/reload?dry_run=true", ""))
		if !preview.DryRun || preview.Generation != 1 || len(preview.Changes) == 0 || preview.Changes[0].Effect == "" {
			t.Fatalf("the preview is %+v", preview)
		}
		if got := r.control.Snapshot().Pools[0].Model; got != "fake-7b" {
			t.Errorf("a preview made the model %s", got)
		}
		r.ops(http.StatusPreconditionFailed, http.MethodPost, "/admin/reload", "", "If-Match", `"`+strings.Repeat("0", 64)+`"`)
		got := r.ops(http.StatusOK, http.MethodPost, "/admin/reload", "", "If-Match", `"`+preview.ToHash+`"`)
		if a := decode[admin.ReloadAnswer](t, got); a.Generation != 2 || a.FromHash == a.ToHash ||
			got.header.Get("ETag") != `"`+preview.ToHash+`"` {
			t.Errorf("the reload is %s", got.body)
		}
		if got := r.control.Snapshot().Pools[0].Model; got != "other-7b" {
			t.Errorf("after the reload the model is %s", got)
		}
		shown := decode[configShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/config", ""))
		if shown.Generation != 2 || shown.Hash != preview.ToHash || len(shown.RestartNeeded) != 0 ||
			!strings.Contains(string(shown.Effective), "other-7b") {
			t.Errorf("the configuration is %+v", shown)
		}
		ok, refused := 0, 0
		for _, e := range r.auditLog() {
			if e.Action == "config.reload" && e.Outcome == "ok" {
				ok++
			} else if e.Action == "config.reload" {
				refused++
			}
		}
		if ok != 1 || refused != 1 {
			t.Errorf("the audit log has %d reloads and %d rejected ones", ok, refused)
		}
	})
}

// CF-02, CF-05: an invalid configuration is rejected with all its errors and their lines, counted and logged. Nothing
// changes.
func TestInvalidFileIsRejectedWithAllErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, write := fileRig(t)
		before := r.control.Snapshot()
		for name, model := range map[string]string{
			"unknown fields": "fake-7b\n    modle: x\n    polcy: {}", "a bad value": "fake-7b\n    context: -1",
			"invalid YAML": "fake-7b\n\t x: [",
		} {
			t.Logf("case %v", name)
			write(model)
			for _, query := range []string{"", "?dry_run=true"} {
				got := r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/reload"+query, "")
				p := decode[problemOf](t, got)
				if len(p.Errors) == 0 || name == "unknown fields" && len(p.Errors) != 2 ||
					!strings.HasPrefix(p.Errors[0].Message, "config.yaml:9:") {
					t.Errorf("%s", got.body)
				}
			}
			v := decode[validationShown](t, r.callAdmin("eyes", http.MethodPost, "/admin/config/validate", ""))
			if v.Valid || len(v.Problems) == 0 || v.Problems[0].Line != 9 || v.Problems[0].Severity != "error" {
				t.Errorf("the file on disk is %+v", v)
			}
			if b := r.control.Snapshot(); b != before || b.Generation != 1 || b.Pools[0].Model != "fake-7b" {
				t.Errorf("generation %d is in force", b.Generation)
			}
		}
		other := `"` + strings.Repeat("0", 64) + `"` // the hash of another file matters only if this one is valid
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/reload", "", "If-Match", other)
		if !r.control.FileRejected() || !strings.Contains(r.logs.String(), "level=ERROR") ||
			strings.Contains(r.scrape(), `tierway_config_reloads_total{result="rejected"} 0`) {
			t.Errorf("the rejection is not counted, or not logged at ERROR: %s", r.logs.String())
		}
	})
}

// CF-02: the error names the file and does not blame the database. A body sent to a reload is rejected,
// not ignored.
func TestUnreadableFileIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, write := fileRig(t)
		write("other-7b")
		for _, body := range []string{`{"text":"tiers: []"}`, `{"tiers":[]}`, `[]`} {
			r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/reload", body)
		}
		good := r.source
		gone := filepath.Join(t.TempDir(), "gone.yaml")
		for name, source := range map[string]func() (*config.File, error){
			gone:         func() (*config.File, error) { return config.Load(gone, os.LookupEnv) },
			"read error": func() (*config.File, error) { return nil, errors.New("a read error") },
		} {
			r.source = source
			for _, query := range []string{"", "?dry_run=true"} {
				got := r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/reload"+query, "")
				if p := decode[problemOf](t, got); !strings.Contains(p.Detail, name) || strings.Contains(p.Detail, "database") ||
					got.header.Get("Retry-After") != "" {
					t.Errorf("%s: %v %s", name, got.header, got.body)
				}
			}
		}
		r.source = good
		if got := decode[admin.ReloadAnswer](t,
			r.ops(http.StatusOK, http.MethodPost, "/admin/reload", "{}")); got.Generation != 2 {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

func TestValidateDoesNotApplyTheText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for text, valid := range map[string]bool{
			"auth: { required: false }\npools:\n  - { name: p, paths: [/x], workers: [ { name: w, url: " +
				"\\\"http://127.0.0.1:1\\\" } ] }": true,
			"tires: []": false, "[": false, "auth: { keys: [ { name: x, sha256: secret } ] }": false,
		} {
			got := r.callAdmin("ops", http.MethodPost, "/admin/config/validate", `{"text":"`+strings.ReplaceAll(text, "\n",
				`\n`)+`"}`)
			if v := decode[validationShown](t, got); got.status != http.StatusOK || v.Valid != valid ||
				!valid && (len(v.Problems) == 0 || v.Problems[0].Line == 0) || strings.Contains(got.body, "secret\"") {
				t.Errorf("%s is %s", text, got.body)
			}
		}
		r.ops(http.StatusConflict, http.MethodPost, "/admin/config/validate", "") // there is no file
		if got := r.callAdmin("eyes", http.MethodPost, "/admin/config/validate", "{}"); got.status != http.StatusConflict {
			t.Errorf("a viewer's check of the file is %d: %s", got.status, got.body)
		}
		for _, text := range []string{`{"text":"gateways: ${HOME}"}`, `{"text":"["}`} { // expands variables of this machine
			if got := r.callAdmin("eyes", http.MethodPost, "/admin/config/validate", text); got.status != http.StatusForbidden ||
				!strings.Contains(got.body, "viewer") {
				t.Errorf("a viewer's %s is %d: %s", text, got.status, got.body)
			}
		}
		r.ops(http.StatusConflict, http.MethodPost, "/admin/reload", "")
	})
}

// RS-08, RS-11: while the database is unavailable, reads are served from memory. Changes get 503,
// overrides too, because all gateways share them.
func TestUnavailableDatabaseLeavesReadsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, adminYAML("postgres://tierway:hunter2@127.0.0.1:1/none?sslmode=disable&connect_timeout=1"),
			fakeEngine()))
		for _, op := range r.plane.Operations() {
			path := strings.NewReplacer("{name}", "filed", "{id}", digestID("filed")).Replace(op.Path)
			if op.Method != http.MethodGet || strings.Contains(path, "{") || strings.HasPrefix(op.OperationID, "stream-") {
				continue
			}
			path = strings.Replace(path, "workers/filed", "workers/w0", 1)
			path = strings.Replace(path, "backends/filed", "backends/w0", 1)
			want := http.StatusOK
			switch op.OperationID {
			case "list-audit", "get-usage", "get-tier-report":
				want = http.StatusServiceUnavailable
			case "get-config-file":
				want = http.StatusConflict // the gateway has no file
			case "get-decision":
				want = http.StatusNotFound // no request was recorded
			}
			if got := r.ops(want, op.Method, path, ""); strings.Contains(got.body, "hunter2") {
				t.Errorf("%s holds the database's password: %s", path, got.body)
			}
		}
		for _, tt := range [][3]string{
			{http.MethodPost, "/admin/tenants", `{"name":"acme"}`},
			{http.MethodPost, "/admin/admins", `{"name":"ada","role":"viewer"}`},
			{http.MethodPatch, "/admin/workers/w0", `{"weight":3}`}, {http.MethodPost, "/admin/workers/w0/drain", ""},
		} {
			got := r.ops(http.StatusServiceUnavailable, tt[0], tt[1], tt[2])
			if got.header.Get("Retry-After") == "" || strings.Contains(got.body, "127.0.0.1") ||
				strings.Contains(got.body, "hunter2") {
				t.Errorf("%s %s: %v %s", tt[0], tt[1], got.header, got.body)
			}
		}
		if st := decode[statusShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")); st.SQL.State != "away" ||
			st.SQL.Kind != "postgres" || st.SQL.ReadAt != nil || st.Redis.State != "off" {
			t.Errorf("the status is %+v", st)
		}
		if r.chat("filed") != http.StatusOK || r.worker("w0").Weight != 1 {
			t.Error("the configuration in force has changed")
		}
	})
}

// TestErrorsNameStoreSQLIfNoDatabaseIsConfigured: the error says which setting enables changes.
func TestErrorsNameStoreSQLIfNoDatabaseIsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, adminYAML(""), fakeEngine()))
		for _, tt := range [][3]string{
			{http.MethodPost, "/admin/tenants", `{"name":"acme"}`}, {http.MethodPost, "/admin/tenants/filed/keys", `{}`},
			{http.MethodPost, "/admin/admins", `{"name":"ada","role":"viewer"}`},
			{http.MethodPost, "/admin/bootstrap", `{"secret":"x","name":"ada"}`},
			{http.MethodGet, "/admin/audit", ""}, {http.MethodGet, "/admin/tenants/filed/usage", ""},
		} {
			if got := r.ops(http.StatusNotImplemented, tt[0], tt[1], tt[2]); !strings.Contains(got.body, "store.sql") {
				t.Errorf("%s %s: %s", tt[0], tt[1], got.body)
			}
		}
		st := decode[statusShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", ""))
		if st.SQL.State != "off" || st.Ledger != nil || st.Generation != 1 || st.Redis.Gateways != 1 {
			t.Errorf("the status is %+v", st)
		}
	})
}

// AD-13: a change and its audit entry are one transaction.
func TestChangesFailIfTheAuditLogCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "t.db")
		r := adminRigOf(newRig(t, adminYAML("sqlite://"+file), fakeEngine()))
		key := decode[tenantChanged](t,
			r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme","issue_key":true}`)).Key
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(context.Background(),
			`CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is full'); END`); err != nil {
			t.Fatal(err)
		}
		for _, tt := range [][3]string{
			{http.MethodPost, "/admin/tenants", `{"name":"other"}`},
			{http.MethodPatch, "/admin/tenants/acme", `{"disabled":true}`},
			{http.MethodDelete, "/admin/tenants/acme?confirm=acme", ""},
			{http.MethodPost, "/admin/tenants/acme/keys", `{}`}, {http.MethodPatch, "/admin/keys/" + key.ID, `{"name":"x"}`},
			{http.MethodPost, "/admin/keys/" + key.ID + "/rotate", ""},
			{http.MethodPost, "/admin/keys/" + key.ID + "/revoke", ""},
			{http.MethodPost, "/admin/admins", `{"name":"ada","role":"admin"}`},
			{http.MethodPatch, "/admin/workers/w0", `{"weight":9}`}, {http.MethodPost, "/admin/workers/w0/drain", ""},
		} {
			got := r.ops(http.StatusInternalServerError, tt[0], tt[1], tt[2])
			if strings.Contains(got.body, "full") {
				t.Errorf("%s %s shows the cause to the client: %s", tt[0], tt[1], got.body)
			}
		}
		c, err := r.control.Stores.SQL.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tenants) != 1 || c.Tenants[0].Disabled || len(c.Keys) != 1 ||
			c.Keys[0].State(c.Keys[0].CreatedAt) != "active" || len(c.Admins) != 0 || len(c.Overrides) != 0 {
			t.Errorf("the database has %+v", c)
		}
		if log, err := r.control.Stores.SQL.Audit(t.Context(), store.AuditQuery{}); err != nil || len(log) != 2 {
			t.Errorf("the audit log has %d entries (%v)", len(log), err)
		}
	})
}
