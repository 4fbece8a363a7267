package replay

import (
	"slices"
	"testing"

	"tierway/decisions"
	"tierway/routing"
)

// priced gives every pool a cost of one unit per uncached prompt token.
func priced(s *Setup) {
	for i := range s.Pools {
		s.Pools[i].Cost = func(prompt, cached, _ int64) float64 { return float64(prompt - cached) }
	}
}

// refusing makes a setup refuse the requests of tenant "out".
func refusing(s *Setup) {
	s.Rights = func(d *decisions.Decision) (tier, model func(string) bool, known bool) {
		may := func(string) bool { return d.Tenant != "out" }
		return may, may, true
	}
}

// chained returns a request with a prompt of one block.
func chained(n int, tenant, worker string, hash uint64, cs ...routing.Candidate) *decisions.Decision {
	d := written(n, "small", worker, "least_load", 1000, cs...)
	d.Tenant, d.Features.Chain = tenant, []routing.Link{{Hash: hash, End: 1000}}
	return d
}

// TestRefusedRequestCostsOnlyUnderNow: a request that the draft refuses has its cost and hits
// under Now, and no cache of the draft has its prompt.
func TestRefusedRequestCostsOnlyUnderNow(t *testing.T) {
	now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, priced)
	draft := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, priced, refusing)
	got := replay(t, Config{Now: now, Draft: &draft}, chained(1, "out", "a1", 1, candidate("a1", 0)),
		chained(2, "", "a1", 1, candidate("a1", 0)))
	// the second prompt's last token is computed in any case
	if want := (Estimates{Now: 1001, Draft: 1000}); *got.Cost != want {
		t.Errorf("cost %+v, want %+v", *got.Cost, want)
	}
	if want := (Estimates{Now: 999.0 / 2000, Draft: 0}); *got.Hit != want {
		t.Errorf("hit rate %+v, want %+v", *got.Hit, want)
	}
	if len(got.ChangedTier) != 1 || got.ChangedTier[0].To != "" || got.Regret.Now.N != 2 || got.Regret.Draft.N != 1 ||
		len(got.Skipped) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestRequestsKeptAwayByTheDraftAreNoLoad: neither requests that the draft refuses nor those
// without a worker are load on its workers.
func TestRequestsKeptAwayByTheDraftAreNoLoad(t *testing.T) {
	hash := routing.Hash(7)
	special := func(s *Setup) { s.Pools[0].Members[0].Models = []uint64{uint64(hash)} }
	noMore := func(s *Setup) { s.Pools[0].Members[0].Models = []uint64{8} }
	for name, change := range map[string][2]func(*Setup){
		"refused":   {func(*Setup) {}, refusing},
		"no worker": {special, noMore},
	} {
		now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, change[0])
		draft := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, change[1])
		kept := chained(1, "out", "a1", 1, candidate("a1", 0))
		kept.Features.Model = hash
		kept.Attempts[0].FirstAtMs, kept.Attempts[0].EndAtMs = 60_000, 60_000 // it is in flight when the next one arrives
		busy, other := candidate("a1", 0), candidate("a2", 1)
		busy.Inflight, busy.PendingTokens, busy.OutputTokens = 1, 1000, 100
		other.PendingTokens = 500 // of requests that are not among the records
		got := replay(t, Config{Now: now, Draft: &draft}, kept, chained(2, "", "a2", 2, busy, other))
		if len(got.WorkerMoves) != 1 || got.WorkerMoves[0].From != "a2" || got.WorkerMoves[0].To != "a1" {
			t.Errorf("%s: the next request moves %+v, and a1 is idle under the draft", name, got.WorkerMoves)
		}
		if skipped := slices.Contains(got.Skipped, Count{SkippedWorkers, 1}); skipped != (name == "no worker") {
			t.Errorf("%s: skipped %+v", name, got.Skipped)
		}
	}
}

// TestUndecidedPickStillHasItsTokensAndCost: in a pool with more members than a record holds,
// no pick is decided again unless the draft moves the request to another tier. Its usage is
// known all the same.
func TestUndecidedPickStillHasItsTokensAndCost(t *testing.T) {
	now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"}, priced)
	lower := setup(t, thresholds(500, 9000), routing.Config{Name: "least_load"}, priced)
	cut := func(n int) *decisions.Decision {
		d := chained(n, "", "a1", 1, candidate("a1", 0))
		d.Features.Counted, d.Attempts[0].Choice.Seen = 1000, 40
		d.Attempts[0].Predicted, d.Attempts[0].Usage = 100, decisions.Usage{Prompt: 1000, Cached: 500}
		return d
	}
	for name, c := range map[string]struct {
		draft   Setup
		skipped []Count
		regrets int
		cost    float64
		hit     float64
	}{
		"in its tier": {now, []Count{{SkippedIncomplete, 2}}, 0, 1001, 999.0 / 2000},
		"elsewhere":   {lower, []Count{}, 2, 2000, 0}, // of two idle workers each has one
	} {
		got := replay(t, Config{Now: now, Draft: &c.draft}, cut(1), cut(2))
		if want := (Estimates{Now: 1001, Draft: c.cost}); *got.Cost != want {
			t.Errorf("%s: cost %+v, want %+v", name, *got.Cost, want)
		}
		if want := (Estimates{Now: 999.0 / 2000, Draft: c.hit}); *got.Hit != want || *got.RealHit != 0.5 ||
			*got.Predicted != 0.1 {
			t.Errorf("%s: hit rate %+v, want %+v; %v real, %v predicted", name, *got.Hit, want, *got.RealHit, *got.Predicted)
		}
		if !slices.Equal(got.Skipped, c.skipped) || got.Redecided != 0 || got.Regret.Now.N != 0 ||
			got.Regret.Draft.N != c.regrets {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestHitRateIsAbsentWithoutReportedCacheTokens: many engines report no cached tokens, which
// does not mean that they had none.
func TestHitRateIsAbsentWithoutReportedCacheTokens(t *testing.T) {
	now := setup(t, thresholds(5000, 9000), routing.Config{Name: "least_load"})
	for cached, want := range map[int64]bool{0: false, 1: true} {
		d := chained(1, "", "a1", 1, candidate("a1", 0))
		d.Attempts[0].Usage = decisions.Usage{Prompt: 1000, Cached: cached}
		if got := replay(t, Config{Now: now}, d); (got.RealHit != nil) != want {
			t.Errorf("%d cached tokens: %v", cached, got.RealHit)
		}
	}
}
