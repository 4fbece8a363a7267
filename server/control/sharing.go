package control

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"tierway/store"
	"tierway/telemetry"
)

const (
	// shareEvery is the interval of exchanges with the other gateways, and shareIdle that without load. With
	// kv_aware on the recorded trace, three gateways take 1 % longer to the first token than one at 25 ms, and 3 % at
	// 100 ms (docs/simulate.md).
	shareEvery = 25 * time.Millisecond
	shareIdle  = time.Second
	// shareCheck is the interval at which a gateway without load looks for some.
	shareCheck = 100 * time.Millisecond
	// journalRate and journalBurst bound the bytes that one gateway adds to the log: at 60 tokens a block, this is
	// the history of 800,000 new tokens per second. Redis keeps five minutes of the log.
	journalRate  = 128 << 10 // per second
	journalBurst = 256 << 10
	// keepOpening is how long an opening is remembered after it was last published: the load of a gateway may be missing
	// for a few exchanges.
	keepOpening = time.Minute
	// reportFleetAfter is how long gateways of another fleet are present before the log says so: during a reload that
	// replaces all workers, the gateways of one fleet have none in common.
	reportFleetAfter = time.Minute
)

// sharing publishes what this gateway has booked on the workers and recorded of their caches, and applies what the
// other gateways of one Redis publish. It works beside the requests: none waits for it. One goroutine uses it, except
// for view.
type sharing struct {
	pools    *Pools
	exchange *store.Exchange
	unsent   []store.PoolText        // journals that were taken and are not in the log yet
	budget   float64                 // bytes of journals that may be sent
	turn     int                     // of the pool that sends its journal next
	stepped  time.Time               // the last call of exchangeIfDue
	sent     time.Time               // the last exchange that succeeded
	state    string                  // as published then
	others   map[string]string       // texts of the other gateways then, by gateway
	states   map[string]gatewayState // the same, as far as it could be read
	active   bool                    // a state of another gateway had changed then
	openings map[opening]time.Time   // of the breakers of other gateways, and when they were last published
	caughtUp bool
	foreign  map[string]bool // gateways of other fleets, by ID
	since    time.Time       // since when there are some; zero if there are none
	reported bool            // the log has the warning
	totals   SharingTotals
	view     atomic.Pointer[SharingView]
}

// SharingView is what this gateway shares with others.
type SharingView struct {
	ID       string        `json:"id" doc:"Random identifier of this gateway's process."`
	Gateways []GatewayView `json:"gateways" nullable:"false" doc:"The other gateways of the same Redis, at the last exchange."`
	CaughtUp bool          `json:"caught_up" doc:"false: this gateway has not read what the others published before its start. Their journals of the last five minutes are kept."`
	foreign  int           // of Gateways; it stays while Redis is unavailable
	SharedAt *time.Time    `json:"shared_at,omitempty" doc:"Time of the last exchange. Without load, gateways exchange once per second."`
	SharingTotals
}

// GatewayView is another gateway.
type GatewayView struct {
	ID    string   `json:"id" doc:"Random identifier of the process."`
	Open  []string `json:"open" nullable:"false" doc:"Workers with a breaker that this gateway opened, as pool/worker."`
	Pools []string `json:"pools" nullable:"false" doc:"Pools of this gateway."`
	// Foreign gateways have the same Redis and other workers.
	Foreign bool `json:"foreign,omitempty" doc:"true: the gateway belongs to another fleet: none of its workers has the pool, name and URL of a worker of this gateway. Its loads, routing history and breakers are ignored. Give each fleet its own Redis database, because tenants of equal names share their limits."`
}

// SharingTotals are counted since the start.
type SharingTotals struct {
	Exchanges  int64 `json:"exchanges"`
	Failed     int64 `json:"failed_exchanges"`
	Sent       int64 `json:"sent_bytes" doc:"Bytes of loads and journals."`
	Received   int64 `json:"received_bytes"`
	Entries    int64 `json:"received_journals"`
	Unreadable int64 `json:"unreadable" doc:"Loads and journals of gateways of another version, which were ignored."`
}

// gatewayState is what a gateway publishes at each exchange. Gateways ignore fields that they do not know.
type gatewayState struct {
	Pools   map[string]sharedPool `json:"pools"`
	Servers []uint64              `json:"servers,omitempty"` // of Pools.sketch
}

// opening is one opening of a worker's breaker by another gateway.
type opening struct {
	gateway, pool, worker string
	at                    int64 // by that gateway's clock
}

