package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/server/admin"
	"tierway/store"
)

// originShown is an origin as GET /admin/config shows it.
type originShown struct {
	Source    string
	Line      int
	Variables []string
	Detail    string
	By        string
	At, Until *time.Time
}

// diskRig serves a file on disk with a secret in every place that may hold one. write replaces the file.
func diskRig(t *testing.T) (r *adminRig, text string, write func(text string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	env := func(name string) (string, bool) {
		return map[string]string{"FILED": digestHex("filed")}[name], name == "FILED"
	}
	load := func() (*config.File, error) { return config.Load(path, env) }
	write = func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = fmt.Sprintf(`gateways: 2
store: { sql: "sqlite://:memory:" }
admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }
auth:
  keys:
    - name: filed
      sha256: ${FILED}
health: { path: "off" }
classifier: { preset: none }
tiers:
  - name: small
    model: fake-7b
    workers:
      - { name: w0, url: "http://127.0.0.1:1" }
      - name: w1
        url: "http://127.0.0.1:2"
        weight: 3
models: { "gpt-4*": small }
`, digestHex("ops"), digestHex("eyes"))
	write(text)
	r = adminRigOf(newRigWith(t, adminYAML(memoryDB), func(o *Options) {
		f, err := load()
		if err != nil {
			t.Fatal(err)
		}
		o.Config, o.Source, o.Path = f, load, path
	}, fakeEngine()))
	return r, text, write
}

// CF-03: GET /admin/config has the line of each key of the file, the names of variables, and the authors of
// live overrides. Lines follow a reload without a difference in meaning.
func TestConfigHasTheOriginOfEachValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, text, write := diskRig(t)
		until := time.Now().Add(time.Hour).Truncate(time.Second)
		for _, o := range []store.Override{{Worker: "w1", Weight: new(7), By: "ada", Until: until},
			{Worker: "w0", Drain: true, By: "bob"}} {
			if err := r.override(t.Context(), store.Actor{Name: o.By, Via: "api"}, o); err != nil {
				t.Fatal(err)
			}
		}
		origins := func() map[string]originShown {
			t.Helper()
			got := r.callAdmin("eyes", http.MethodGet, "/admin/config", "")
			if strings.Contains(got.body, digestHex("filed")) || strings.Contains(got.body, digestHex("ops")) {
				t.Errorf("the answer has a digest: %s", got.body)
			}
			return decode[struct{ Origins map[string]originShown }](t, got).Origins
		}
		got := origins()
		for path, want := range map[string]originShown{
			"gateways": {Source: "file", Line: 1}, "auth.keys[0].sha256": {Source: "environment", Line: 7},
			"admin.keys[1].role": {Source: "file", Line: 3}, "tiers[0].workers[1].url": {Source: "file", Line: 16},
			`models["gpt-4*"]`: {Source: "file", Line: 18}, "tiers[0].workers[1].weight": {Source: "override"},
			"tiers[0].workers[0].weight": {Source: "override"}, "listen": {}, "breaker.window": {}, "admin.keys[0].role": {},
		} {
			if o := got[path]; o.Source != want.Source || o.Line != want.Line {
				t.Errorf("%s is %+v, want %+v", path, o, want)
			}
		}
		if o := got["tiers[0].workers[1].weight"]; o.By != "ada" || o.Until == nil || !o.Until.Equal(until) ||
			!strings.Contains(o.Detail, "weight set by ada until") {
			t.Errorf("the overridden weight is %+v", o)
		}
		if o := got["tiers[0].workers[0].weight"]; o.Detail != "drained by bob" || o.Until != nil {
			t.Errorf("the drained worker is %+v", o)
		}
		write("# moved\n\n" + text)
		if a := decode[admin.ReloadAnswer](t, r.ops(http.StatusOK, http.MethodPost, "/admin/reload", "")); a.Generation != 1 {
			t.Errorf("a comment made generation %d", a.Generation)
		}
		if o := origins()["gateways"]; o.Line != 3 {
			t.Errorf("after a comment was added, gateways is %+v", o)
		}
		write(strings.Replace(text, "gateways: 2", "gateways: 2\nlisten: 127.0.0.1:9", 1))
		r.ops(http.StatusOK, http.MethodPost, "/admin/reload", "")
		if got := origins(); got["listen"].Source != "default" || !strings.Contains(got["listen"].Detail, "restart") ||
			got["health.path"].Line != 9 {
			t.Errorf("after a change that needs a restart: %+v, %+v", got["listen"], got["health.path"])
		}
	})
}

