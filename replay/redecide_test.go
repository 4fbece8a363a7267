package replay

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"tierway/decisions"
	_ "tierway/fixedseed"
	"tierway/routing"
)

// TestRedecideAgreesWithAReplay for any pool, policy and draft, and any policy that made the
// record.
func TestRedecideAgreesWithAReplay(t *testing.T) {
	catalog := setup(t, thresholds(4000, 16000), routing.Config{}).Catalog
	ids := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		members := func(side string) (ms []routing.Member) {
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(ids)-1), 1, len(ids), rapid.ID).Draw(t, side) {
				m := routing.Member{ID: ids[i], Weight: rapid.IntRange(0, 3).Draw(t, "weight"),
					Group: rapid.IntRange(0, 1).Draw(t, "group"), MaxInflight: rapid.IntRange(0, 3).Draw(t, "most"),
					MaxTokensInflight: 1000 * rapid.Int64Range(0, 6).Draw(t, "tokens at most")}
				if rapid.Bool().Draw(t, "one model") {
					m.Models = []uint64{uint64(rapid.IntRange(1, 2).Draw(t, "model"))}
				}
				ms = append(ms, m)
			}
			return ms
		}
		policy := func(side string) routing.Config {
			return routing.Config{Name: rapid.SampledFrom(routing.Names()).Draw(t, side)}
		}
		limit := func() routing.Saturation {
			return routing.Saturation{Waiting: rapid.IntRange(0, 3).Draw(t, "waiting"),
				KVUsage: rapid.SampledFrom([]float64{0, 0.5, 0.9}).Draw(t, "cache")}
		}
		was := Pool{Name: "small", Policy: policy("policy"), Members: members("members"), Saturation: limit()}
		to := Pool{Name: "small", Policy: was.Policy, Members: members("draft"), Saturation: limit()}
		if rapid.Bool().Draw(t, "another policy") {
			to.Policy = policy("draft's policy")
		}
		d := drawnPick(t, &was)
		if d == nil {
			return
		}
		a := &d.Attempts[0]
		r, err := New(Config{Now: Setup{Catalog: catalog, Pools: []Pool{was}},
			Draft: &Setup{Catalog: catalog, Pools: []Pool{to}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Add(d)
		report := r.Report()
		worker := a.Worker
		for _, m := range report.WorkerMoves {
			worker = m.To
		}
		as, unknown, err := Redecide(&was, &to, d, a)
		if len(report.Skipped) > 0 {
			if report.Skipped[0].Name != SkippedWorkers || !errors.Is(err, ErrNoWorker) {
				t.Fatalf("the replay skips it: %v; %q, %v", report.Skipped, as.Worker, err)
			}
			return
		}
		if err != nil || as.Worker != worker || as.Choice.CandidateOf(as.Worker) == nil || as.Reason == "" {
			t.Fatalf("the replay decides %q, Redecide %q by %q of %+v: %v", worker, as.Worker, as.Reason, as.Choice, err)
		}
		if report.Unknown.Bounds > unknown.Bounds {
			t.Fatalf("the replay knows less: %+v, and %+v alone", report.Unknown, unknown)
		}
	})
}

// drawnPick returns a request that saw a pool's members, as recorded by the pool's policy or
// another one; nil if no worker was open.
func drawnPick(t *rapid.T, pool *Pool) *decisions.Decision {
	by := pool.Policy
	if rapid.Bool().Draw(t, "of an older configuration") {
		by.Name = rapid.SampledFrom(routing.Names()).Draw(t, "older")
	}
	return drawnPickBy(t, pool, by)
}

// drawnPickBy is drawnPick of that policy.
func drawnPickBy(t *rapid.T, pool *Pool, by routing.Config) *decisions.Decision {
	policy, err := routing.Compose(by, pool.Rules)
	if err != nil {
		t.Fatal(err)
	}
	p := routing.NewPool(policy, pool.Members)
	p.SetSaturation(pool.Saturation)
	for _, m := range pool.Members {
		p.Observe(m.ID, m.Ref, routing.Status{Up: true, LoadAt: beginning,
			Waiting: rapid.IntRange(0, 3).Draw(t, "waits inside"),
			KVUsage: rapid.SampledFrom([]float64{0, 0.6, 1}).Draw(t, "cache in use")})
	}
	q := routing.Request{Now: beginning, Model: uint64(rapid.IntRange(0, 2).Draw(t, "asked model")), Prefix: 5,
		Stream: true, Rule: rapid.IntRange(0, len(pool.Rules)).Draw(t, "rule"), Rules: len(pool.Rules)}
	for range rapid.IntRange(0, 6).Draw(t, "in flight") {
		q.Rand, q.PromptTokens = rapid.Uint64().Draw(t, "chance"), rapid.Int64Range(0, 4000).Draw(t, "tokens")
		_, _ = p.Acquire(&q)
	}
	q.Record, q.Wait, q.PromptTokens = &routing.Choice{}, rapid.Bool().Draw(t, "waits"), 1000
	l, err := p.Acquire(&q)
	if err != nil {
		return nil
	}
	d := written(0, "small", l.Worker().ID(), by.Name, 1000)
	d.Features.Model, d.Features.Prefix = routing.Hash(q.Model), 5
	d.Attempts[0].Reason, d.Attempts[0].Choice = string(l.Reason()), q.Record
	return d
}

// TestPicksOfRulesAndFallbacksAreReproduced by the configuration that made them.
func TestPicksOfRulesAndFallbacksAreReproduced(t *testing.T) {
	catalog := setup(t, thresholds(4000, 16000), routing.Config{}).Catalog
	rapid.Check(t, func(t *rapid.T) {
		was := Pool{Name: "small", Policy: routing.Config{Name: "kv_overlap",
			Fallback: rapid.SampledFrom([]string{"chwbl", "round_robin", "rendezvous_hash"}).Draw(t, "fallback")}}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(routing.Names()), 0, 2).Draw(t, "rules") {
			was.Rules = append(was.Rules, routing.Config{Name: name})
		}
		for _, id := range []string{"a", "b", "c"} {
			was.Members = append(was.Members, routing.Member{ID: id, Weight: 1})
		}
		d := drawnPickBy(t, &was, was.Policy)
		r, err := New(Config{Now: Setup{Catalog: catalog, Pools: []Pool{was}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Add(d)
		if got := r.Report(); got.WorkersReproduced != (Part{1, 1}) || got.Unknown.OtherPolicy != 0 {
			t.Fatalf("%+v of %+v: %+v", got.WorkersReproduced, d.Attempts[0].Choice, got.Unknown)
		}
	})
}

func TestIncompletePickIsNotDecidedAgain(t *testing.T) {
	pool := Pool{Name: "small", Members: []routing.Member{{ID: "a1", Weight: 1}}}
	for _, c := range []*routing.Choice{nil, {}, {Seen: 2, Candidates: []routing.Candidate{candidate("a1", 0)}}} {
		d := written(0, "small", "a1", "least_load", 100)
		d.Attempts[0].Choice = c
		if _, _, err := Redecide(nil, &pool, d, &d.Attempts[0]); !errors.Is(err, routing.ErrIncomplete) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	d := written(0, "small", "a1", "least_load", 100, candidate("a1", 0), candidate("a1", 0))
	if _, _, err := Redecide(&pool, &pool, d, &d.Attempts[0]); err == nil || errors.Is(err, routing.ErrIncomplete) {
		t.Errorf("twice the same: %v", err)
	}
}
