package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"tierway/decisions"
	"tierway/fixedseed"
	"tierway/routing"
	"tierway/sim"
	"tierway/tiers"
)

// beginning is the moment at which virtual time begins.
var beginning = time.Unix(1_800_000_000, 0).UTC()

// recorded runs a simulation and returns the decisions that a gateway would have recorded, in
// the order of their ends, as in a log.
func recorded(t testing.TB, c sim.Config) ([]*decisions.Decision, *sim.Result) {
	t.Helper()
	c.Choices = true
	result, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	records := slices.DeleteFunc(slices.Clone(result.Records), func(rec *sim.Record) bool { return !rec.Answered() })
	slices.SortStableFunc(records, func(a, b *sim.Record) int { return cmp.Compare(a.Done, b.Done) })
	var ds []*decisions.Decision
	for _, rec := range records {
		ds = append(ds, decision(rec, rec.Choice))
	}
	return ds, result
}

// decision returns a gateway's record of a request.
func decision(rec *sim.Record, c *routing.Choice) *decisions.Decision {
	r := &rec.Request
	since := func(at time.Duration) float64 { return float64(at-rec.SubmittedAt) / float64(time.Millisecond) }
	chain := r.Prompt()
	usage := decisions.Usage{Prompt: r.PromptTokens, Cached: rec.Cached, Output: r.OutputTokens}
	return &decisions.Decision{SchemaVersion: decisions.SchemaVersion, Time: beginning.Add(rec.SubmittedAt),
		RequestID: fmt.Sprint(rec.Number), Tenant: r.Tenant,
		Tier: "only", Rule: "model", RequestedModel: "only", Policy: c.Policy, Worker: rec.Worker, Stream: true,
		PromptTokens: c.PromptTokens, MaxTokens: r.MaxTokens,
		Usage: usage, Result: decisions.OK, Status: 200,
		Features: decisions.Features{Prefix: routing.Hash(r.Prefix), Chain: routing.AppendChain(nil, chain),
			Blocks: len(chain)},
		Attempts: []decisions.Attempt{{Worker: rec.Worker, Reason: string(rec.Reason), AtMs: since(rec.DispatchedAt),
			FirstAtMs: since(rec.First), EndAtMs: since(rec.Done),
			Status: 200, Predicted: c.CandidateOf(rec.Worker).Overlap, Usage: usage, Choice: c}}}
}

