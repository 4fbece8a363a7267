package replay

import (
	"slices"
	"testing"

	"tierway/decisions"
	"tierway/routing"
)

// TestDraftBoundsAndSaturationDecideEligibility changes one bound at a time. The pick is among
// a1, which least_load chose, and a2, which has more booked load.
func TestDraftBoundsAndSaturationDecideEligibility(t *testing.T) {
	type change = func(p *Pool)
	most := func(n int) change { return func(p *Pool) { p.Members[0].MaxInflight = n } }
	tokens := func(n int64) change { return func(p *Pool) { p.Members[0].MaxTokensInflight = n } }
	limit := func(s routing.Saturation) change { return func(p *Pool) { p.Saturation = s } }
	loaded := func(inflight, waiting int, kvUsage float64) routing.Candidate {
		v := candidate("a1", 0)
		v.Inflight, v.PendingTokens, v.OutputTokens, v.Waiting, v.KVUsage = inflight, 300, 100, waiting, kvUsage
		return v
	}
	shared := func(inflight, peers int) routing.Candidate {
		v := loaded(inflight, 0, 0)
		v.OthersInflight = peers
		return v
	}
	both := func(v routing.Candidate) []routing.Candidate {
		other := candidate("a2", 1)
		other.Inflight, other.PendingTokens = 9, 9000
		return []routing.Candidate{v, other}
	}
	alone := func(v routing.Candidate) []routing.Candidate { return []routing.Candidate{v} }
	for name, c := range map[string]struct {
		now, draft change
		shown      []routing.Candidate
		to         string // a1 where nothing changes
		unknown    int
	}{
		"max_inflight over the load": {most(0), most(4), both(loaded(3, 0, 0)), "a1", 0},
		"max_inflight at the load":   {most(0), most(3), both(loaded(3, 0, 0)), "a2", 0},
		"max_inflight unchanged":     {most(3), most(3), both(loaded(3, 0, 0)), "a1", 0},
		// A gateway's bound is its own share, and the load of other gateways does not count against it.
		"max_inflight over the own load": {most(0), most(3), both(shared(8, 6)), "a1", 0},
		"max_inflight at the own load":   {most(0), most(3), both(shared(8, 5)), "a2", 0},
		"max_inflight raised, one is missing": {func(p *Pool) { p.Members[1].MaxInflight = 2 },
			func(p *Pool) { p.Members[1].MaxInflight = 3 }, alone(loaded(3, 0, 0)), "a1", 1},
		"max_inflight lowered, one is missing": {func(p *Pool) { p.Members[1].MaxInflight = 2 },
			func(p *Pool) { p.Members[1].MaxInflight = 1 }, alone(loaded(3, 0, 0)), "a1", 0},
		"max_inflight removed, one is missing": {func(p *Pool) { p.Members[1].MaxInflight = 2 }, most(0),
			alone(loaded(3, 0, 0)), "a1", 1},
		"tokens: idle": {tokens(0), tokens(1), both(loaded(0, 0, 0)), "a1", 0},
		// 400 booked, 1,100 asked for
		"tokens: those booked are too many":     {tokens(0), tokens(1499), both(loaded(3, 0, 0)), "a2", 1},
		"tokens: those booked are not too many": {tokens(0), tokens(1500), both(loaded(3, 0, 0)), "a1", 1},
		// it waits for the only one
		"tokens: all are full": {tokens(0), tokens(1), alone(loaded(3, 0, 0)), "a1", 1},
		"tokens unchanged":     {tokens(1), tokens(1), both(loaded(3, 0, 0)), "a1", 0},
		"tokens raised, one is missing": {func(p *Pool) { p.Members[1].MaxTokensInflight = 1 }, tokens(0),
			alone(loaded(3, 0, 0)), "a1", 1},
		"waiting: fewer": {limit(routing.Saturation{}), limit(routing.Saturation{Waiting: 3}),
			both(loaded(3, 2, 0)), "a1", 0},
		"waiting: as many": {limit(routing.Saturation{}), limit(routing.Saturation{Waiting: 2}),
			both(loaded(3, 2, 0)), "a2", 0},
		"waiting unchanged": {limit(routing.Saturation{Waiting: 2}),
			limit(routing.Saturation{Waiting: 2}), both(loaded(3, 2, 0)), "a1", 0},
		"waiting: it did not count": {limit(routing.Saturation{Waiting: 2}),
			limit(routing.Saturation{Waiting: 1}), both(loaded(3, 2, 0)), "a1", 1},
		"waiting raised, one is missing": {limit(routing.Saturation{Waiting: 2}),
			limit(routing.Saturation{Waiting: 3}), alone(loaded(3, 0, 0)), "a1", 1},
		"waiting lowered, one is missing": {limit(routing.Saturation{Waiting: 2}),
			limit(routing.Saturation{Waiting: 1}), alone(loaded(3, 0, 0)), "a1", 0},
		"waiting: all are saturated": {limit(routing.Saturation{}), limit(routing.Saturation{Waiting: 2}),
			alone(loaded(3, 2, 0)), "a1", 0},
		"cache: less": {limit(routing.Saturation{}), limit(routing.Saturation{KVUsage: 0.9}),
			both(loaded(3, 1, 0.8)), "a1", 0},
		"cache: as much": {limit(routing.Saturation{}), limit(routing.Saturation{KVUsage: 0.8}),
			both(loaded(3, 1, 0.8)), "a2", 0},
		"cache: none waits": {limit(routing.Saturation{}), limit(routing.Saturation{KVUsage: 0.8}),
			both(loaded(3, 0, 0.8)), "a1", 0},
		"cache raised, one is missing": {limit(routing.Saturation{KVUsage: 0.8}),
			limit(routing.Saturation{KVUsage: 0.9}), alone(loaded(3, 0, 0)), "a1", 1},
		"fresher metrics, one is missing": {limit(routing.Saturation{Waiting: 2, StaleAfter: 9}),
			limit(routing.Saturation{Waiting: 2, StaleAfter: 5}), alone(loaded(3, 0, 0)), "a1", 1},
		"older metrics, one is missing": {limit(routing.Saturation{Waiting: 2, StaleAfter: 5}),
			limit(routing.Saturation{Waiting: 2, StaleAfter: 9}), alone(loaded(3, 0, 0)), "a1", 0},
	} {
		now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, func(s *Setup) { c.now(&s.Pools[0]) })
		draft := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, func(s *Setup) { c.draft(&s.Pools[0]) })
		got := replay(t, Config{Now: now, Draft: &draft}, written(0, "small", "a1", "least_load", 1000, c.shown...))
		to := "a1"
		for _, m := range got.WorkerMoves {
			to = m.To
		}
		if to != c.to || got.Unknown.Bounds != c.unknown || got.Redecided != 1 || len(got.Skipped) > 0 {
			t.Errorf("%s: to %s, want %s; %d not known, want %d; %+v", name, to, c.to, got.Unknown.Bounds, c.unknown, got)
		}
	}
}

