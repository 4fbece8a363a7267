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
	for c, want := range map[*tenants.Caller]bool{
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{Rights: tenants.Rights{Tiers: []string{}}}):         false,
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{Rights: tenants.Rights{Models: []string{"x"}}}):     false,
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{Rights: tenants.Rights{Models: []string{"small"}}}): true,
		tenants.NewCaller(tenants.Tenant{Name: "other"}, tenants.Key{}):                                                 false,
		tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{}):                                                  true,
	} {
		if got := owns(new(control.Snapshot), c, at); got != want {
			t.Errorf("a key of %+v may access the response: %v, want %v", c, got, want)
		}
	}
}
