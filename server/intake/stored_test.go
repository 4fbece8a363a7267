package intake

import (
	"testing"

	"tierway/server/control"
	"tierway/store"
	"tierway/tenants"
)

// TestKeyCannotAccessStoredResponsesBeyondItsPermissions also covers responses of the key's own tenant.
func TestKeyCannotAccessStoredResponsesBeyondItsPermissions(t *testing.T) {
	at := store.StoredResponse{ID: "resp_1", Tenant: "acme", Pool: "small", Worker: "w0", Model: "small"}
	for _, c := range []struct {
		tenant string
		rights tenants.Rights
		want   bool
	}{
		{"acme", tenants.Rights{Tiers: []string{}}, false},
		{"acme", tenants.Rights{Models: []string{"x"}}, false},
		{"acme", tenants.Rights{Models: []string{"small"}}, true},
		{"other", tenants.Rights{}, false},
		{"acme", tenants.Rights{}, true},
	} {
		caller := tenants.NewCaller(tenants.Tenant{Name: c.tenant}, tenants.Key{Rights: c.rights})
		if got := owns(new(control.Snapshot), caller, at); got != c.want {
			t.Errorf("a key of %+v may access the response: %v", c, got)
		}
	}
}
