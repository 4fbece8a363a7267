package intake

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tierway/store"
)

// TestTenantWithinItsShareLosesNoResponse: if the directory is full, a tenant with more than an equal
// share loses its oldest response, even if another tenant adds one.
func TestTenantWithinItsShareLosesNoResponse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		a := newStoredResponses(limit)
		kept := map[string][]string{} // by tenant, the newest last
		for n := range rapid.IntRange(0, 60).Draw(t, "responses") {
			tenant := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")
			id := fmt.Sprint("r", n)
			a.Put(store.StoredResponse{ID: id, Tenant: tenant})
			kept[tenant] = append(kept[tenant], id)
			for name, ids := range kept {
				if _, ok := a.Get(ids[0]); ok {
					continue
				}
				if len(ids)*len(kept) <= limit {
					t.Fatalf("%s had %d of %d responses beside %d tenants and lost one to %s", name, len(ids), limit, len(kept),
						tenant)
				}
				if kept[name] = ids[1:]; len(ids) == 1 {
					delete(kept, name)
				}
			}
			total := 0
			for name, ids := range kept {
				total += len(ids)
				for _, id := range ids {
					if got, ok := a.Get(id); !ok || got.Tenant != name {
						t.Fatalf("%s of %s is %+v, %v", id, name, got, ok)
					}
				}
			}
			if total != a.Count() || total > limit {
				t.Fatalf("Count is %d and %d ids are found; the limit is %d", a.Count(), total, limit)
			}
		}
	})
}

// TestRepeatedIDOfTwoTenantsIsContested: an engine that repeats its ids after a restart overwrites one
// tenant's response with another's.
func TestRepeatedIDOfTwoTenantsIsContested(t *testing.T) {
	a := newStoredResponses(2)
	for _, tenant := range []string{"acme", "other", "other", "acme"} {
		a.Put(store.StoredResponse{ID: "r1", Tenant: tenant, Worker: "w0"})
	}
	if got, known := a.Get("r1"); !known || !got.Foreign {
		t.Errorf("the id of two tenants: %+v, %v", got, known)
	}
	if a.Put(store.StoredResponse{ID: "r2", Tenant: "acme"}); a.Count() != 2 || len(a.byTenant) != 1 {
		t.Errorf("%d responses of %d tenants, want 2 of 1", a.Count(), len(a.byTenant))
	}
}

func TestStoredResponsesAreReplacedEvictedAndForgotten(t *testing.T) {
	a := newStoredResponses(2)
	a.Put(store.StoredResponse{ID: "r1", Tenant: "acme", Worker: "w0"})
	a.Put(store.StoredResponse{ID: "r1", Tenant: "acme", Worker: "w1"})
	if got, _ := a.Get("r1"); got.Worker != "w1" || a.Count() != 1 {
		t.Errorf("a repeated id of its tenant has the worker %s, and Count is %d", got.Worker, a.Count())
	}
	a.Put(store.StoredResponse{ID: "", Tenant: "acme", Worker: "w0"})
	a.Put(store.StoredResponse{ID: "r2", Tenant: "acme", Worker: "w0"})
	a.Put(store.StoredResponse{ID: "r3", Tenant: "acme", Worker: "w0"})
	if _, ok := a.Get("r1"); ok {
		t.Error("the oldest response is kept beyond the limit")
	}
	a.Forget("r2")
	if _, ok := a.Get("r2"); ok || a.Count() != 1 {
		t.Errorf("a forgotten response is found: %v, Count is %d", ok, a.Count())
	}
	a.Forget("r3")
	if len(a.byTenant) != 0 || a.Count() != 0 {
		t.Errorf("%d tenants are left without a response", len(a.byTenant))
	}
}
