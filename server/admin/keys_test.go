package admin

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tierway/store"
	"tierway/tenants"
)

// createKeys creates keys of a tenant in the database and puts them in force.
func (r *planeRig) createKeys(tenant string, names ...string) {
	r.t.Helper()
	for _, name := range names {
		_, k, err := tenants.Mint(rand.Reader, tenant)
		k.Name = name
		if err == nil {
			_, err = r.plane.control.Stores.SQL.CreateKey(r.t.Context(), store.Actor{}, k)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.plane.control.Refresh(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// keysPage is a page of keys.
type keysPage struct {
	Items []struct{ ID, Name string }
	Next  *string `json:"next_cursor"`
	Total int
}

// read decodes the answer to a GET request of an admin.
func read[T any](r *planeRig, path string) (value T) {
	r.t.Helper()
	answer := r.ask("ops", http.MethodGet, path, "")
	if err := json.Unmarshal(answer.Body.Bytes(), &value); err != nil || answer.Code != http.StatusOK {
		r.t.Fatalf("%s is %d %s: %v", path, answer.Code, answer.Body, err)
	}
	return value
}

// TestKeysOfATenantComeInPages: the database has some, and config.yaml another one.
func TestKeysOfATenantComeInPages(t *testing.T) {
	for _, away := range []bool{false, true} {
		r := newPlaneRig(t)
		db := r.plane.control.Stores.SQL
		if _, err := db.CreateTenant(t.Context(), store.Actor{}, tenants.Tenant{Name: "filed"}); err != nil {
			t.Fatal(err)
		}
		r.createKeys("filed", "ci-1", "ci-2", "web", "ci-3")
		if away {
			db.Close()
		}
		var ids []string
		for path := "/admin/tenants/filed/keys?limit=2"; path != ""; {
			p := read[keysPage](r, path)
			if p.Total != 5 || len(p.Items) > 2 {
				t.Errorf("away %v: a page is %+v", away, p)
			}
			for _, k := range p.Items {
				ids = append(ids, k.ID)
			}
			if path = ""; p.Next != nil {
				path = "/admin/tenants/filed/keys?limit=2&cursor=" + *p.Next
			}
		}
		if len(slices.Compact(slices.Clone(ids))) != 5 || !slices.IsSorted(ids) {
			t.Errorf("away %v: the keys are %v", away, ids)
		}
		p := read[keysPage](r, "/admin/tenants/filed/keys?limit=2&q=ci-")
		if p.Total != 3 || len(p.Items) != 2 || p.Next == nil {
			t.Errorf("away %v: the keys with ci- are %+v", away, p)
		}
	}
}

// TestTenantHasTheFirstKeysAndCountsAll.
func TestTenantHasTheFirstKeysAndCountsAll(t *testing.T) {
	r := newPlaneRig(t)
	db := r.plane.control.Stores.SQL
	if _, err := db.CreateTenant(t.Context(), store.Actor{}, tenants.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	r.createKeys("acme", slices.Repeat([]string{"k"}, keysListed+3)...)
	type tenant struct {
		Name string
		Keys int
		List []struct{ ID string } `json:"key_list"`
	}
	one := read[tenant](r, "/admin/tenants/acme")
	list := read[struct{ Items []tenant }](r, "/admin/tenants?q=acme").Items
	for _, v := range append(list, one) {
		if v.Name != "acme" || v.Keys != keysListed+3 || len(v.List) != keysListed {
			t.Errorf("%s has %d keys, %d are listed", v.Name, v.Keys, len(v.List))
		}
	}
	first := read[keysPage](r, "/admin/tenants/acme/keys?limit=1")
	if len(list) != 1 || first.Total != keysListed+3 || first.Items[0].ID != one.List[0].ID {
		t.Errorf("%d tenants; the first key is %+v", len(list), first)
	}
}

// TestFailingReadsAreLoggedOnce, until one succeeds.
func TestFailingReadsAreLoggedOnce(t *testing.T) {
	r := newPlaneRig(t)
	stores := r.plane.control.Stores
	closed, err := store.OpenSQL(store.SQLConfig{URL: "sqlite://:memory:"})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	lines := func(db *store.SQL) int {
		was := stores.SQL
		defer func() { stores.SQL = was }()
		stores.SQL = db
		for range 3 {
			read[keysPage](r, "/admin/tenants/filed/keys")
		}
		return strings.Count(r.log.String(), "reading keys of the database failed")
	}
	if got := fmt.Sprint(lines(closed), lines(closed), lines(stores.SQL), lines(closed)); got != "1 1 1 2" {
		t.Errorf("the log has %s lines: %s", got, r.log.String())
	}
}
