package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"

	"tierway/config"
	"tierway/server/control"
	"tierway/store"
	"tierway/tenants"
)

// documentedOperations are the operations of the document by method and path.
func (r *adminRig) documentedOperations() map[string]*huma.Operation {
	all := map[string]*huma.Operation{}
	for path, item := range r.plane.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put,
			"PATCH": item.Patch, "DELETE": item.Delete} {
			if op != nil {
				all[method+" "+path] = op
			}
		}
	}
	return all
}

func TestEveryOperationDocumentsRolesAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, plain, fakeEngine()))
		ids := map[string]bool{}
		for name, op := range r.documentedOperations() {
			if ids[op.OperationID] || op.OperationID == "" || op.Summary == "" {
				t.Errorf("%s has the id %q, which is not unique, or no summary", name, op.OperationID)
			}
			ids[op.OperationID] = true
			roles, _ := op.Extensions["x-roles"].([]string)
			open := name == "POST /admin/bootstrap" || name == "POST /admin/session"
			if open != (len(op.Security) == 0) || open != (len(roles) == 0) {
				t.Errorf("%s has the security %v and the roles %v", name, op.Security, roles)
			}
			for _, s := range op.Security {
				for scheme := range s {
					if r.plane.OpenAPI().Components.SecuritySchemes[scheme] == nil {
						t.Errorf("%s has the security %v", name, s)
					}
				}
			}
			for _, status := range []string{"401", "403", "429", "500"} {
				if op.Responses[status] == nil || op.Responses[status].Content["application/problem+json"] == nil {
					t.Errorf("%s does not document the status %s", name, status)
				}
			}
			if strings.Contains(name, "{") && op.Responses["404"] == nil {
				t.Errorf("%s does not document the status 404", name)
			}
			if op.RequestBody != nil && (op.Responses["413"] == nil || op.MaxBodyBytes != 1<<20) {
				t.Errorf("%s has a body of up to %d bytes", name, op.MaxBodyBytes)
			}
		}
	})
}

func TestOpenAPIDocumentNeedsAnAdminKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, adminYAML(""), fakeEngine()))
		if got := r.callAdmin("", http.MethodGet, "/admin/openapi.json", ""); got.status != http.StatusUnauthorized {
			t.Errorf("without a key: %d", got.status)
		}
		doc := decode[struct {
			OpenAPI string                    `json:"openapi"`
			Paths   map[string]map[string]any `json:"paths"`
		}](t, r.callAdmin("eyes", http.MethodGet, "/admin/openapi.json", ""))
		if doc.OpenAPI != "3.1.0" || doc.Paths["/admin/tenants"]["post"] == nil {
			t.Errorf("the document is %+v", doc)
		}
	})
}

// adminDoc returns docs/admin-api.md, which is generated from the OpenAPI document.
func (r *adminRig) adminDoc() string {
	var b strings.Builder
	b.WriteString(adminIntroduction + "```sh\n" + adminExamples + "```\n" + adminOperations)
	all := r.documentedOperations()
	for _, o := range r.plane.Operations() {
		op := all[o.Method+" "+o.Path]
		roles, _ := op.Extensions["x-roles"].([]string)
		mark := func(role string) string {
			switch previews, _ := op.Extensions["x-dry-run-roles"].([]string); {
			case len(roles) == 0:
				return "without a key"
			case slices.Contains(roles, role):
				return "yes"
			case slices.Contains(previews, role):
				return "`?dry_run=true`"
			}
			return "no"
		}
		fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s |\n", o.Method, o.Path, mark("admin"), mark("viewer"), op.Summary)
	}
	return b.String() + adminRules
}

const adminIntroduction = `# Admin API

<!-- Generated from server/admin by server/admin_doc_test.go; run make docs after a change. -->

This page is for operators, and for authors of tools that manage a gateway. Commands to copy come
first, then all operations, then the rules that hold for all of them. ` + "`GET /admin/openapi.json`" + ` has
every field of every operation.

The admin plane listens on 127.0.0.1:8081 by default (` + "`admin.listen`" + `). Each request carries an admin
key as ` + "`Authorization: Bearer <key>`" + `. A key has the role ` + "`admin`" + ` or ` + "`viewer`" + `.
[operations.md](operations.md#the-first-admin) shows how to make the first key. Browsers send the cookie
of a [session](#sessions) instead.

## Examples

` + "`$ADMIN_URL`" + ` is the address of the admin plane and ` + "`$ADMIN_KEY`" + ` an admin key. The demo
(` + "`make run`" + `) prints an ` + "`export`" + ` line that sets both. The first example needs a gateway without an
admin. All others work in the demo.

`

const adminOperations = `
More examples are on the pages of their subjects:

- tenants and keys: [tenants.md](tenants.md)
- workers and reloads: [operations.md](operations.md)
- queues: [queues.md](queues.md)
- records, explain and replay: [observability.md](observability.md)

## Operations

| operation | admin | viewer | summary |
|---|---|---|---|
`

