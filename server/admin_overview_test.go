package server

import (
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
	"tierway/server/control"
	"tierway/store"
)

// overview returns the answer of GET /admin/overview.
func (r *adminRig) overview() admin.OverviewView {
	r.t.Helper()
	got := r.callAdmin("eyes", http.MethodGet, "/admin/overview", "")
	if got.status != http.StatusOK {
		r.t.Fatalf("%d: %s", got.status, got.body)
	}
	return decode[admin.OverviewView](r.t, got)
}

// subjects returns the subjects of an overview's attention.
func subjects(v admin.OverviewView) string {
	var all []string
	for _, i := range v.Attention {
		all = append(all, i.Severity+" "+i.Subject)
	}
	return strings.Join(all, ", ")
}

// TestOverviewShowsTheGateway: rates need two samples, and the first steps are done one by one.
func TestOverviewShowsTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		first := r.overview()
		tier := first.Tiers[0]
		if !first.Ready || len(first.NotReady) != 0 || first.Draining || first.Memory < 1<<20 || first.Routines == 0 ||
			first.SQL.State != "ok" || first.Redis.State != "off" || len(first.Attention) != 0 || first.Rate.Requests != nil ||
			first.CPU != nil || tier.Requests != nil || tier.TTFT50 != nil {
			t.Errorf("the first overview is %+v", first)
		}
		if tier.Name != "small" || !tier.Tier || tier.Model != "fake-7b" || tier.Policy == "" || tier.Workers["up"] != 2 ||
			len(tier.Queue) != 3 || tier.Queue["batch"].Waiting != 0 {
			t.Errorf("the tier is %+v", tier)
		}
		if c := first.Checklist; !c.Workers || !c.Tenants || c.Requests {
			t.Errorf("the checklist is %+v", c)
		}
		r.startSampler()
		waitUntil(t, "the first rate", func() bool { return r.overview().Rate.Requests != nil })
		r.post("/v1/chat/completions", chatBody("small", "hello", `,"stream":true`), "Authorization", "Bearer filed")
		r.post("/v1/chat/completions", chatBody("small", "hello", ""), "Authorization", "Bearer wrong")
		var v admin.OverviewView
		waitUntil(t, "both requests in the rates", func() bool {
			v = r.overview()
			return *v.Rate.Refused > 0 && *v.Tiers[0].Requests > 0
		})
		tier = v.Tiers[0]
		if *v.Rate.Errors != 0 || *tier.Requests >= *v.Rate.Requests || tier.TTFT95 == nil || v.CPU == nil ||
			!v.Checklist.Requests {
			t.Errorf("after two requests it is %+v", v)
		}
	})
}

// TestOverviewVersionsChangeWithTheirLists, and only with them.
func TestOverviewVersionsChangeWithTheirLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		base := a.overview().Versions
		if again := a.overview().Versions; again != base {
			t.Errorf("without a change: %+v, then %+v", base, again)
		}
		step := func(name string, want string, change func()) {
			t.Helper()
			change()
			now, changed := a.overview().Versions, []string{}
			for list, differs := range map[string]bool{"config": now.Config != base.Config,
				"overrides": now.Overrides != base.Overrides, "directory": now.Directory != base.Directory,
				"audit": now.Audit != base.Audit} {
				if differs {
					changed = append(changed, list)
				}
			}
			slices.Sort(changed)
			if got := strings.Join(changed, " "); got != want {
				t.Errorf("%s changes %q, want %q", name, got, want)
			}
			base = now
		}
		step("a tenant", "audit directory", func() {
			a.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"team-a"}`)
		})
		step("a tenant on another gateway", "directory", func() {
			b.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"team-b"}`)
			must(t, a.control.Refresh(t.Context()))
		})
		step("an override", "audit directory overrides", func() {
			a.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5}`)
		})
		step("its end", "audit directory overrides", func() {
			a.ops(http.StatusNoContent, http.MethodDelete, "/admin/overrides/w0", "")
		})
		if base.Overrides != 0 {
			t.Errorf("without overrides their version is %d", base.Overrides)
		}
		step("a rejected change", "audit", func() {
			a.callAdmin("eyes", http.MethodPost, "/admin/reload", "")
		})
	})
}

// TestOverviewNamesWhatNeedsAttention on a running gateway.
func TestOverviewNamesWhatNeedsAttention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		r := adminRigOf(newRigWith(t, adminYAML(memoryDB), func(o *Options) { o.Path = path }, fakeEngine(), fakeEngine()))
		must(t, os.WriteFile(path, nil, 0o600))
		r.source = func() (*config.File, error) {
			return config.Parse("config.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
		}
		if got := subjects(r.overview()); got != "" {
			t.Errorf("a good gateway needs %s", got)
		}
		r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5,"ttl_s":300}`)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"team-a"}`)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/team-a/keys",
			`{"name":"short","expires_at":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
		v := r.overview()
		if got := subjects(v); !strings.HasPrefix(got, "warning worker w0, warning key ") || len(v.Attention) != 2 ||
			v.Attention[1].Link != "tenants?q=team-a" || v.Overrides != 1 {
			t.Errorf("it needs %s: %+v", got, v.Attention)
		}
		r.text = strings.Replace(r.text, "model: fake-7b", "model: other-7b", 1)
		must(t, os.WriteFile(path, []byte("changed"), 0o600))
		if got := subjects(r.overview()); !strings.HasPrefix(got, "warning configuration, ") {
			t.Errorf("with another file it needs %s", got)
		}
		if _, err := r.control.Reload(t.Context(), control.ReloadRequest{Actor: store.Actor{Name: "test"}}); err != nil {
			t.Fatal(err)
		}
		if got := subjects(r.overview()); strings.Contains(got, "configuration") {
			t.Errorf("after a reload it needs %s", got)
		}
		for _, w := range []string{"w0", "w1"} {
			r.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/"+w+"/drain", "")
		}
		v = r.overview()
		if got := subjects(v); !strings.HasPrefix(got, "error tier small") || v.Ready || len(v.NotReady) != 1 ||
			v.Tiers[0].Workers["drained"] != 2 {
			t.Errorf("without workers it needs %s: %+v", got, v)
		}
		r.proxy.Drain()
		if v = r.overview(); !v.Draining || len(v.NotReady) != 2 {
			t.Errorf("while it drains, it is not ready because %v", v.NotReady)
		}
	})
}