// TestTokensInFlightAreThoseOfTheRecords counts prompts, cached or not, and expected answers of
// the requests in flight at the pick, if the records have as many as the candidate had.
func TestTokensInFlightAreThoseOfTheRecords(t *testing.T) {
	now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"})
	for name, c := range map[string]struct {
		inflight int   // of a1 at the second pick; one is in the records
		bound    int64 // max_tokens_inflight of a1 under the draft
		moves    int
		unknown  int
	}{
		"room for both":    {1, 1100 + 1100, 0, 0},
		"room for one":     {1, 1100 + 1099, 1, 0},
		"more than it had": {2, 1100 + 1099, 0, 1}, // 0 are booked at least
	} {
		draft := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"},
			func(s *Setup) { s.Pools[0].Members[0].MaxTokensInflight = c.bound })
		began := written(1, "small", "a1", "least_load", 1000, candidate("a1", 0))
		began.Attempts[0].EndAtMs = 60_000
		busy, other := candidate("a1", 0), candidate("a2", 1)
		busy.Inflight, other.PendingTokens = c.inflight, 500 // the whole prompt of a1's request was cached
		next := written(2, "small", "a1", "least_load", 1000, busy, other)
		got := replay(t, Config{Now: now, Draft: &draft}, began, next)
		if got.ChangedWorker != c.moves || got.Unknown.Bounds != c.unknown || !slices.Equal(got.Skipped, []Count{}) {
			t.Errorf("%s: %d moves, %d not known: %+v", name, got.ChangedWorker, got.Unknown.Bounds, got)
		}
	}
}

// TestDraftPlacementsCountAgainstTheTokensOfAWorker moves the first of two requests off a1, so
// that the second fits there, or onto a2, which is then full.
func TestDraftPlacementsCountAgainstTheTokensOfAWorker(t *testing.T) {
	bounded := func(s *Setup) { s.Pools[0].Members[1].MaxTokensInflight = 2000 }
	now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, bounded)
	draft := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, bounded, func(s *Setup) {
		s.Pools[0].Members[0].Models = []uint64{8}
	})
	first := func() *decisions.Decision {
		d := written(1, "small", "a1", "least_load", 1000, candidate("a1", 0), candidate("a2", 1))
		d.Features.Model, d.Attempts[0].EndAtMs = 7, 60_000
		return d
	}
	busy, other := candidate("a1", 0), candidate("a2", 1)
	busy.Inflight, busy.OutputTokens, busy.PendingTokens = 1, 100, 1000
	next := written(2, "small", "a2", "least_load", 1000, busy, other)
	got := replay(t, Config{Now: now, Draft: &draft}, first(), next)
	want := []string{"a1 a2", "a2 a1"}
	var moves []string
	for _, m := range got.WorkerMoves {
		moves = append(moves, m.From+" "+m.To)
	}
	if slices.Sort(moves); !slices.Equal(moves, want) || got.Unknown.Bounds != 0 {
		t.Errorf("%v, want %v: %+v", moves, want, got)
	}
}
