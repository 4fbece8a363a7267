package server

import (
	"fmt"
	"slices"
	"time"

	"tierway/config"
	"tierway/queue"
	"tierway/routing"
)

// draftOf builds the snapshot that a reload of a checked configuration would put in
// force, and puts nothing in force. Live overrides hold in it as they would after the
// reload. Its pools are the live ones of their names, with a routing.Draft in place of
// policy and members: nothing of it reaches fleet, pools or metrics.
func (s *Server) draftOf(f *config.File) (*snapshot, error) {
	f = f.WithOverrides(weightsOf(s.overridesNow()))
	live := s.snapshot.Load()
	who, err := newPeople(f, live.people.contents, live.people.readAt)
	if err != nil {
		return nil, fmt.Errorf("building the draft's directory: %w", err)
	}
	snap, err := newSnapshot(f, who, live.generation, live)
	if err != nil {
		return nil, err
	}
	for _, p := range snap.pools {
		p.draft = &routing.Draft{Policy: p.policy, Members: membersOf(p.Pool, s.sharing(f)), Limit: p.Saturation}
		if was := live.byName[p.Name]; was != nil {
			p.livePool, p.members = was.livePool, was.members
			continue
		}
		p.livePool = &livePool{routing: routing.NewPool(p.policy, nil)}
		p.queue = queue.New(p.routing, p.Queue, func(*queue.Ticket) {})
	}
	return snap, nil
}

// up tells whether any worker of the pool could take a request. New workers of a draft
// are taken to be up.
func (p *pool) up(now time.Time) bool {
	if p.draft == nil {
		return p.routing.Up(now)
	}
	off := map[string]bool{} // those that there are now and that could take nothing
	for _, v := range p.routing.Snapshot(now) {
		off[v.ID] = !v.Up || v.Open > 0
	}
	return slices.ContainsFunc(p.draft.Members, func(m routing.Member) bool { return m.Weight > 0 && !off[m.ID] })
}