const adminRules = `
## Streams

` + "`GET /admin/stream?topics=overview,workers,decisions`" + ` sends server-sent events of the named topics:

| event | data |
|---|---|
| ` + "`overview`" + ` | the body of ` + "`GET /admin/overview`" + `, each second |
| ` + "`workers`" + ` | the body of ` + "`GET /admin/workers`" + `, each second |
| ` + "`decision`, `gap`, `dropped`" + ` | the records, as ` + "`GET /admin/decisions/stream`" + ` sends them |

Each event is encoded once per second for all streams, and only while a stream subscribes to it. The filters of
` + "`GET /admin/decisions`" + ` select the records. Records have an id, and ` + "`Last-Event-ID`" + ` or
` + "`last_event_id`" + ` resumes after it; the other events have none, because each replaces the one before.
A gateway has at most 64 of these streams. A stream ends when its key ends, when the gateway drains, or
when a write blocks for 10 s.

The gateway samples rates and times to first token once per second. Rates are ` + "`null`" + ` in the first two seconds.
When a number in ` + "`versions`" + ` changes, fetch its lists again.

## Rules

- **Format.** Bodies are JSON with snake_case names. Times are RFC 3339 in UTC.
- **HEAD** is GET without the body, on every route. HEAD of a stream ends at once.
- **Lists** of tenants, keys, admins and overrides are
  ` + "`{\"items\": […], \"next_cursor\": …, \"total\": n}`" + `. They take ` + "`?limit`" + `, ` + "`?cursor`" + ` and ` + "`?q`" + ` (a part of
  the name). The audit log and the decisions take ` + "`?limit`" + ` and ` + "`?cursor`" + ` and have no ` + "`total`" + `.
  Workers, tiers, queues and usage are one page.
- **Errors** are ` + "`application/problem+json`" + ` (RFC 9457), with each wrong field in ` + "`errors`" + `.
- **PATCH** takes a JSON merge patch. ` + "`null`" + ` restores the default, and an absent field stays.
- **Versions.** An answer with an ` + "`ETag`" + ` takes it back as ` + "`If-Match`" + `. If another operator
  has changed the object meanwhile, the answer is 412 and nothing changes. The ETag of a worker is that
  of its live override.
- **Configuration.** Items of config.yaml are shown and cannot be changed, with 409, except workers'
  weights. A tenant of config.yaml may have further keys; the file's settings apply to them.
- **Secrets** are in the answer that creates them and nowhere else.
- **Audit log.** Each change of tenants, keys, admins and overrides is written in one transaction with
  its line of the audit log. A reload, a login and a logout apply first, and their lines follow.
- **Rejections.** Failed authentication and changes that are rejected with 403, 409 or 412 are written
  to log and audit log. Each address has at most one line per second; its next line has the number of
  the omitted ones. Each reload of a file that changed (412) or has errors (422) has its own line.
  Other changes with 400, 404, 422 or 503 leave no line, nor does a preview.
- **Without a database** (` + "`store.sql: \"\"`" + `), there is no audit log. Weights and drains are written to the
  log only, and end with the gateway.
- **If the database is unavailable or rejects writes** (a full disk), reads are answered from memory.
  Changes get 503 with ` + "`Retry-After`" + `. Logins succeed, but are written to the log only.

## Sessions

` + "`POST /admin/session`" + ` with ` + "`{\"key\": \"tw-adm-…\"}`" + ` logs a browser in. Its answer sets the cookie
` + "`tierway_session_PORT`" + `, or ` + "`__Host-tierway_session_PORT`" + ` on an address with TLS. Scripts of the page
cannot read it, and pages of other sites cannot send it. Behind a proxy that terminates TLS and sends
` + "`X-Forwarded-Proto: https`" + `, browsers send it over TLS only. ` + "`GET /admin/session`" + ` shows the admin and the
end of the session; ` + "`DELETE /admin/session`" + ` ends it.

- **Rights.** A session has the role of its key. It ends when the key is deleted or expires.
- **Time.** A session ends after 30 minutes without a request, and 12 hours after its login. Open streams
  and requests with the header ` + "`X-Tierway-Background: 1`" + ` do not extend the 30 minutes.
- **Place.** Sessions are in the memory of one gateway. They end when it restarts, and other gateways
  reject their cookies.
- **Precedence.** If a request has a key and a cookie, the key applies.
- **Failures.** Invalid keys at login count like invalid keys of other requests: after 20 in a minute,
  the address gets 429 with ` + "`Retry-After`" + `. A valid key still logs in. The limit
  only saves work: keys have 160 random bits and cannot be guessed.
`

