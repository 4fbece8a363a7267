package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"tierway/routing"
)

// picked is one recorded pick and the worker that was used.
type picked struct {
	choice        routing.Choice
	model, prefix routing.Hash
	chain         []routing.Link
	at            time.Time
	used          string
	reason        routing.Reason
}

// picksOf records picks of a policy under changing loads. Prompts have all lengths, most share a
// beginning, some have none. Workers have several weights and are full at times. Some requests have
// waited.
func picksOf(t *testing.T, policy string, picks int) (all []picked) {
	t.Helper()
	d := newDriftWorld(7)
	made, err := routing.New(routing.Config{Name: policy})
	if err != nil {
		t.Fatal(err)
	}
	var members []routing.Member
	for i := range 5 {
		members = append(members, routing.Member{ID: fmt.Sprint("w", i), Ref: i, Weight: 1 + i%3, MaxInflight: 4 + 2*i})
		if i > 2 {
			members[i].MaxInflight = 40
		}
	}
	p := routing.NewPool(made, members)
	now := time.Unix(1_700_000_000, 0)
	for _, m := range members {
		p.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
	var open []*routing.Lease
	for len(all) < picks {
		now = now.Add(time.Duration(d.IntN(200)) * time.Millisecond)
		phase := len(all) / 250 % 3 // full workers, long prompts, mostly no prompts
		for len(open) > 0 && (len(open) > []int{24, 60, 12}[phase] || d.IntN(3) == 0) {
			at := d.IntN(len(open))
			open[at].Answered(now, nil)
			open[at].Release(routing.Result{At: now, PromptTokens: int64(d.IntN(20_000)), OutputTokens: 50})
			open = append(open[:at], open[at+1:]...)
		}
		r := d.request(now, phase)
		preview, err := p.Preview(r, nil)
		if preview.Worker == "" {
			continue // no worker is available
		}
		record := routing.Choice{}
		r.Record = &record
		lease, bookErr := p.Acquire(r)
		is := picked{choice: record, model: routing.Hash(r.Model), prefix: routing.Hash(r.Prefix),
			chain: routing.AppendChain(nil, r.Blocks), at: now, used: preview.Worker, reason: preview.Reason}
		switch {
		case bookErr == nil && lease.Worker().ID() != preview.Worker:
			t.Fatalf("booked on %s, previewed %s", lease.Worker().ID(), preview.Worker)
		case !errors.Is(bookErr, err):
			t.Fatalf("the booking returns %v, the preview %v", bookErr, err)
		case bookErr == nil:
			open = append(open, &lease)
		}
		all = append(all, is)
	}
	return all
}

// request draws a request for picksOf. In the last phase most have no prompt and no tokens, so that
// only numbers of requests can be compared.
func (d *driftWorld) request(now time.Time, phase int) *routing.Request {
	r := &routing.Request{Now: now, Rand: d.Uint64(), Model: 1, Stream: true,
		Wait: d.IntN(4) > 0, Waited: time.Duration(d.IntN(20_000)) * time.Millisecond}
	if phase == 2 && d.IntN(10) > 0 {
		return r
	}
	r.OutputTokens = int64(d.IntN(2000))
	if d.IntN(8) == 0 {
		return r
	}
	if phase == 1 && d.IntN(4) == 0 {
		r.OutputTokens = 30_000
	}
	blocks := 1 + d.IntN(40)
	root := uint64(d.IntN(6))
	for i := range blocks {
		r.Blocks = append(r.Blocks, routing.Block{Hash: routing.Mix(root<<32 + uint64(i) + 1), End: int64(1000 * (i + 1))})
	}
	if r.Stream = blocks%5 > 0; blocks%3 > 0 {
		r.Key, r.KeyOf = routing.Mix(root*64+uint64(blocks)+1), routing.KeySession
	}
	r.Prefix, r.PromptTokens = r.Blocks[0].Hash, int64([]int{400, 2500, 400}[phase]*blocks)
	return r
}

// redecide decides a pick a second time. It returns the worker, the reason and the scores.
func (p *picked) redecide(t *testing.T, policy routing.Policy,
	c *routing.Choice) (string, routing.Reason, *routing.Choice) {
	t.Helper()
	i, reason, decided, err := routing.Redecide(policy, c, p.model, p.prefix, p.chain, p.at)
	if err != nil {
		t.Fatal(err)
	}
	return c.Candidates[i].Worker, reason, decided
}

// facts are the inputs of policies. Each function removes one input from a record.
var facts = map[string]func(c *routing.Choice, w *routing.Candidate){
	"key":             func(c *routing.Choice, _ *routing.Candidate) { c.Key = 0 },
	"key_of":          func(c *routing.Choice, _ *routing.Candidate) { c.KeyOf = "" },
	"memory":          func(c *routing.Choice, _ *routing.Candidate) { c.Memory = 0 },
	"rand":            func(c *routing.Choice, _ *routing.Candidate) { c.Rand = 0 },
	"prompt_tokens":   func(c *routing.Choice, _ *routing.Candidate) { c.PromptTokens = 0 },
	"expected_output": func(c *routing.Choice, _ *routing.Candidate) { c.OutputTokens = 0 },
	"waited":          func(c *routing.Choice, _ *routing.Candidate) { c.WaitedMs = 0 },
	"weight":          func(_ *routing.Choice, w *routing.Candidate) { w.Weight = 1 },
	"index":           func(_ *routing.Choice, w *routing.Candidate) { w.Index = 0 },
	"inflight":        func(_ *routing.Choice, w *routing.Candidate) { w.Inflight = 0 },
	"pending_tokens":  func(_ *routing.Choice, w *routing.Candidate) { w.PendingTokens = 0 },
	"output_tokens":   func(_ *routing.Choice, w *routing.Candidate) { w.OutputTokens = 0 },
	"overlap_tokens":  func(_ *routing.Choice, w *routing.Candidate) { w.Overlap = 0 },
	"full":            func(_ *routing.Choice, w *routing.Candidate) { w.Full = false },
	"prefill_rate":    func(_ *routing.Choice, w *routing.Candidate) { w.Rate = 0 },
	"terms":           func(_ *routing.Choice, w *routing.Candidate) { w.Terms = routing.Terms{} },
	"latency":         func(_ *routing.Choice, w *routing.Candidate) { w.Latency = routing.LatencyFacts{} },
	"stream":          func(c *routing.Choice, _ *routing.Candidate) { c.Stream = false },
	"cost":            func(_ *routing.Choice, w *routing.Candidate) { w.Cost = routing.CostFacts{} },
	"traffic":         func(c *routing.Choice, _ *routing.Candidate) { c.Traffic = routing.Traffic{} },
}

// factsOf are the facts that each policy uses.
var factsOf = map[string][]string{
	"cache_aware":     {"rand", "prompt_tokens", "weight", "inflight", "pending_tokens", "output_tokens", "overlap_tokens"},
	"consistent_hash": {"key", "key_of", "weight"},
	"kv_overlap":      {"prompt_tokens", "weight", "inflight", "overlap_tokens"},
	"least_latency":   {"weight", "inflight", "latency", "stream"},
	"rendezvous_hash": {"key", "key_of", "weight"},
	"chwbl": {"key", "key_of", "memory", "rand", "prompt_tokens", "expected_output", "waited", "weight", "inflight",
		"pending_tokens", "output_tokens", "overlap_tokens", "full", "prefill_rate"},
	"kv_aware":             {"prompt_tokens", "expected_output", "weight", "overlap_tokens", "cost", "traffic"},
	"lmcache_aware":        {"rand", "weight", "inflight", "pending_tokens", "output_tokens"}, // the fallback decides
	"least_load":           {"rand", "weight", "inflight", "pending_tokens", "output_tokens"},
	"power_of_two":         {"rand", "weight", "inflight", "pending_tokens", "output_tokens"},
	"random":               {"rand"},
	"round_robin":          {"memory", "index"},
	"weighted_round_robin": {"weight", "terms"},
}

// TestRedecideReproducesEveryPick: the worker, the reason and every score are the same.
func TestRedecideReproducesEveryPick(t *testing.T) {
	for _, name := range routing.Names() {
		t.Run(name, func(t *testing.T) {
			policy, err := routing.New(routing.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range picksOf(t, name, 3000) {
				worker, reason, decided := p.redecide(t, policy, &p.choice)
				if worker != p.used || reason != p.reason {
					t.Fatalf("pick %d: %s by %s, was %s by %s: %+v", i, worker, reason, p.used, p.reason, p.choice)
				}
				if diff := scoreDiff(&p.choice, decided); diff != "" {
					t.Fatalf("pick %d: %s", i, diff)
				}
			}
		})
	}
}

// scoreDiff describes the first difference in the scores of two choices. It returns "" if there is
// none.
func scoreDiff(was, is *routing.Choice) string {
	if len(was.Candidates) != len(is.Candidates) || was.RunnerUp != is.RunnerUp {
		return fmt.Sprintf("%d candidates, next %s; were %d, next %s", len(is.Candidates), is.RunnerUp, len(was.Candidates),
			was.RunnerUp)
	}
	for i := range was.Candidates {
		a, b := &was.Candidates[i], &is.Candidates[i]
		if a.Worker != b.Worker || a.Score != b.Score || a.Excluded != b.Excluded {
			return fmt.Sprintf("%s scores %g (%q), %s scored %g (%q)", b.Worker, b.Score, b.Excluded, a.Worker, a.Score,
				a.Excluded)
		}
	}
	return ""
}

// TestEveryRecordedFactIsNeeded: without any one fact in the records, some pick is decided differently.
// So the tests above detect a missing term of a score.
func TestEveryRecordedFactIsNeeded(t *testing.T) {
	for _, name := range routing.Names() {
		policy, err := routing.New(routing.Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		all := picksOf(t, name, 3000)
		if len(factsOf[name]) == 0 {
			t.Errorf("no facts are listed for %s", name)
		}
		for _, fact := range factsOf[name] {
			t.Run(name+" without "+fact, func(t *testing.T) {
				agree := 0
				for _, p := range all {
					c := p.choice
					c.Candidates = append([]routing.Candidate{}, p.choice.Candidates...)
					for i := range c.Candidates {
						facts[fact](&c, &c.Candidates[i])
					}
					if worker, reason, _ := p.redecide(t, policy, &c); worker == p.used && reason == p.reason {
						agree++
					}
				}
				if t.Logf("%d of %d agree", agree, len(all)); agree == len(all) {
					t.Errorf("all picks agree without %s", fact)
				}
			})
		}
	}
}
