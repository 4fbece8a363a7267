package proxy

import (
	"fmt"
	"testing"

	"tierway/tenants"

	"pgregory.net/rapid"
)

// TestNoTenantMakesAnothersResponsesUnknown: of a full directory the tenant with more
// than an equal share loses its oldest, whoever makes the next response.
func TestNoTenantMakesAnothersResponsesUnknown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		a := newStoredAnswers(limit)
		kept := map[string][]string{} // by tenant, the newest last
		for n := range rapid.IntRange(0, 60).Draw(t, "responses") {
			tenant := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")
			id := fmt.Sprint("r", n)
			a.put(storedAnswer{id: id, tenant: tenant})
			kept[tenant] = append(kept[tenant], id)
			for name, ids := range kept {
				if _, ok := a.get(ids[0]); ok {
					continue
				}
				if len(ids)*len(kept) <= limit {
					t.Fatalf("%s had %d of %d answers beside %d tenants and lost one to %s", name, len(ids), limit, len(kept), tenant)
				}
				if kept[name] = ids[1:]; len(ids) == 1 {
					delete(kept, name)
				}
			}
			total := 0
			for name, ids := range kept {
				total += len(ids)
				for _, id := range ids {
					if got, ok := a.get(id); !ok || got.tenant != name {
						t.Fatalf("%s of %s is %+v, %v", id, name, got, ok)
					}
				}
			}
			if total != a.count() || total > limit {
				t.Fatalf("%d answers are known, %d of them by their ids; at most %d may be", a.count(), total, limit)
			}
		}
	})
}

// TestAKeyOwnsNoStoredAnswerBeyondItsRights: of its own tenant either.
func TestAKeyOwnsNoStoredAnswerBeyondItsRights(t *testing.T) {
	r := newProxyRig(t, openTier, fakeAnswers())
	at := storedAnswer{id: "resp_1", tenant: "acme", pool: "small", worker: "w0", model: "small"}
	for c, want := range map[*tenants.Caller]bool{
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{Rights: tenants.Rights{Tiers: []string{}}}):     false,
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{Rights: tenants.Rights{Models: []string{"x"}}}): false,
		tenants.NewCaller(tenants.Tenant{Name: "other"}, tenants.Key{}):                                             false,
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{}):                                              true,
	} {
		if got := owns(r.control.Snapshot(), c, at); got != want {
			t.Errorf("a key of %+v owns it: %v", c, got)
		}
	}
}
