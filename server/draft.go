package server

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"tierway/config"
	"tierway/queue"
	"tierway/routing"
)

// draft is a configuration that is not in force, over the workers as they are now.
// It is immutable, and nothing of it reaches fleet, pools or metrics; only a vocabulary
// that it counts by stays loaded, of the few that the gateway brings along.
type draft struct {
	snap  *snapshot
	pools map[string]*routing.Draft // by tier or pool, those that there are now
}

// draftOf builds what a reload of a checked configuration would put in force, and
// puts nothing in force. Live overrides hold in it as they would after the reload.
// A policy whose configuration is the one in force is the live one, with what it
// remembers; it must be asked as Preview does only, in a copy.
func (s *Server) draftOf(f *config.File) (*draft, error) {
	f = f.WithOverrides(weightsOf(s.overridesNow()))
	live := s.snapshot.Load()
	p, err := newPeople(f, live.people.contents, live.people.readAt)
	if err != nil {
		return nil, fmt.Errorf("building the draft's directory: %w", err)
	}
	d := &draft{pools: map[string]*routing.Draft{}, snap: &snapshot{file: f, generation: live.generation, people: p,
		proxies: f.TrustedProxies(), catalog: f.Catalog(), byName: map[string]*pool{}}}
	share := s.sharing(f)
	for _, c := range f.ResolvedPools() {
		if err := d.add(c, live.byName[c.Name], share); err != nil {
			return nil, err
		}
	}
	d.snap.draft = d
	d.snap.usual = d.snap.byName[f.Catalog().Default()]
	d.snap.vocabulary = d.snap.counts()
	return d, nil
}

// add builds one tier or pool of a draft, was being what is in force under its name.
func (d *draft) add(c config.Pool, was *pool, share int) error {
	p := &pool{Pool: c}
	for _, dialect := range c.Serves {
		p.served[dialect] = true
	}
	var err error
	if was != nil && reflect.DeepEqual(was.Policy, c.Policy) {
		p.policy = was.policy
	} else if p.policy, err = routing.New(c.Policy); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	members := draftMembers(c, share)
	if was != nil {
		p.routing, p.queue, p.members = was.routing, was.queue, was.members
		d.pools[c.Name] = &routing.Draft{Policy: p.policy, Members: members, Limit: c.Saturation}
	} else {
		p.routing = routing.NewPool(p.policy, members)
		p.routing.Limit(c.Saturation)
		for _, m := range members {
			p.routing.Observe(m.ID, m.Ref, routing.Status{Up: true})
		}
		p.queue = queue.New(p.routing, c.Queue, func(*queue.Ticket) {})
	}
	d.snap.add(p)
	return nil
}

// draftMembers are a draft's workers as its policy knows them.
func draftMembers(c config.Pool, share int) []routing.Member {
	members := make([]routing.Member, len(c.Workers))
	for i, w := range c.Workers {
		members[i] = routing.Member{ID: w.Name, Weight: *w.Weight, Group: w.Priority, MaxInflight: part(w.MaxInflight, share),
			MaxTokensInflight: part(w.MaxTokensInflight, int64(share)), Models: modelHashes(w.Models)}
	}
	return members
}

// up tells of a tier or pool under the draft what its routing tells of one in force:
// whether any worker could take a request. New workers are taken to be up.
func (d *draft) up(p *pool, now time.Time) bool {
	stood := d.pools[p.Name]
	if stood == nil {
		return p.routing.Up(now)
	}
	off := map[string]bool{} // those that there are now and that could take nothing
	for _, v := range p.routing.Snapshot(now) {
		off[v.ID] = !v.Up || v.Open > 0
	}
	return slices.ContainsFunc(stood.Members, func(m routing.Member) bool { return m.Weight > 0 && !off[m.ID] })
}

// standIn is what stands in for policy and workers of a pool; nil without a draft, and
// for a pool that only the draft has.
func (snap *snapshot) standIn(p *pool) *routing.Draft {
	if snap.draft == nil {
		return nil
	}
	return snap.draft.pools[p.Name]
}
