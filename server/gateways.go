package server

import (
	"tierway/config"
	"tierway/openai"
	"tierway/routing"
)

// sharing returns how many gateways share the workers: as many as the
// configuration says, or as live where Redis counts more.
func (s *Server) sharing(f *config.File) int {
	if s.redis == nil {
		return f.Gateways
	}
	return max(f.Gateways, s.redis.Gateways())
}

// part is this gateway's part of a bound that so many share: an equal one, rounded
// up, because a gateway without any place would serve nobody.
func part[N int | int64](bound, gateways N) N { return (bound + gateways - 1) / max(1, gateways) }

// shareAgain divides the workers' bounds anew when another number of gateways
// shares them than did.
func (s *Server) shareAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snapshot.Load()
	now := s.sharing(snap.file)
	if now == s.shared {
		return
	}
	s.log.Info("another number of gateways shares the workers' bounds", "gateways", now, "before", s.shared)
	s.shared = now
	for _, p := range snap.pools {
		members := s.membersLocked(p.Pool)
		p.routing.Configure(p.policy, members)
	}
}

// membersLocked returns the workers of a tier or pool as its policy knows them, with this gateway's part of their bounds.
func (s *Server) membersLocked(c config.Pool) (members []routing.Member) {
	var reasons []string
	for _, r := range routing.Reasons(c.Policy.Name) {
		reasons = append(reasons, string(r))
	}
	for _, spec := range c.Workers {
		w := s.fleet.Get(spec.Name)
		m := s.members[w]
		if m == nil {
			m = &member{worker: w, name: spec.Name, stats: &workerStats{}, series: s.metrics.Worker(c.Name, spec.Name, c.Policy.Name, reasons)}
			s.members[w] = m
		}
		m.series.Under(c.Policy.Name, reasons)
		m.timed.Store(c.Engine == openai.EngineLlamaCpp || m.timed.Load())
		r := routing.Member{ID: spec.Name, Weight: *spec.Weight, Group: spec.Priority, MaxInflight: part(spec.MaxInflight, s.shared),
			MaxTokensInflight: part(spec.MaxTokensInflight, int64(s.shared)), Models: modelHashes(spec.Models), Ref: m}
		if m.gate != nil {
			r.Gate = m.gate
		}
		members = append(members, r)
	}
	return members
}