// sharedPool is the part of it about one pool.
type sharedPool struct {
	Load    []byte           `json:"load"`           // of routing.Pool.AppendLoad
	Workers uint64           `json:"workers"`        // hash of their names; not 0
	Open    map[string]int64 `json:"open,omitempty"` // when this gateway opened a worker's breaker, in ms since 1970
	// results of Pool.ServerOf for the workers in Open
	OpenAt map[string]uint64 `json:"open_at,omitempty"`
}

func newSharing(ps *Pools) *sharing {
	s := &sharing{pools: ps, exchange: ps.redis.NewExchange(), budget: journalBurst, openings: map[opening]time.Time{}}
	s.updateView()
	return s
}

// Sharing returns what this gateway shares with others; nil without Redis.
func (ps *Pools) Sharing() *SharingView {
	if ps.sharing == nil {
		return nil
	}
	return ps.sharing.view.Load()
}

// runExchanges exchanges loads and journals with the other gateways until ctx ends.
func (ps *Pools) runExchanges(ctx context.Context) {
	if ps.sharing == nil {
		return
	}
	next := time.NewTimer(shareEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-next.C:
			wait := shareCheck
			ps.recover.Run("sharing with the other gateways", func() {
				if ps.sharing.exchangeIfDue(ctx, now) {
					wait = shareEvery
				}
			})
			next.Reset(wait)
		}
	}
}

// exchangeIfDue makes one exchange, unless nothing has changed and the last one is recent. It reports whether the
// next one should follow soon: this one succeeded and was made for a change.
func (s *sharing) exchangeIfDue(ctx context.Context, now time.Time) (changed bool) {
	all := s.pools.current.Load().Pools
	state := s.encodeState(all, now)
	s.takeJournals(all, now)
	changed = len(s.unsent) > 0 || state != s.state || s.active || !s.caughtUp
	if !changed && now.Sub(s.sent) < shareIdle {
		return false
	}
	got, err := s.exchange.PublishAndRead(ctx, state, s.unsent)
	s.totals.Exchanges++
	if err != nil {
		s.totals.Failed++
		s.dropLoads(all, now)
		return false
	}
	for _, text := range s.unsent {
		s.totals.Sent += int64(len(text.Text))
	}
	s.totals.Sent += int64(len(state))
	confirmed := len(s.unsent) > 0
	s.unsent, s.state, s.sent = nil, state, now
	s.applyReceived(all, &got, now)
	if confirmed {
		for _, p := range all {
			p.Routing.ConfirmJournal()
		}
	}
	if !s.caughtUp && !got.More {
		s.caughtUp = true
		s.pools.log.Info("read what other gateways have published", "id", s.pools.redis.Gateway(), "others",
			len(got.Loads), "journals", s.totals.Entries)
	}
	s.updateView()
	return changed
}

// encodeState returns the state that this gateway publishes.
func (s *sharing) encodeState(all []*Pool, now time.Time) string {
	g := gatewayState{Pools: map[string]sharedPool{}, Servers: sketchOf(all)}
	for _, p := range all {
		shared := sharedPool{Load: p.Routing.AppendLoad(nil, now), Workers: 1}
		for worker := range p.Members {
			shared.Workers += NameHash(worker) // the order does not matter
		}
		for worker, at := range p.OwnOpenings(now) {
			if shared.Open == nil {
				shared.Open, shared.OpenAt = map[string]int64{}, map[string]uint64{}
			}
			shared.Open[worker], shared.OpenAt[worker] = at.UnixMilli(), p.ServerOf(worker)
		}
		g.Pools[p.Name] = shared
	}
	text, err := json.Marshal(g)
	if err != nil {
		return "{}" // no value of these types fails
	}
	return string(text)
}

// takeJournals takes the journals of the pools, within the budget.
func (s *sharing) takeJournals(all []*Pool, now time.Time) {
	if !s.stepped.IsZero() {
		s.budget = min(journalBurst, s.budget+now.Sub(s.stepped).Seconds()*journalRate)
	}
	s.stepped = now
	// Own entries follow all entries that this gateway has read.
	if len(s.unsent) > 0 || s.budget <= 0 || !s.caughtUp || !s.pools.redis.Up() {
		return
	}
	for range all {
		if s.budget <= 0 {
			return
		}
		p := all[s.turn%len(all)]
		s.turn++
		if text := p.Routing.TakeJournal(nil); len(text) > 0 {
			s.unsent = append(s.unsent, store.PoolText{Pool: p.Name, Text: string(text)})
			s.budget -= float64(len(text))
		}
	}
}

