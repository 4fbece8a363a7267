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
func (snap *Snapshot) IsRepeater(c *tenants.Caller) bool {
	own := snap.Identity.repeater
	return own != nil && own.Tenant == c.Tenant && own.Key == c.Key
}

// MayRepeat reports whether a caller's requests may be sent again to both tiers. Its prompts must not be isolated.
func (snap *Snapshot) MayRepeat(c *tenants.Caller, first, last *Pool) bool {
	return !c.IsolateCache && snap.MayUse(c, first.Name) && snap.MayUse(c, last.Name)
}

// MayKeep reports whether a sample may be kept and repeated at now: the configuration repeats requests on the tiers of
// the sample, the client's key is valid, and its requests may be sent to both tiers.
func (snap *Snapshot) MayKeep(s *pairing.Sample, now time.Time) bool {
	first, last := snap.OuterTiers()
	if snap.File.Learning.Replay.Share == 0 || first == nil || s.Tiers != [2]string{first.Name, last.Name} {
		return false
	}
	c := snap.sampledCaller(s, now)
	return c != nil && snap.MayRepeat(c, first, last)
}

// sampledCaller returns the caller of a sample, or nil if its key is no longer valid.
func (snap *Snapshot) sampledCaller(s *pairing.Sample, now time.Time) *tenants.Caller {
	if anonymous := tenants.Anonymous(); s.Tenant == anonymous.Tenant {
		if snap.File.Auth.Required {
			return nil
		}
		return anonymous
	}
	c, err := snap.Identity.Directory.Caller(s.Tenant, s.Key, now)
	if err != nil {
		return nil
	}
	return c
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
