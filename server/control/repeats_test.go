package control

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"tierway/config"
	"tierway/pairing"
	"tierway/tenants"
)

// TestSampleIsCheckedByLookUps: the cost does not grow with the number of tenants.
func TestSampleIsCheckedByLookUps(t *testing.T) {
	allocations := func(n int) float64 {
		ts, ks := make([]tenants.Tenant, n), make([]tenants.Key, n)
		for i := range n {
			name := fmt.Sprint("t", i)
			ts[i], ks[i] = tenants.Tenant{Name: name}, tenants.Key{ID: "k" + name, Tenant: name, Digest: tenants.Digest(name)}
		}
		small, large := config.Pool{}, config.Pool{}
		small.Name, small.Tier, large.Name, large.Tier = "small", true, "large", true
		snap := &Snapshot{Identity: &Identity{Directory: tenants.NewDirectory(ts, ks)},
			Pools: []*Pool{{Pool: small}, {Pool: large}}}
		snap.File = &config.File{Learning: config.Learning{Replay: config.Replay{Share: 0.1}}}
		s := &pairing.Sample{Tenant: "t0", Key: "kt0", Tiers: [2]string{"small", "large"}}
		return testing.AllocsPerRun(10, func() {
			if !snap.MayKeep(s, time.Unix(1, 0)) {
				t.Error("the sample is dropped")
			}
		})
	}
	if one, many := allocations(1), allocations(10_000); one != many {
		t.Errorf("%v allocations with one tenant, %v with 10,000", one, many)
	}
}

// TestRepeaterIsTheCallerOfItsKey: another key of its tenant is none, and none is without a key that is known.
func TestRepeaterIsTheCallerOfItsKey(t *testing.T) {
	digest := func(key string) string {
		d := tenants.Digest(key)
		return hex.EncodeToString(d[:])
	}
	for key, want := range map[string]bool{"": false, "own": true, "unknown": false} {
		f := &config.File{Auth: config.Auth{Keys: []tenants.KeyConfig{{Name: "operator", SHA256: digest("own")},
			{Name: "operator", SHA256: digest("other")}}}, Learning: config.Learning{Replay: config.Replay{APIKey: key}}}
		identity, err := newIdentity(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		snap := &Snapshot{Identity: identity}
		for caller, is := range map[string]bool{"own": want, "other": false} {
			c, err := identity.Directory.Authenticate(caller, time.Unix(1, 0))
			if err != nil || snap.IsRepeater(c) != is {
				t.Errorf("%q is the repeater of %q: %t, %v", caller, key, !is, err)
			}
		}
		if snap.IsRepeater(tenants.Anonymous()) {
			t.Errorf("a request without a key is the repeater of %q", key)
		}
	}
}
