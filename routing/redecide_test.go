package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// facts lists the parts of a record that a policy may use, each with a function that removes it.
func blanks() map[string]func(*Choice) {
	each := func(blank func(*Candidate)) func(*Choice) {
		return func(c *Choice) {
			for i := range c.Candidates {
				blank(&c.Candidates[i])
			}
		}
	}
	return map[string]func(*Choice){
		"policy":         func(c *Choice) { c.Policy = "" },
		"key":            func(c *Choice) { c.Key = 0 },
		"key of":         func(c *Choice) { c.KeyOf = "" },
		"memory":         func(c *Choice) { c.Memory = 0 },
		"rand":           func(c *Choice) { c.Rand = 0 },
		"prompt tokens":  func(c *Choice) { c.PromptTokens = 0 },
		"output tokens":  func(c *Choice) { c.OutputTokens = 0 },
		"waited":         func(c *Choice) { c.WaitedMs = 0 },
		"stream":         func(c *Choice) { c.Stream = false },
		"waits":          func(c *Choice) { c.Waits = false },
		"worker full":    func(c *Choice) { c.WorkerFull = false },
		"runner-up":      func(c *Choice) { c.RunnerUp = "" },
		"index":          each(func(v *Candidate) { v.Index = 0 }),
		"weight":         each(func(v *Candidate) { v.Weight = 1 }),
		"inflight":       each(func(v *Candidate) { v.Inflight = 0 }),
		"pending":        each(func(v *Candidate) { v.PendingTokens = 0 }),
		"output":         each(func(v *Candidate) { v.OutputTokens = 0 }),
		"overlap":        each(func(v *Candidate) { v.Overlap = 0 }),
		"full":           each(func(v *Candidate) { v.Full = false }),
		"rate":           each(func(v *Candidate) { v.Rate = 0 }),
		"terms":          each(func(v *Candidate) { v.Terms = Terms{} }),
		"score":          each(func(v *Candidate) { v.Score = 0 }),
		"excluded":       each(func(v *Candidate) { v.Excluded = "" }),
		"max in flight":  each(func(v *Candidate) { v.MaxInflight = 0 }),
		"engine's queue": each(func(v *Candidate) { v.Waiting = 0 }),
		"cache in use":   each(func(v *Candidate) { v.KVUsage = 0 }),
		"kv events":      each(func(v *Candidate) { v.Events = false }),
		"cost":           each(func(v *Candidate) { v.Cost = CostFacts{} }),
		"success":        each(func(v *Candidate) { v.Success = 0 }),
		"look-up":        each(func(v *Candidate) { v.LMCacheTokens = 0 }),
		"keys":           each(func(v *Candidate) { v.LMCacheKeys = 0 }),
		"latency":        each(func(v *Candidate) { v.Latency.Mean = 0 }),
		"samples":        each(func(v *Candidate) { v.Latency.Samples = 0 }),
		"idle":           each(func(v *Candidate) { v.Latency.Idle = 0 }),
		"traffic":        func(c *Choice) { c.Traffic = Traffic{} },
	}
}

// pastPick is one recorded pick.
type pastPick struct {
	record Choice
	asked  Request
	chosen string
	reason Reason
}

// redecide decides the pick again from another record of it.
func (k *pastPick) redecide(t *testing.T, p Policy, record *Choice) (worker string, reason Reason) {
	t.Helper()
	i, reason, _, err := Redecide(p, record, Hash(k.asked.Model), Hash(k.asked.Prefix), AppendChain(nil, k.asked.Blocks),
		k.asked.Now)
	if err != nil {
		t.Fatalf("deciding again: %v", err)
	}
	return record.Candidates[i].Worker, reason
}

// pastPicks lets a policy pick among randomly loaded workers, a planner among full ones too, and
// records the picks.
func pastPicks(t *testing.T, policy Policy, n int) (picks []pastPick) {
	t.Helper()
	d, now := rng(99), start
	planner, plans := policy.(Planner)
	plans = plans && planner.Plans(&Request{})
	for range n {
		now = now.Add(d.exp(time.Second))
		r := Request{Now: now, Rand: d.next(), Model: uint64(d.below(3)), PromptTokens: int64(d.below(60_000)),
			OutputTokens: int64(d.below(8000)),
			Stream:       d.below(2) == 0, Wait: d.below(2) == 0, Waited: d.exp(20 * time.Second), Record: &Choice{},
			traffic: Traffic{Arrivals: 3 * d.unit(), Utilization: d.unit(), Cached: 9000 * d.unit()}}
		if d.below(5) > 0 {
			r.Blocks = chainOf(chainOf(nil, 1, 3), uint64(d.below(40)), 1+d.below(20))
			r.Prefix = r.Blocks[0].Hash
		}
		if d.below(3) == 0 {
			r.Key, r.KeyOf = d.next(), KeySession
		}
		ws := loaded(&d, plans && r.Wait && d.below(2) == 0)
		pool := Pool{policy: policy, assessments: make([]assessment, len(ws))}
		i, reason := pool.pickLocked(&r, ws)
		picks = append(picks, pastPick{record: *r.Record, asked: r, chosen: ws[i].ID, reason: reason})
	}
	return picks
}

