package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/config"
	"tierway/server/admin"
	"tierway/server/control"
	"tierway/store"
)

// TestRightsNameOnlyWhatExists: a tier or model that the configuration does not have is rejected with the names that
// exist. A mistyped name in a list would otherwise move requests to the tiers that are left.
func TestRightsNameOnlyWhatExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		key := decode[keyChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys", `{}`)).Key.ID
		for _, tt := range []struct{ rights, location, message string }{
			{`"tiers":["smal"]`, "body.tiers[0]", "did you mean small? known: small"},
			{`"tiers":["small","huge"]`, "body.tiers[1]", "not a tier or pool of the configuration in force: known: small"},
			{`"tiers":["Small"]`, "body.tiers[0]", "did you mean small?"},
			{`"tiers":[" small"]`, "body.tiers[0]", "did you mean small?"},
			{`"tiers":["small,large"]`, "body.tiers[0]", "known: small"},
			{`"tiers":["gpt-4o-mini"]`, "body.tiers[0]", "not a tier or pool"},
			{`"tiers":["*"]`, "body.tiers[0]", "send null for all"},
			{`"models":["smal"]`, "body.models[0]", "did you mean small?"},
			{`"models":["small","claude-*"]`, "body.models[1]", "gpt-4o-mini"},
		} {
			for method, path := range map[string]string{"POST": "/admin/tenants", "PATCH": "/admin/tenants/acme",
				"POST ": "/admin/tenants/acme/keys", "PATCH ": "/admin/keys/" + key} {
				body := "{" + tt.rights + "}"
				if path == "/admin/tenants" {
					body = `{"name":"other",` + tt.rights + "}"
				}
				got := r.ops(http.StatusUnprocessableEntity, strings.TrimSpace(method), path, body)
				p := decode[problemOf](t, got)
				if len(p.Errors) != 1 || p.Errors[0].Location != tt.location || !strings.Contains(p.Errors[0].Message, tt.message) {
					t.Errorf("%s %s %s: %s", method, path, body, got.body)
				}
			}
		}
		for _, rights := range []string{`{"tiers":["small"],"models":["sm*","gpt-4o-mini","fake-7b","auto","*"]}`,
			`{"tiers":[],"models":[]}`, `{"tiers":null,"models":null}`} {
			r.ops(http.StatusOK, http.MethodPatch, "/admin/tenants/acme", rights)
			r.ops(http.StatusOK, http.MethodPatch, "/admin/keys/"+key, rights)
		}
	})
}

// TestRightsOfARemovedTierStay: they are warned about and can be sent back, so that other settings can be changed.
func TestRightsOfARemovedTierStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme","tiers":["small"],"models":["gpt-4o*"]}`)
		made := r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys", `{"tiers":["small"]}`)
		key := decode[keyChanged](t, made).Key.ID
		r.reload(strings.NewReplacer("name: small", "name: tiny", `"gpt-4o-mini": small`, `"gpt-5": tiny`).Replace(r.text))
		got := attentionOn(r.overview(), "permissions")
		for _, want := range []string{
			`tiers: "small" is not a tier or pool (known: tiny). Named by 2: tenant acme, key ` + key + " of acme. tenants?q=small",
			`models: "gpt-4o*" matches no model, tier or alias (known: auto, `, "Named by 1: tenant acme. tenants?q=gpt-4o%2A"} {
			if !strings.Contains(got, want) {
				t.Errorf("the overview says %q, want %q", got, want)
			}
		}
		for path, body := range map[string]string{"/admin/tenants/acme": `{"degrade":true,"tiers":["small"]}`,
			"/admin/keys/" + key: `{"name":"x"}`} {
			got := r.ops(http.StatusOK, http.MethodPatch, path, body)
			if !strings.Contains(got.body, `tiers: \"small\" is not a tier or pool`) {
				t.Errorf("%s has no warning: %s", path, got.body)
			}
			r.ops(http.StatusUnprocessableEntity, http.MethodPatch, path, `{"tiers":["small","huge"]}`)
			r.ops(http.StatusOK, http.MethodPatch, path, `{"tiers":["tiny"],"models":null}`)
		}
		if got := attentionOn(r.overview(), "permissions"); got != "" {
			t.Errorf("after the correction the overview says %q", got)
		}
	})
}

// attentionOn returns the messages and links of an overview's attention about a subject.
func attentionOn(v admin.OverviewView, subject string) string {
	var all []string
	for _, i := range v.Attention {
		if i.Subject == subject {
			all = append(all, i.Message+" "+i.Link)
		}
	}
	return strings.Join(all, " | ")
}

// reload puts another configuration in force.
func (r *adminRig) reload(text string) {
	r.t.Helper()
	r.text = text
	r.source = func() (*config.File, error) {
		return config.Parse("config.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
	}
	if _, err := r.control.Reload(r.t.Context(), control.ReloadRequest{Actor: store.Actor{Name: "test"}}); err != nil {
		r.t.Fatal(err)
	}
}

// TestKeyWithoutATierOfItsTenantIsWarnedAbout: its rights narrow those of the tenant, so nothing is left.
func TestKeyWithoutATierOfItsTenantIsWarnedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme","tiers":[]}`)
		got := r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys", `{"tiers":["small"]}`)
		made := decode[keyChanged](t, got)
		const want = `tiers: "small" has no effect: the tenant may not use it`
		if len(made.Warnings) != 1 || made.Warnings[0] != want {
			t.Errorf("warnings %q, want %q", made.Warnings, want)
		}
		got = r.ops(http.StatusOK, http.MethodPatch, "/admin/keys/"+made.Key.ID, `{"name":"x"}`)
		if !strings.Contains(got.body, "the tenant may not use it") {
			t.Errorf("the change answers %s", got.body)
		}
	})
}
