package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/memnet/memredis"
	"tierway/tenants"
)

// groupsYAML has the tenants a to e and two tiers with a cache. Its verbs are settings of tenants, the groups, and the
// workers of both tiers.
func groupsYAML(settings map[string]string, groups, more string) string {
	keys := ""
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		keys += fmt.Sprintf("    - { name: %s, sha256: %s, response_cache: true%s }\n", name, digestHex("key-"+name),
			settings[name])
	}
	return more + "\nresponse_cache: { shared: " + groups + ` }
health: { path: "off" }
auth:
  keys:
` + keys + `tiers:
  - name: small
    model: fake-7b
    response_cache: { exact: {} }
    workers: [ %[1]s ]
  - name: large
    model: fake-70b
    price: { input: 1000, output: 1000 }
    response_cache: { exact: {}, cached_price: 0.25 }
    workers: [ { name: l0, url: "http://large" } ]
`
}

// newGroupsRig serves groupsYAML. Both tiers have one engine.
func newGroupsRig(t *testing.T, yaml string, e http.Handler) *rig {
	t.Helper()
	return newRig(t, strings.Replace(yaml, "http://large", startServer(t, e), 1), e)
}

// askAs sends a chat of a tenant to a tier or model, and returns the status or the result of the cache with the group.
func (r *rig) askAs(tenant, model string) string {
	r.t.Helper()
	body := strings.Replace(cacheBodies["/v1/chat/completions"], "small", model, 1) + "}"
	got, result := r.cached("/v1/chat/completions", body, "Authorization", "Bearer key-"+tenant)
	if got.status != http.StatusOK {
		return fmt.Sprint(got.status)
	}
	return strings.TrimSpace(result + " " + r.lastDecision().Cache.Shared)
}

// askInTurn asks for each step, which is a tenant, a model and the wanted result.
func (r *rig) askInTurn(steps ...[3]string) {
	r.t.Helper()
	for i, s := range steps {
		if got := r.askAs(s[0], s[1]); got != s[2] {
			r.t.Errorf("%d: %s gets %q from %s, want %q", i, s[0], got, s[1], s[2])
		}
	}
}

// TestGroupsShareAnswers: tenants of one group get each other's answers, and no others do, also if a group has the name
// of a tenant. A tenant with isolate_cache keeps its answers apart, and one without permission gets none.
func TestGroupsShareAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := map[string]string{"d": ", isolate_cache: true"}
		yaml := groupsYAML(settings, "[ { name: a, tenants: [b, c, d, forbidden] } ]", "")
		forbidden := "    - { name: forbidden, sha256: " + digestHex("key-forbidden") + " }\n"
		yaml = strings.Replace(yaml, "tiers:\n", forbidden+"tiers:\n", 1)
		e := &numberingEngine{}
		r := newGroupsRig(t, yaml, e)
		r.askInTurn([3]string{"b", "small", "miss a"}, [3]string{"c", "small", "exact_hit a"},
			[3]string{"b", "small", "exact_hit a"}, [3]string{"c", "large", "miss a"}, [3]string{"b", "large", "exact_hit a"},
			[3]string{"a", "small", "miss"}, [3]string{"a", "small", "exact_hit"}, [3]string{"d", "small", "miss"},
			[3]string{"d", "small", "exact_hit"}, [3]string{"e", "small", "miss"}, [3]string{"forbidden", "small", "bypass"})
		if e.count() != 6 {
			t.Errorf("%d requests at the engines", e.count())
		}
		explained := r.explained("/v1/chat/completions", cacheBodies["/v1/chat/completions"]+"}", "Authorization",
			"Bearer key-c")
		if explained.Cache == nil || explained.Cache.Result != exactHit || explained.Cache.Shared != "a" {
			t.Errorf("explain states %+v", explained.Cache)
		}
	})
}

// TestSharedAnswersKeepPermissions: an answer of a model goes to a tenant of the group only if the tenant, and its key,
// may use the model. It costs the tenant that gets it.
func TestSharedAnswersKeepPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := map[string]string{"b": ", tiers: [small]", "c": `, models: ["fake-7b"]`, "d": ", limits: { day_money: 1 }"}
		r := newGroupsRig(t, groupsYAML(settings, "[ { name: x, tenants: [a, b, c, d] } ]",
			"models: { alias: large }"), &numberingEngine{})
		r.askInTurn([3]string{"a", "large", "miss x"}, [3]string{"a", "alias", "exact_hit x"},
			[3]string{"a", "fake-7b", "miss x"})
		for _, model := range []string{"large", "alias", "fake-70b"} {
			r.askInTurn([3]string{"b", model, "404"}, [3]string{"c", model, "404"}, [3]string{"d", model, "exact_hit x"})
		}
		r.askInTurn([3]string{"b", "small", "exact_hit x"}, [3]string{"c", "fake-7b", "exact_hit x"})
		day, _ := r.control.Stores.Limiter.Spent("d", "", time.Now())
		quarter := tenants.Price{Input: 1000, Output: 1000}.Cost(9, 0, 4).Share(0.25)
		if day.Money != 3*quarter {
			t.Errorf("tenant d has spent %v, want 3 × %v", day.Money, quarter)
		}
	})
}

