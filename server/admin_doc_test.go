package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// documentedOperations are the operations of the document by method and path.
func (r *adminRig) documentedOperations() map[string]*huma.Operation {
	all := map[string]*huma.Operation{}
	for path, item := range r.plane.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op != nil {
				all[method+" "+path] = op
			}
		}
	}
	return all
}

func TestEveryOperationSaysWhoMayAndWhatGoesWrong(t *testing.T) {
	r := adminRigOf(newRig(t, plain, fakeEngine()))
	ids := map[string]bool{}
	for name, op := range r.documentedOperations() {
		if ids[op.OperationID] || op.OperationID == "" || op.Summary == "" {
			t.Errorf("%s has the id %q, which is not its own, or no summary", name, op.OperationID)
		}
		ids[op.OperationID] = true
		roles, _ := op.Extensions["x-roles"].([]string)
		if open := name == "POST /admin/bootstrap"; open != (len(op.Security) == 0) || open != (len(roles) == 0) {
			t.Errorf("%s has the security %v and the roles %v", name, op.Security, roles)
		}
		for _, s := range op.Security {
			if _, ok := s["admin_key"]; !ok || r.plane.OpenAPI().Components.SecuritySchemes["admin_key"] == nil {
				t.Errorf("%s has the security %v", name, s)
			}
		}
		for _, status := range []string{"401", "403", "429", "500"} {
			if op.Responses[status] == nil || op.Responses[status].Content["application/problem+json"] == nil {
				t.Errorf("%s does not say that it may answer %s", name, status)
			}
		}
		if strings.Contains(name, "{") && op.Responses["404"] == nil {
			t.Errorf("%s does not say that there may be no such thing", name)
		}
		if op.RequestBody != nil && (op.Responses["413"] == nil || op.MaxBodyBytes != 1<<20) {
			t.Errorf("%s has a body of up to %d bytes", name, op.MaxBodyBytes)
		}
	}
}

func TestTheDocumentIsServedToThoseWithAKey(t *testing.T) {
	r := adminRigOf(newRig(t, adminYAML(""), fakeEngine()))
	if got := r.ask("", http.MethodGet, "/admin/openapi.json", ""); got.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", got.status)
	}
	doc := decoded[struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}](t, r.ask("eyes", http.MethodGet, "/admin/openapi.json", ""))
	if doc.OpenAPI != "3.1.0" || doc.Paths["/admin/tenants"]["post"] == nil {
		t.Errorf("the document is %+v", doc)
	}
}

// adminDoc is docs/admin-api.md, made from the document.
func (r *adminRig) adminDoc() string {
	var b strings.Builder
	b.WriteString("# Admin API\n\n" +
		"<!-- Made from server/admin; `UPDATE_DOCS=1 go test ./server -run TestAdminDoc` writes it anew. -->\n\n" +
		"On the admin plane (127.0.0.1:8081), with `Authorization: Bearer <admin key>`. `GET /admin/openapi.json` has every field.\n\n" +
		"Bodies are JSON with snake_case names; times are RFC 3339 in UTC. Lists of tenants, keys, admins and overrides are `{\"items\": […], \"next_cursor\": …, \"total\": n}` and take `?limit`, `?cursor` and `?q` (a part of the name); " +
		"the audit log and decisions take `?limit` and `?cursor` and have no `total`; workers, tiers, queues and usage are one page. " +
		"Errors are `application/problem+json` (RFC 9457), with each wrong field in `errors`. PATCH takes a JSON merge patch: null goes back to the default, what is left out stays. " +
		"Answers with an `ETag` take it back as `If-Match`, and refuse with 412 what was changed meanwhile; a worker's is that of its live override. What stands in config.yaml is shown and cannot be changed, 409, but for workers' weights; " +
		"a tenant of it may have more keys, for which the file's settings count. " +
		"Secrets are in the answer that makes them and nowhere else.\n\n" +
		"Every change of tenants, keys, admins and overrides in the database is a line of the audit log, written with it: if that cannot be written, nothing changes. A reload is in force first and its line is written after it. " +
		"Without a database, changes of weights and drains are logged only, and end with the gateway. Failed authentication and refused changes are a line of log and audit log too, " +
		"at most one a second for each address, with the number of those left out. " +
		"While the database is away or takes no writes (a full disk), reads answer from memory and changes answer 503 with `Retry-After`.\n\n" +
		"| operation | admin | viewer | what it does |\n|---|---|---|---|\n")
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
	b.WriteString("\n## Examples\n\n`$ADMIN_URL` is the admin plane and `$ADMIN_KEY` an admin key.\n\n```sh\n" + adminExamples + "```\n")
	return b.String()
}

// adminExamples are run by TestTheExamplesOfTheDocWork.
const adminExamples = `# the first admin, with the secret that the gateway announces at its start
curl -s $ADMIN_URL/admin/bootstrap -H 'Content-Type: application/json' -d '{"secret":"'$BOOTSTRAP_SECRET'","name":"ada"}'
# a tenant with its first key
curl -s $ADMIN_URL/admin/tenants -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"name":"acme","limits":{"rpm":600,"month_money":250},"issue_key":true}'
# another limit, unless somebody else changed the tenant
curl -s -X PATCH $ADMIN_URL/admin/tenants/acme -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -H 'If-Match: "v1"' -d '{"limits":{"rpm":1200}}'
# what it has used, for a spreadsheet
curl -s "$ADMIN_URL/admin/tenants/acme/usage?group_by=model" -H "Authorization: Bearer $ADMIN_KEY" -H 'Accept: text/csv'
# five times the requests of a worker of weight 1 for an hour; then none, to work on the machine
curl -s -X PATCH $ADMIN_URL/admin/workers/w0 -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"weight":5,"ttl_s":3600}'
curl -s -X POST $ADMIN_URL/admin/workers/w0/drain -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"timeout_s":600}'
# who waits for the tier small, the next to go first
curl -s "$ADMIN_URL/admin/queues/small?class=batch&limit=20" -H "Authorization: Bearer $ADMIN_KEY"
# the last requests that failed on large; and all of today as JSON lines, which replay reads
curl -s "$ADMIN_URL/admin/decisions?tier=large&outcome=failed&limit=20" -H "Authorization: Bearer $ADMIN_KEY"
curl -s "$ADMIN_URL/admin/decisions?since=$(date -u +%FT00:00:00Z)" -H "Authorization: Bearer $ADMIN_KEY" -H 'Accept: application/x-ndjson'
# what a reload would do, and the reload of just that file
curl -s -X POST "$ADMIN_URL/admin/reload?dry_run=true" -H "Authorization: Bearer $ADMIN_KEY"
curl -s -X POST $ADMIN_URL/admin/reload -H "Authorization: Bearer $ADMIN_KEY" -H 'If-Match: "'$TO_HASH'"'
`

// TestTheExamplesOfTheDocWork runs them as they stand.
func TestTheExamplesOfTheDocWork(t *testing.T) {
	r, secret := bootstrapRig(t)
	r.source = func() (*config.File, error) { // the rig's own was read under another name
		return config.Parse("config.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
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
			r.control.Database.Changed(t.Context())
		}
	}
	if w := r.worker("w0"); w.Drain == nil {
		t.Errorf("after all of them w0 is %+v", w)
	}
}

func TestAdminDocIsMadeFromTheDocument(t *testing.T) {
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
		t.Errorf("%s differs from the document; UPDATE_DOCS=1 go test ./server -run TestAdminDoc writes it anew (-want +got):\n%s", path, diff)
	}
}