// loaded returns some of eight workers; half of them are idle at times.
func loaded(d *rng, someFull bool) (ws []View) {
	light, warm := d.below(3) == 0, d.below(3) > 0
	own := rng(*d + 7)
	for i := range 8 {
		if d.below(4) == 0 && (i < 7 || len(ws) > 0) {
			continue
		}
		v := View{ID: fmt.Sprint("w", i), Index: i, Weight: 1 + i%4, Rate: 500 + float64(d.below(8000)),
			MaxInflight: 9, Waiting: d.below(9), KVUsage: d.unit()}
		if !light || d.below(2) == 0 {
			v.Inflight, v.PendingTokens, v.OutputTokens = d.below(6), int64(d.below(40))*1000, int64(d.below(8))*1000
		}
		v.Overlap = int64(d.below(3)) * 10_000
		v.Full = someFull && d.below(2) == 0
		v.exact = d.below(2) == 0
		v.Cost = CostFacts{Backlog: d.unit() * float64(d.below(3)), Overhead: 0.01, PerToken: 1 / (5000 + 5000*d.unit()),
			Slowdown: 0.004 * d.unit(), Step: 0.02, StepEach: 0.001 * d.unit(), Stall: d.unit(), WorkingSet: d.unit(),
			SlotWait: float64(d.below(2)) * d.unit()}
		v.Success = d.unit()
		v.Latency = LatencyFacts{Mean: d.unit(), Samples: 9 + d.below(3), Idle: 10.1 * d.unit()}
		if warm {
			v.Latency.Samples++
		}
		if own.below(3) > 0 {
			v.StoredKeys = int64(own.below(4))
		}
		if own.below(2) == 0 {
			v.predicted[fromLookup] = v.Overlap
		}
		ws = append(ws, v)
	}
	if own.below(2) == 0 { // the controller is down
		for i := range ws {
			ws[i].StoredKeys = 0
		}
	}
	return ws
}

// used lists the facts that each policy uses. Without any other fact of the record the pick is the
// same; without a listed one it is not.
func used() map[string][]string {
	return map[string][]string{
		"round_robin":          {"policy", "memory", "index"},
		"weighted_round_robin": {"policy", "weight", "terms", "index"},
		"random":               {"rand"},
		"least_load":           {"rand", "weight", "inflight", "pending", "output"},
		"power_of_two":         {"rand", "weight", "inflight", "pending", "output"},
		"kv_aware": {"rand", "prompt tokens", "output tokens", "weight", "inflight", "overlap", "kv events", "cost",
			"traffic"},
		"lmcache_aware": {"rand", "weight", "inflight", "pending", "output", "keys"},
		"lmcache_aware/prefix_lookup": {"rand", "prompt tokens", "output tokens", "weight", "inflight", "overlap",
			"kv events", "look-up", "cost", "traffic"},
		"cache_aware":     {"rand", "prompt tokens", "weight", "inflight", "pending", "output", "overlap"},
		"consistent_hash": {"key", "key of", "rand", "weight", "inflight", "pending", "output"},
		"rendezvous_hash": {"key", "key of", "rand", "weight", "inflight", "pending", "output"},
		"least_latency":   {"rand", "stream", "weight", "inflight", "pending", "output", "latency", "samples", "idle"},
		"kv_overlap":      {"rand", "prompt tokens", "weight", "inflight", "pending", "overlap", "success"},
		"chwbl": {"policy", "key", "key of", "memory", "rand", "prompt tokens", "output tokens", "waited",
			"weight", "inflight", "pending", "output", "overlap", "full", "rate"},
	}
}

// TestRecordHoldsEveryFactThatThePolicyUsed, and each listed fact changes some pick.
func TestRecordHoldsEveryFactThatThePolicyUsed(t *testing.T) {
	for _, name := range append(Names(), "lmcache_aware/prefix_lookup") {
		fresh := func() Policy {
			policy, mode, _ := strings.Cut(name, "/")
			p, err := New(Config{Name: policy, Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		picks, judge := pastPicks(t, fresh(), 1000), fresh()
		for i := range picks {
			if worker, reason := picks[i].redecide(t, judge, &picks[i].record); worker != picks[i].chosen ||
				reason != picks[i].reason {
				t.Fatalf("%s: %s was chosen (%s), and again %s (%s): %+v", name, picks[i].chosen, picks[i].reason, worker, reason,
					picks[i].record)
			}
		}
		for fact, blank := range blanks() {
			decides := false // once is enough
			for i := 0; i < len(picks) && !decides; i++ {
				without := picks[i].record
				without.Candidates = slices.Clone(without.Candidates)
				blank(&without)
				worker, reason := picks[i].redecide(t, judge, &without)
				decides = worker != picks[i].chosen || reason != picks[i].reason
			}
			if uses := slices.Contains(used()[name], fact); uses != decides {
				t.Errorf("%s: that a pick without %q is another one is %v, and that it is used is %v", name, fact, decides, uses)
			}
		}
	}
}

// TestRunnerUpIsPickedWithoutTheChosenWorker from the same record. Among full workers, and for policies
// that draw, the runner-up is only the next best one.
func TestRunnerUpIsPickedWithoutTheChosenWorker(t *testing.T) {
	for _, name := range []string{"cache_aware", "chwbl", "consistent_hash", "least_load", "rendezvous_hash",
		"round_robin", "weighted_round_robin"} {
		policy, err := New(Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, k := range pastPicks(t, policy, 1000) {
			c := k.record
			if slices.ContainsFunc(c.Candidates, func(v Candidate) bool { return v.Full }) || c.Seen < 2 {
				continue
			}
			rest := c
			rest.Candidates = slices.DeleteFunc(slices.Clone(c.Candidates), func(v Candidate) bool {
				return v.Worker == k.chosen
			})
			rest.Seen--
			judge, _ := New(Config{Name: name})
			if worker, reason := k.redecide(t, judge, &rest); worker != c.RunnerUp {
				t.Fatalf("%s: %s is the runner-up of %s (%s), and without that %s has it (%s): %+v", name, c.RunnerUp, k.chosen,
					k.reason, worker, reason, c)
			}
			checked++
		}
		if checked < 300 {
			t.Errorf("%s: %d picks were checked", name, checked)
		}
	}
}