// adminExamples are run by TestAdminDocExamplesWork.
const adminExamples = `# create the first admin key, with the secret that the gateway announces at its start
curl -s $ADMIN_URL/admin/bootstrap -H 'Content-Type: application/json' -d '{"secret":"'$BOOTSTRAP_SECRET'","name":"ada"}'
# create a tenant with its first key
curl -s $ADMIN_URL/admin/tenants -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"name":"team-c","limits":{"rpm":600,"day_tokens":5000000},"issue_key":true}'
# change a limit, unless the tenant was changed since version 1
curl -s -X PATCH $ADMIN_URL/admin/tenants/team-c -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -H 'If-Match: "v1"' -d '{"limits":{"rpm":1200}}'
# export its usage for a spreadsheet
curl -s "$ADMIN_URL/admin/tenants/team-c/usage?group_by=model" -H "Authorization: Bearer $ADMIN_KEY" -H 'Accept: text/csv'
# give a worker five times the requests of a worker of weight 1, for an hour
curl -s -X PATCH $ADMIN_URL/admin/workers/small-0 -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"weight":5,"ttl_s":3600}'
# drain a worker before maintenance, see how many requests are left, and end the drain
curl -s -X POST $ADMIN_URL/admin/workers/small-1/drain -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"timeout_s":600}'
curl -s $ADMIN_URL/admin/workers/small-1 -H "Authorization: Bearer $ADMIN_KEY"
curl -s -X POST $ADMIN_URL/admin/workers/small-1/undrain -H "Authorization: Bearer $ADMIN_KEY"
# list the batch requests that wait for the tier small, the next one first
curl -s "$ADMIN_URL/admin/queues/small?class=batch&limit=20" -H "Authorization: Bearer $ADMIN_KEY"
# list the last failed requests of the tier large; export all records of today for replay
curl -s "$ADMIN_URL/admin/decisions?tier=large&outcome=failed&limit=20" -H "Authorization: Bearer $ADMIN_KEY"
curl -s "$ADMIN_URL/admin/decisions?since=$(date -u +%FT00:00:00Z)" -H "Authorization: Bearer $ADMIN_KEY" -H 'Accept: application/x-ndjson'
# preview a reload; its to_hash as If-Match reloads exactly the previewed file
curl -s -X POST "$ADMIN_URL/admin/reload?dry_run=true" -H "Authorization: Bearer $ADMIN_KEY"
curl -s -X POST $ADMIN_URL/admin/reload -H "Authorization: Bearer $ADMIN_KEY" -H 'If-Match: "'$TO_HASH'"'
`

// TestAdminDocExamplesWork runs the examples unchanged. The workers have the names of the demo's
// workers.
func TestAdminDocExamplesWork(t *testing.T) {
	r, secret := bootstrapRig(t)
	r.text = strings.NewReplacer("name: w0,", "name: small-0,", "name: w1,", "name: small-1,").Replace(r.text)
	r.source = func() (*config.File, error) { // a reload needs the name config.yaml
		return config.Parse("config.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
	}
	if _, err := r.control.Reload(t.Context(), control.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
	plane := httptest.NewServer(r.front)
	defer plane.Close()
	env := append(os.Environ(), "ADMIN_URL="+plane.URL, "ADMIN_KEY=ops", "BOOTSTRAP_SECRET="+secret)
	for line := range strings.Lines(adminExamples) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		file, err := r.source()
		if err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(line, "curl -s", "curl -s --fail-with-body", 1))
		run.Env = append(env, "TO_HASH="+file.Hash())
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s%v: %s", line, err, out)
		}
		if strings.Contains(line, "/admin/bootstrap") {
			ops := store.Admin{ID: "a1", Name: "ops", Role: store.RoleAdmin, Digest: tenants.Digest("ops")}
			if _, err := r.control.Stores.SQL.CreateAdmin(t.Context(), store.Actor{}, ops); err != nil {
				t.Fatal(err)
			}
			r.control.Changed(t.Context())
		}
	}
	if w := r.worker("small-0"); w.Weights.Effective != 5 {
		t.Errorf("after all of them small-0 is %+v", w)
	}
	if w := r.worker("small-1"); w.Drain != nil {
		t.Errorf("after all of them small-1 is %+v", w)
	}
	for _, action := range []string{"worker.override", "worker.override.clear"} {
		is := func(e store.AuditEntry) bool { return e.Action == action && e.Target == "small-1" }
		if !slices.ContainsFunc(r.auditLog(), is) {
			t.Errorf("the audit log has no %s of small-1", action)
		}
	}
}

func TestAdminDocIsGeneratedFromOpenAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "../docs/admin-api.md"
		want := adminRigOf(newRig(t, plain, fakeEngine())).adminDoc()
		if os.Getenv("UPDATE_DOCS") == "1" {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is out of date: run make docs (-want +got):\n%s", path, diff)
		}
	})
}

// TestPageDocIsGeneratedFromOpenAPI writes the document from which the admin UI generates its types.
func TestPageDocIsGeneratedFromOpenAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "../web/ui/openapi.json"
		want, err := json.MarshalIndent(adminRigOf(newRig(t, plain, fakeEngine())).plane.OpenAPI(), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		if os.Getenv("UPDATE_DOCS") == "1" {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is out of date: run make docs (-want +got):\n%s", path, diff)
		}
	})
}