// dropLoads drops the loads of the other gateways after a second without an exchange. The pools then assume that each
// of them has as much as this one.
func (s *sharing) dropLoads(all []*Pool, now time.Time) {
	if now.Sub(s.sent) < shareIdle {
		return
	}
	count := s.pools.Gateways(s.pools.current.Load().File) - 1
	s.others, s.states = nil, nil // another gateway may miss what was written before the loss
	for _, p := range all {
		_ = p.Routing.SetOtherGateways(now, count) // without a load nothing can be wrong
	}
	s.updateView()
}

// applyReceived applies what the other gateways have published.
func (s *sharing) applyReceived(all []*Pool, got *store.Received, now time.Time) {
	before := s.states
	s.states = make(map[string]gatewayState, len(got.Loads))
	for id, text := range got.Loads {
		s.totals.Received += int64(len(text))
		var g gatewayState
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			s.totals.Unreadable++
			continue
		}
		s.states[id] = g
	}
	s.active = !maps.Equal(s.others, got.Loads)
	s.others = got.Loads
	s.findForeign(all, now)
	for _, p := range all {
		var loads [][]byte
		joined := false
		for id, g := range s.states {
			if shared, ok := g.Pools[p.Name]; ok && !s.foreign[id] {
				loads = append(loads, shared.Load)
				joined = joined || before[id].Pools[p.Name].Workers != shared.Workers
			}
		}
		if joined { // a gateway, or a pool or worker by its reload: it has ignored earlier entries about them
			p.Routing.RepeatJournal(now)
		}
		if err := p.Routing.SetOtherGateways(now, len(loads), loads...); err != nil {
			s.totals.Unreadable++
		}
	}
	s.applyOpenings(now)
	s.applyJournals(all, got.Journals, now)
}

// applyOpenings suspects the workers with a breaker that another gateway has opened, once for each opening.
func (s *sharing) applyOpenings(now time.Time) {
	for id, g := range s.states {
		if s.foreign[id] {
			continue
		}
		for pool, shared := range g.Pools {
			for worker, at := range shared.Open {
				o := opening{id, pool, worker, at}
				if _, known := s.openings[o]; !known && s.isSameServer(pool, worker, shared.OpenAt[worker]) {
					s.pools.Suspect(pool, worker)
				}
				s.openings[o] = now
			}
		}
	}
	maps.DeleteFunc(s.openings, func(_ opening, last time.Time) bool { return now.Sub(last) > keepOpening })
}

// applyJournals applies the entries of the log.
func (s *sharing) applyJournals(all []*Pool, journals []store.ReceivedJournal, now time.Time) {
	for _, j := range journals {
		s.totals.Entries++
		if s.foreign[j.Gateway] {
			continue
		}
		for _, text := range j.Pools {
			s.totals.Received += int64(len(text.Text))
			i := slices.IndexFunc(all, func(p *Pool) bool { return p.Name == text.Pool })
			if i >= 0 && all[i].Routing.ApplyJournal(now.Add(-j.Age), []byte(text.Text)) != nil {
				s.totals.Unreadable++
			}
		}
	}
}

// updateView updates the view.
func (s *sharing) updateView() {
	v := &SharingView{ID: s.pools.redis.Gateway(), Gateways: []GatewayView{}, CaughtUp: s.caughtUp,
		foreign: len(s.foreign), SharingTotals: s.totals}
	if !s.sent.IsZero() {
		at := s.sent
		v.SharedAt = &at
	}
	for _, id := range slices.Sorted(maps.Keys(s.others)) {
		g := GatewayView{ID: id, Pools: slices.Sorted(maps.Keys(s.states[id].Pools)), Open: []string{},
			Foreign: s.foreign[id]}
		for _, pool := range g.Pools {
			for _, worker := range slices.Sorted(maps.Keys(s.states[id].Pools[pool].Open)) {
				g.Open = append(g.Open, pool+"/"+worker)
			}
		}
		v.Gateways = append(v.Gateways, g)
	}
	s.view.Store(v)
}

// sharingGauges returns the values of the exchange for a scrape of the metrics.
func (ps *Pools) sharingGauges() telemetry.SharingGauges {
	v := ps.Sharing()
	g := telemetry.SharingGauges{Gateways: len(v.Gateways), CaughtUp: v.CaughtUp, Exchanges: v.Exchanges, Failed: v.Failed,
		Sent: v.Sent, Received: v.Received, Unreadable: v.Unreadable}
	for _, p := range ps.current.Load().Pools {
		g.Dropped += p.Routing.JournalDropped()
	}
	return g
}