// house returns the setup of a simulation of four engines.
func house(t testing.TB, c sim.Config) Setup {
	t.Helper()
	catalog, err := tiers.New(tiers.Config{Targets: []tiers.Target{{Name: "only", Tier: true, Model: "m"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := Pool{Name: "only", Policy: c.Policy}
	for i, e := range c.Engines {
		p.Members = append(p.Members, routing.Member{ID: fmt.Sprint("e", i), Weight: max(1, e.Weight),
			MaxInflight: e.MaxInflight, MaxTokensInflight: e.MaxTokensInflight})
	}
	return Setup{Catalog: catalog, Pools: []Pool{p}}
}

// minutes returns few minutes in the gate, and ten in make soak.
func minutes(few int) time.Duration { return time.Duration(fixedseed.Samples(few, 10)) * time.Minute }

// chatting returns chats at engines; the last one begins before until.
func chatting(until time.Duration, policy string, engines ...sim.Engine) sim.Config {
	return sim.Config{Seed: 7, Engines: engines, Policy: routing.Config{Name: policy},
		Loads: []sim.Load{sim.Sessions{Rate: 1.2, Until: until}}}
}

func four() []sim.Engine { return make([]sim.Engine, 4) }

func TestEqualDraftChangesNothingAndReproducesEachWorker(t *testing.T) {
	uneven := []sim.Engine{{Weight: 3}, {Weight: 1, MaxInflight: 6}, {MaxInflight: 3}, {MaxTokensInflight: 8000}}
	for _, policy := range routing.Names() {
		for _, engines := range [][]sim.Engine{four(), uneven} {
			c := chatting(minutes(2), policy, engines...)
			ds, _ := recorded(t, c)
			now := house(t, c)
			got := replay(t, Config{Now: now, Draft: new(house(t, c))}, ds...)
			if got.Records != len(ds) || got.WorkersReproduced != (Part{len(ds), len(ds)}) ||
				got.TiersReproduced != (Part{len(ds), len(ds)}) ||
				got.ChangedWorker != 0 || len(got.ChangedTier) != 0 || len(got.Skipped) != 0 || got.Redecided != len(ds) {
				t.Errorf("%s: %+v", policy, got)
			}
			if got.Hit == nil || got.Hit.Now != got.Hit.Draft || got.Regret.Now != got.Regret.Draft {
				t.Errorf("%s: an equal draft hits %v and loses %+v", policy, got.Hit, got.Regret)
			}
		}
	}
}

// hitTolerance bounds the difference between the estimated hit rate of the real placement and
// the real one: tokens between two recorded blocks are inferred.
const hitTolerance = 0.02

func TestEstimatedHitRateAgreesWithTheRealOne(t *testing.T) {
	for _, policy := range routing.Names() {
		for name, e := range map[string]sim.Engine{"roomy": {}, "tight": {CacheTokens: 40_000}} {
			c := chatting(minutes(4), policy, e, e, e, e)
			ds, result := recorded(t, c)
			got := replay(t, Config{Now: house(t, c), CacheTokens: e.CacheTokens}, ds...)
			stats := result.Stats((*sim.Record).Answered)
			real := stats.Hits()
			t.Logf("%s, %s: %d requests, real %.3f, estimated %.3f, predicted %.3f", policy, name, len(ds), real, got.Hit.Now,
				*got.Predicted)
			if math.Abs(*got.RealHit-real) > 1e-9 {
				t.Errorf("%s, %s: the real hit rate is %v, not %v", policy, name, real, *got.RealHit)
			}
			if math.Abs(got.Hit.Now-real) > hitTolerance {
				t.Errorf("%s, %s: %v is estimated, and %v real", policy, name, got.Hit.Now, real)
			}
		}
	}
}

// draftTolerance bounds the difference between the estimated hit rate of a draft and that of a
// simulation under it; draftFactor bounds the ratio of their regrets. They differ because
// requests keep their real durations, and chats of faster engines continue sooner.
const draftTolerance, draftFactor = 0.05, 2.0

func TestDraftEstimatesAgreeWithASimulationUnderTheDraft(t *testing.T) {
	type run struct {
		setup Setup
		ds    []*decisions.Decision
		hits  float64
	}
	runs := map[string]run{}
	for _, policy := range []string{"chwbl", "round_robin", "least_load", "random"} {
		c := chatting(10*time.Minute, policy, four()...)
		ds, result := recorded(t, c)
		stats := result.Stats((*sim.Record).Answered)
		runs[policy] = run{house(t, c), ds, stats.Hits()}
	}
	for _, pair := range [][2]string{{"chwbl", "round_robin"}, {"least_load", "chwbl"}, {"round_robin", "chwbl"},
		{"chwbl", "least_load"}, {"random", "chwbl"}} {
		now, other := runs[pair[0]], runs[pair[1]]
		got := replay(t, Config{Now: now.setup, Draft: &other.setup}, now.ds...)
		measured, real := replay(t, Config{Now: other.setup}, other.ds...).Regret.Now, other.hits
		t.Logf("%s under %s: real %.3f, estimated %.3f (now %.3f), changed %d of %d, regret real %.0f ms, estimated %.0f "+
			"ms (now %.0f ms)",
			pair[0], pair[1], real, got.Hit.Draft, got.Hit.Now, got.ChangedWorker, got.Redecided, measured.Mean,
			got.Regret.Draft.Mean, got.Regret.Now.Mean)
		if math.Abs(got.Hit.Draft-real) > draftTolerance {
			t.Errorf("%s under %s: the estimate is %v, and the simulation gives %v", pair[0], pair[1], got.Hit.Draft, real)
		}
		if off := got.Regret.Draft.Mean / measured.Mean; off < 1/draftFactor || off > draftFactor {
			t.Errorf("%s under %s: a regret of %v ms is estimated, and the simulation has %v ms", pair[0], pair[1],
				got.Regret.Draft.Mean, measured.Mean)
		}
	}
}

// BenchmarkReplay measures one record of a pool of four that is decided again under another
// policy.
func BenchmarkReplay(b *testing.B) {
	c, other := chatting(10*time.Minute, "chwbl", four()...), chatting(10*time.Minute, "least_load", four()...)
	ds, _ := recorded(b, c)
	r, err := New(Config{Now: house(b, c), Draft: new(house(b, other))})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d := *ds[i%len(ds)]
		d.Time = d.Time.Add(time.Duration(i/len(ds)) * 10 * time.Minute)
		r.Add(&d)
	}
}