// CF-03: the text of the file has no secret, valid or not, and has the lines of the origins.
func TestConfigFileIsShownWithoutSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, text, write := diskRig(t)
		type fileShown struct {
			Path, Text, Hash string
			ModifiedAt       time.Time `json:"modified_at"`
			Hidden           int       `json:"secrets_hidden"`
		}
		shown := decode[fileShown](t, r.callAdmin("eyes", http.MethodGet, "/admin/config/file", ""))
		config := decode[configShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/config", ""))
		if shown.Hash != config.Hash || shown.Path == "" || shown.ModifiedAt.IsZero() || shown.Hidden != 2 {
			t.Errorf("%+v", shown)
		}
		if strings.Count(shown.Text, "\n") != strings.Count(text, "\n") || !strings.Contains(shown.Text, "${FILED}") ||
			!strings.Contains(shown.Text, digestHex("ops")[:8]+"…") {
			t.Errorf("the text is\n%s", shown.Text)
		}
		write(strings.Replace(text, "sqlite://:memory:", "postgres://u:hunter2@h/d", 1) + "broken: [\n# token: hunter2\n")
		for _, path := range []string{"/admin/config/file", "/admin/config"} {
			if got := r.ops(http.StatusOK, http.MethodGet, path, ""); strings.Contains(got.body, "hunter2") ||
				strings.Contains(got.body, digestHex("ops")) {
				t.Errorf("%s of a broken file is %s", path, got.body)
			}
		}
		if v := decode[fileShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/config/file", "")); v.Hash == shown.Hash {
			t.Error("another file has the same hash")
		}
		if err := os.Remove(shown.Path); err != nil {
			t.Fatal(err)
		}
		r.ops(http.StatusUnprocessableEntity, http.MethodGet, "/admin/config/file", "")
		newAdminRig(t).ops(http.StatusConflict, http.MethodGet, "/admin/config/file", "")
	})
}

// CF-07: a preview shows what becomes of each live override.
func TestPreviewShowsWhatBecomesOfOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, text, write := diskRig(t)
		for worker, weight := range map[string]int{"w0": 5, "w1": 6, "later": 7, "unknown": 8} {
			o := store.Override{Worker: worker, Weight: &weight, By: "ada"}
			if err := r.override(t.Context(), store.Actor{Name: "ada", Via: "api"}, o); err != nil {
				t.Fatal(err)
			}
		}
		overrides := func(text string) string {
			t.Helper()
			write(text)
			a := decode[admin.ReloadAnswer](t, r.callAdmin("eyes", http.MethodPost, "/admin/reload?dry_run=true", ""))
			var all []string
			for _, o := range a.Impact.Overrides {
				file := "-"
				if o.FileWeight != nil {
					file = fmt.Sprint(*o.FileWeight)
				}
				all = append(all, fmt.Sprintf("%s %s %d/%s", o.Worker, o.Effect, o.Weight, file))
			}
			return strings.Join(all, ", ")
		}
		if got := overrides(text); got != "w0 kept 5/1, w1 kept 6/3" {
			t.Errorf("without a change: %s", got)
		}
		changed := strings.NewReplacer("weight: 3", "weight: 4", "{ name: w0,", "{ name: later,").Replace(text)
		if got := overrides(changed); got != "later begins 7/1, w0 ends 5/-, w1 shadows 6/4" {
			t.Errorf("with a change: %s", got)
		}
	})
}

// AD-11: one request lists a thousand tenants with their keys and usage, without secrets.
func TestTenantsAreListedInOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		made := decode[tenantChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants",
			`{"name":"acme","limits":{"rpm":600,"concurrent":4,"day_tokens":1000000,"day_money":2.5},
			"issue_key":true,"key_name":"ci"}`))
		soon := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys", `{"name":"soon","expires_at":"`+soon+`"}`)
		revoked := decode[tenantChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys", `{}`)).Key
		r.ops(http.StatusOK, http.MethodPost, "/admin/keys/"+revoked.ID+"/revoke", "")
		if status := r.chat(made.Secret); status != http.StatusOK {
			t.Fatalf("a chat is %d", status)
		}
		if err := r.control.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := r.callAdmin("eyes", http.MethodGet, "/admin/tenants?limit=1000&q=acme", "")
		list := decode[struct {
			Items []struct {
				Name   string
				Keys   int
				States map[string]int `json:"key_states"`
				List   []struct {
					ID, Name, Hint, State string
					Limits                json.RawMessage
				} `json:"key_list"`
				Now struct {
					Day    struct{ Tokens int64 }
					Limits []struct {
						Limit, Scope string
						Used, Room   float64
					}
				}
				Today *struct{ Requests int64 }
			}
		}](t, got)
		if len(list.Items) != 1 || strings.Contains(got.body, made.Secret) || strings.Contains(got.body, "digest") {
			t.Fatalf("the list is %s", got.body)
		}
		v := list.Items[0]
		if v.Keys != 2 || len(v.List) != 3 || v.States["active"] != 2 || v.States["expiring"] != 1 ||
			v.States["revoked"] != 1 {
			t.Errorf("the keys are %+v", v)
		}
		used := map[string]float64{}
		for _, l := range v.Now.Limits {
			used[l.Limit] = l.Used / l.Room
		}
		if len(used) != 4 || used["rpm"] <= 0 || used["concurrent"] != 0 || used["day_tokens"] <= 0 ||
			v.Now.Day.Tokens == 0 ||
			v.Today != nil {
			t.Errorf("the usage is %+v", v.Now)
		}
		r.ops(http.StatusUnprocessableEntity, http.MethodGet, "/admin/tenants?limit=1001", "")
	})
}

