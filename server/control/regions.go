package control

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"tierway/config"
)

// regions orders the regions of a pool's workers by distance. It is safe for concurrent use.
type regions struct {
	own        string              // region of the gateway; "" if it has none
	configured map[string][]string // regions.order
	orders     atomic.Pointer[map[string][]uint64]

	byLatency []string // regions of the workers, the nearest first; used by one goroutine
}

// newRegions returns the regions of a pool, in the order of the file; nil if no worker has a region.
func newRegions(f *config.File, c config.Pool) *regions {
	rs := &regions{own: f.Region, configured: f.Regions.Order}
	for _, w := range c.Workers {
		if w.Region != "" && !slices.Contains(rs.byLatency, w.Region) {
			rs.byLatency = append(rs.byLatency, w.Region)
		}
	}
	if rs.byLatency == nil {
		return nil
	}
	rs.publish()
	return rs
}

// order returns the regions of workers for a request of that region, the nearest first, as hashes of their
// names. The result is immutable; it is nil if the distance does not matter. For an unknown region, that of
// the gateway applies.
func (rs *regions) order(region string) []uint64 {
	if rs == nil {
		return nil
	}
	return (*rs.orders.Load())[rs.known(region)]
}

// known returns the region if it is a known one, else that of the gateway.
func (rs *regions) known(region string) string {
	if _, ok := (*rs.orders.Load())[region]; ok {
		return region
	}
	return rs.own
}

// publish computes the orders of all regions that requests can have.
func (rs *regions) publish() {
	orders := map[string][]uint64{}
	from := slices.Concat(rs.byLatency, slices.Collect(maps.Keys(rs.configured)), []string{rs.own})
	for _, region := range from {
		if region == "" {
			continue
		}
		var order []uint64
		for _, to := range slices.Concat([]string{region}, rs.configured[region], rs.byLatency) {
			if hash := NameHash(to); slices.Contains(rs.byLatency, to) && !slices.Contains(order, hash) {
				order = append(order, hash)
			}
		}
		orders[region] = order
	}
	rs.orders.Store(&orders)
}

// A region changes places with a nearer one only if its latency is lower by this share and this time. Jitter
// between two regions of similar latency then moves no prompts from their caches.
const (
	nearerShare = 0.8
	nearerBy    = 2 * time.Millisecond
)

// measure orders the regions by their latencies. latency returns 0 for an unknown one, which stays in its
// place.
func (rs *regions) measure(latency func(region string) time.Duration) {
	changed := false
	for i := 1; i < len(rs.byLatency); i++ {
		for j := i; j > 0; j-- {
			far, near := latency(rs.byLatency[j]), latency(rs.byLatency[j-1])
			if far == 0 || near == 0 || float64(far) > nearerShare*float64(near) || near-far < nearerBy {
				break
			}
			rs.byLatency[j], rs.byLatency[j-1] = rs.byLatency[j-1], rs.byLatency[j]
			changed = true
		}
	}
	if changed {
		rs.publish()
	}
}

// measureRegions orders the regions of the pool by the round-trip times of the health checks: those of the
// nearest worker of each.
func (p *Pool) measureRegions() {
	if p.regions == nil {
		return
	}
	nearest := map[string]time.Duration{}
	for _, w := range p.Workers {
		m := p.Members[w.Name]
		if m == nil || m.Worker == nil || w.Region == "" {
			continue
		}
		if rtt := m.Worker.Status().RoundTrip; rtt > 0 && (nearest[w.Region] == 0 || rtt < nearest[w.Region]) {
			nearest[w.Region] = rtt
		}
	}
	p.regions.measure(func(region string) time.Duration { return nearest[region] })
}

// Regions returns the regions of the pool's workers for a request of that region, the nearest first, as
// routing.Request has them; nil if the region does not matter.
func (p *Pool) Regions(region string) []uint64 { return p.regions.order(region) }

// KnownRegion returns the region that Regions uses in place of that one; "" if it does not matter.
func (p *Pool) KnownRegion(region string) string {
	if p.regions == nil {
		return ""
	}
	return p.regions.known(region)
}

// Region returns the region of a request. Only trusted proxies may name it.
func (snap *Snapshot) Region(r *http.Request) string {
	return snap.File.RegionOf(r.Header, func() bool {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return err == nil && snap.trusts(host)
	})
}

// ExplainedRegion returns the region of a request that is explained. Its header counts as if a trusted proxy
// had sent it.
func (snap *Snapshot) ExplainedRegion(h http.Header) string {
	return snap.File.RegionOf(h, func() bool { return true })
}