// TestPurgesAndListsOfGroups: purging one tenant removes the answers of its group. A group whose list changes begins
// without answers.
func TestPurgesAndListsOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ab, abc = "[ { name: x, tenants: [a, b] } ]", "[ { name: x, tenants: [c, b, a] } ]"
		r := newGroupsRig(t, groupsYAML(nil, ab, ""), &numberingEngine{})
		list := func(groups string) {
			text := strings.Replace(r.text, ab, groups, 1)
			r.source = func() (*config.File, error) { return config.Parse("test.yaml", []byte(text), nil) }
			r.reload()
		}
		purge := func(tenant string, want int) {
			t.Helper()
			if removed, err := r.proxy.PurgeCache(t.Context(), tenant); err != nil || removed != want {
				t.Errorf("purging %s removed %d answers, want %d; %v", tenant, removed, want, err)
			}
		}
		r.askInTurn([3]string{"a", "small", "miss x"}, [3]string{"c", "small", "miss"})
		purge("c", 1)
		r.askInTurn([3]string{"b", "small", "exact_hit x"}, [3]string{"c", "small", "miss"})
		list(abc)
		r.askInTurn([3]string{"c", "small", "miss x"}, [3]string{"a", "small", "exact_hit x"})
		list("[ { name: x, tenants: [b, a] } ]")
		r.askInTurn([3]string{"a", "small", "miss x"}, [3]string{"b", "small", "exact_hit x"},
			[3]string{"c", "small", "exact_hit"})
		purge("b", 1)
		r.askInTurn([3]string{"a", "small", "miss x"}, [3]string{"c", "small", "exact_hit"})
		list(abc)
		r.askInTurn([3]string{"c", "small", "miss x"})
	})
}

// TestPurgedAnswersOfGroupsStayAway: the answers of a tenant that has left its group and was purged do not come back
// with the old list, nor do those of a removed group. In memory, the answers of a group go with its list, and with one
// of its tenants.
func TestPurgedAnswersOfGroupsStayAway(t *testing.T) {
	for _, redis := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const ab = "[ { name: x, tenants: [a, b] } ]"
			yaml := groupsYAML(nil, ab, "")
			if redis {
				url := memredis.Start(t, networkOf(t).Network).URL
				yaml = strings.Replace(groupsYAML(nil, ab, fmt.Sprintf("store: { sql: \"\", redis: %q }", url)),
					"response_cache: { shared", "response_cache: { store: redis, shared", 1)
			}
			r := newGroupsRig(t, yaml, &numberingEngine{})
			if redis {
				runStores(t, r)
			}
			apply := func(old, text string) {
				text = strings.Replace(r.text, old, text, 1)
				r.source = func() (*config.File, error) { return config.Parse("test.yaml", []byte(text), nil) }
				r.reload()
			}
			for _, other := range []string{"[ { name: x, tenants: [a, c] } ]", "[]"} {
				r.askInTurn([3]string{"b", "small", "miss x"}, [3]string{"a", "small", "exact_hit x"})
				apply(ab, other)
				if n := r.proxy.CacheMemory().Entries; n != 0 {
					t.Errorf("%d answers are in memory with %s", n, other)
				}
				if _, err := r.proxy.PurgeCache(t.Context(), "b"); err != nil {
					t.Error(err)
				}
				apply(ab, ab)
			}
			r.askInTurn([3]string{"a", "small", "miss x"})
			key := digestHex("key-b")
			apply("    - { name: b, sha256: "+key+", response_cache: true }\n", "")
			if n := r.proxy.CacheMemory().Entries; n != 0 {
				t.Errorf("%d answers of a group are in memory without its tenant", n)
			}
		})
	}
}

// TestPurgeStatesTheGroup: the answer to a purge and its entry of the audit log name the group.
func TestPurgeStatesTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(adminYAML(memoryDB), "    serves:", "    response_cache: { exact: {} }\n    serves:", 1)
		r := adminRigOf(newRig(t, text+"response_cache: { shared: [ { name: x, tenants: [filed, acme] } ] }\n", fakeEngine()))
		for _, c := range []struct{ tenant, want string }{{"filed", `{"removed":0,"shared":"x"}`}, {"anonymous", `{"removed":0}`}} {
			got := r.ops(http.StatusOK, http.MethodPost, "/admin/tenants/"+c.tenant+"/purge-answers", "")
			log := r.ops(http.StatusOK, http.MethodGet, "/admin/audit?target="+c.tenant, "").body
			if strings.TrimSpace(got.body) != c.want || !strings.Contains(log, `"after":`+c.want) {
				t.Errorf("%s: %s in %s", c.tenant, got.body, log)
			}
		}
	})
}

// TestGatewaysShareAnswersOfGroups: with Redis, tenants of a group get encrypted answers through every gateway with
// the same list, in any order, until one of the tenants is purged.
func TestGatewaysShareAnswersOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := memredis.Start(t, networkOf(t).Network).URL
		e := &numberingEngine{}
		gateway := func(groups string) *rig {
			yaml := strings.Replace(groupsYAML(nil, groups, fmt.Sprintf("store: { sql: \"\", redis: %q }", url)),
				"response_cache: { shared", "response_cache: { store: redis, encrypt: "+strings.Repeat("k", 32)+", shared", 1)
			r := newRig(t, strings.Replace(yaml, "http://large", startServer(t, e), 1), e)
			runStores(t, r)
			return r
		}
		one, two := gateway("[ { name: x, tenants: [a, b] } ]"), gateway("[ { name: x, tenants: [b, a] } ]")
		other := gateway("[ { name: x, tenants: [a, b, c] } ]")
		one.askInTurn([3]string{"a", "small", "miss x"})
		two.askInTurn([3]string{"b", "small", "exact_hit x"}, [3]string{"c", "small", "miss"})
		other.askInTurn([3]string{"b", "small", "miss x"}, [3]string{"c", "small", "exact_hit x"})
		if _, err := two.proxy.PurgeCache(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		one.askInTurn([3]string{"a", "small", "miss x"})
		other.askInTurn([3]string{"c", "small", "miss x"})
	})
}