// TestTenantsHaveTheUsageOfToday: the database counts the requests of all gateways.
func TestTenantsHaveTheUsageOfToday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		rows := []store.Row{{Outcome: "ok"}, {Outcome: "ok"}, {Outcome: "refused"}, {Outcome: "truncated"}}
		for i := range rows {
			rows[i].ID, rows[i].Tenant, rows[i].At = fmt.Sprintf("row-%d", i), "filed", time.Now()
		}
		if _, err := r.control.Stores.SQL.WriteRows(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		got := r.ops(http.StatusOK, http.MethodGet, "/admin/tenants?today=true", "")
		list := decode[struct {
			Items []struct {
				Today *struct{ Requests, Refused, Failed int64 }
			}
		}](t, got)
		if u := list.Items[0].Today; u == nil || u.Requests != 4 || u.Refused != 1 || u.Failed != 1 {
			t.Errorf("today is %s", got.body)
		}
		usage := decode[struct{ Limits *map[string]any }](t,
			r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/filed/usage", ""))
		if usage.Limits == nil {
			t.Error("the usage by day has no limits to compare with")
		}
	})
}

// AD-13: a viewer can verify the audit log.
func TestAuditLogIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		got := r.callAdmin("eyes", http.MethodPost, "/admin/audit/verify", "")
		v := decode[struct {
			Valid    bool
			Entries  int64
			BrokenAt int64 `json:"broken_at"`
		}](t, got)
		if got.status != http.StatusOK || !v.Valid || v.Entries != int64(len(r.auditLog())) || v.BrokenAt != 0 {
			t.Errorf("%d: %s", got.status, got.body)
		}
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/audit/verify", `{"from":3}`)
	})
}

// TestRulesAreThoseInForce: rules are listed in their order, with all defaults, and count their requests.
func TestRulesAreThoseInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, strings.Replace(adminYAML(memoryDB), "models:", `  - name: large
    model: big
    workers: [ { name: l0, url: "http://127.0.0.1:1" } ]
policy: { name: chwbl, epsilon: 0.5 }
classifier:
  preset: none
  keywords: [ { tier: large, name: proofs, weight: 2, in: [user, system], match: ['\bproof\b'] } ]
models:`, 1), fakeEngine()))
		r.post("/v1/chat/completions", chatBody("auto", "hi", ""), "Authorization", "Bearer filed")
		v := decode[struct {
			Mode, Default, Unavailable, Preset string
			Tiers                              []string
			Sticky                             bool
			Idle                               float64 `json:"sticky_idle_s"`
			Rules                              []struct {
				Rule, Tier, Group string
				Threshold         int64
				Weight            float64
				In, Match         []string
				Requests          int64
			}
			Aliases []struct {
				Name    string
				Targets []string
				Implied bool
			}
		}](t, r.callAdmin("eyes", http.MethodGet, "/admin/rules", ""))
		var rules []string
		for _, rule := range v.Rules {
			rules = append(rules, fmt.Sprintf("%s %s %d %v %v %d", rule.Rule, rule.Tier, rule.Threshold, rule.In, rule.Match,
				rule.Requests))
		}
		want := []string{"prompt_tokens large 16000 [] [] 0", "max_tokens large 2000 [] [] 0",
			`keyword:proofs large 0 [user system] [\bproof\b] 0`, "default small 0 [] [] 1"}
		if !slices.Equal(rules, want) {
			t.Errorf("the rules are %q, want %q", rules, want)
		}
		if v.Mode != "max" || v.Default != "small" || v.Unavailable != "up" || !v.Sticky || v.Idle != 1800 ||
			!slices.Equal(v.Tiers, []string{"small", "large"}) || len(v.Aliases) != 2 || v.Aliases[1].Name != "auto" ||
			!v.Aliases[1].Implied || v.Aliases[0].Targets[0] != "small" {
			t.Errorf("%+v", v)
		}
		tiers := decode[struct {
			Items []struct {
				Name   string
				Config struct {
					Policy  map[string]any
					Queue   map[string]any
					Workers []any
				}
			}
		}](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tiers", ""))
		c := tiers.Items[1].Config
		if c.Policy["name"] != "chwbl" || c.Policy["epsilon"] != 0.5 || c.Queue["max_depth"] != 1000.0 || c.Workers != nil {
			t.Errorf("the settings of large are %+v", c)
		}
	})
}

// TestStatusHasTheAddressesOfThePlanes: a page can tell clients where to send requests.
func TestStatusHasTheAddressesOfThePlanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		v := decode[struct {
			Listen struct {
				Data, Admin struct {
					Address string
					TLS     bool
				}
				Hosts    []string
				Required bool `json:"auth_required"`
			}
		}](t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")).Listen
		if v.Data.Address != "127.0.0.1:8080" || v.Admin.Address != "127.0.0.1:8081" || v.Data.TLS ||
			!v.Required || v.Hosts == nil {
			t.Errorf("%+v", v)
		}
	})
}
