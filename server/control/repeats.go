package control

import (
	"time"

	"tierway/pairing"
	"tierway/tenants"
)

// OuterTiers returns the first and the last tier, which answer repeated requests; nil without tiers.
func (snap *Snapshot) OuterTiers() (first, last *Pool) {
	for _, p := range snap.Pools {
		if !p.Tier {
			break
		}
		if last = p; first == nil {
			first = p
		}
	}
	return first, last
}

// IsRepeater reports whether a caller has the key with which the gateway repeats requests.
func (snap *Snapshot) IsRepeater(c *tenants.Caller, now time.Time) bool {
	key := snap.File.Learning.Replay.APIKey
	if key == "" {
		return false
	}
	own, err := snap.Identity.Directory.Authenticate(key, now)
	return err == nil && own.Tenant == c.Tenant && own.Key == c.Key
}

// MayKeep returns a function that reports whether a sample may be kept and repeated under the configuration: the
// configuration repeats requests, the sample's tenant and key exist, and the tenant is neither disabled nor isolated by
// isolate_cache.
func (snap *Snapshot) MayKeep() func(*pairing.Sample) bool {
	if snap.File.Learning.Replay.Share == 0 {
		return func(*pairing.Sample) bool { return false }
	}
	all, _ := snap.Identity.Tenants()
	keeps := map[string]bool{tenants.Anonymous().Tenant: !snap.File.Auth.Required}
	for i := range all {
		keeps[all[i].Name] = !all[i].Disabled && !all[i].IsolateCache
	}
	return func(s *pairing.Sample) bool {
		return keeps[s.Tenant] && (s.Key == "" || snap.Identity.Directory.Knows(s.Tenant, s.Key))
	}
}

// Load returns the load of the pool at now.
func (p *Pool) Load(now time.Time) pairing.Load {
	l := pairing.Load{Queued: p.WaitQueue.Waiting()}
	for _, w := range p.Routing.Snapshot(now) {
		one := pairing.WorkerLoad{Usable: w.InRotation() && w.Backoff == 0 && w.HungAt.IsZero(), Saturated: w.Saturated,
			Inflight: w.Inflight, Slots: w.ConcurrencyLimit}
		if !w.Stale {
			one.Waiting = w.Waiting
		}
		l.Workers = append(l.Workers, one)
	}
	return l
}
