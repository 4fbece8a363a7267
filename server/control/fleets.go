package control

import (
	"slices"
	"strings"
	"time"

	"tierway/config"
	"tierway/workers"
)

// sketchSize is the number of servers by which gateways recognize their own fleet. Two configurations with half of
// their workers in common have none of 16 in common once in 65,000 cases.
const sketchSize = 16

// serversOf returns the results of Pool.ServerOf for the workers of a pool.
func serversOf(c *config.Pool) map[string]uint64 {
	servers := make(map[string]uint64, len(c.Workers))
	for i := range c.Workers {
		w := &c.Workers[i]
		url := strings.TrimRight(strings.ToLower(w.URL), "/")
		servers[w.Name] = NameHash(c.Name + "\x00" + w.Name + "\x00" + url)
	}
	return servers
}

// setServers sets the servers of the pool's workers: those of was, the previous pool of that name, if they are equal.
func (p *Pool) setServers(was *Pool) {
	same := func(a, b workers.Spec) bool { return a.Name == b.Name && a.URL == b.URL }
	if was != nil && slices.EqualFunc(was.Workers, p.Workers, same) {
		p.servers, p.sketch = was.servers, was.sketch
		return
	}
	p.servers = serversOf(&p.Pool)
	p.sketch = lowest(p.servers)
}

// ServerOf returns a hash of the pool's name, the worker's name and its URL, by which gateways know that they mean the
// same server; 0 for an unknown worker. It is equal in all gateways with the same configuration.
func (p *Pool) ServerOf(worker string) uint64 { return p.servers[worker] }

// HasServer reports whether a result of ServerOf belongs to that worker, now or before a reload of this process. An
// unknown server (0) is accepted.
func (p *Pool) HasServer(worker string, server uint64) bool {
	return server == 0 || p.ServerOf(worker) == server || p.former[server]
}

// maxFormer bounds the servers of earlier configurations that a pool keeps.
const maxFormer = 10_000

// withFormer returns the earlier servers for the pool's next configuration.
func (p *Pool) withFormer(next *Pool) map[uint64]bool {
	former := map[uint64]bool{}
	for worker, server := range p.servers {
		if next.ServerOf(worker) != server {
			former[server] = true
		}
	}
	for server := range p.former {
		if len(former) < maxFormer {
			former[server] = true
		}
	}
	return former
}

// sketchOf returns the lowest hashes of the servers of all pools, in order: equal configurations have equal hashes, and
// similar configurations have some in common.
func sketchOf(all []*Pool) []uint64 {
	var sketch []uint64
	for _, p := range all {
		sketch = append(sketch, p.sketch...)
	}
	slices.Sort(sketch)
	return sketch[:min(len(sketch), sketchSize)]
}

// lowest returns the lowest hashes of one pool.
func lowest(servers map[string]uint64) []uint64 {
	all := make([]uint64, 0, len(servers))
	for _, server := range servers {
		all = append(all, server)
	}
	slices.Sort(all)
	return slices.Clone(all[:min(len(all), sketchSize)])
}

// findForeign finds the gateways that have no worker in common with this one, and reports them once. Gateways without
// workers, or of versions that publish no servers, count as the own fleet's.
func (s *sharing) findForeign(all []*Pool, now time.Time) {
	own := sketchOf(all)
	s.foreign = map[string]bool{}
	for id, g := range s.states {
		common := func(server uint64) bool { return slices.Contains(own, server) }
		if len(own) > 0 && len(g.Servers) > 0 && !slices.ContainsFunc(g.Servers, common) {
			s.foreign[id] = true
		}
	}
	switch {
	case len(s.foreign) == 0:
		s.since, s.reported = time.Time{}, false
	case s.since.IsZero():
		s.since = now
	case !s.reported && now.Sub(s.since) >= reportFleetAfter:
		s.reported = true
		s.pools.log.Warn("gateways of another fleet use the same Redis database; their loads, routing history and breakers "+
			"are ignored, and tenants of equal names share their limits: give each fleet a database of its own in store.redis",
			"gateways", len(s.foreign))
	}
}

// isSameServer reports whether another gateway, with that result of ServerOf, means the same server by a worker's name.
// Gateways of earlier versions publish none.
func (s *sharing) isSameServer(pool, worker string, server uint64) bool {
	p := s.pools.current.Load().ByName[pool]
	return server == 0 || p == nil || p.ServerOf(worker) == server
}

// foreignGateways returns the number of gateways of other fleets at the last exchange.
func (ps *Pools) foreignGateways() int {
	if ps.sharing == nil {
		return 0
	}
	return ps.sharing.view.Load().foreign
}
