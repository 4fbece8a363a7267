package control

import (
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
		snap := &Snapshot{Identity: &Identity{Directory: tenants.NewDirectory(ts, ks), own: ts, ownKeys: ks},
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
