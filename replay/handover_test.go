package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tierway/decisions"
	"tierway/routing"
)

const symmetric = routing.StageWhole | routing.StageDecode

// pairs is a tier of two prefill and two decode workers.
func pairs(threshold int64, policy, prefill string, decode routing.Stages) Pool {
	return Pool{Name: "small", Policy: routing.Config{Name: policy},
		Handover: &Handover{Policy: routing.Config{Name: prefill}, Threshold: threshold},
		Members: []routing.Member{{ID: "p1", Weight: 1, Stages: routing.StagePrefill},
			{ID: "p2", Weight: 1, Stages: routing.StagePrefill}, {ID: "d1", Weight: 1, Stages: decode},
			{ID: "d2", Weight: 1, Stages: decode}}}
}

// requestsOf lets a pool serve prompts of these lengths one after the other, and returns their records.
func requestsOf(t testing.TB, pool Pool, prompts ...int64) (ds []*decisions.Decision) {
	t.Helper()
	return requestsThatFail(t, false, pool, prompts...)
}

// requestsThatFail is requestsOf, where the first prefill worker fails each request if fails is true.
func requestsThatFail(t testing.TB, fails bool, pool Pool, prompts ...int64) (ds []*decisions.Decision) {
	t.Helper()
	policy, err := routing.Compose(pool.Policy, pool.Rules)
	if err != nil {
		t.Fatal(err)
	}
	p := routing.NewPool(policy, pool.Members)
	h, err := pool.Handover.open()
	if err != nil {
		t.Fatal(err)
	}
	p.SetHandover(h)
	for _, m := range pool.Members {
		p.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
	for n, prompt := range prompts {
		d := written(n, "small", "", pool.Policy.Name, prompt)
		a := &d.Attempts[0]
		at := d.Time.Add(millis(a.AtMs))
		r := routing.Request{Now: at, Rand: uint64(n) * 0x9e3779b97f4a7c15, PromptTokens: prompt, OutputTokens: 100,
			Stream: true, Timed: true, Record: &routing.Choice{}}
		l, err := p.Acquire(&r)
		if err != nil {
			t.Fatal(err)
		}
		a.Worker, a.Reason, a.Choice, d.Worker = l.Worker().ID(), string(l.Reason()), r.Record, l.Worker().ID()
		if h != nil {
			a.Handover = &decisions.Handover{Result: "local"}
		}
		if pre := l.Prefill(); pre != nil {
			a.Handover = &decisions.Handover{Result: "remote", Prefills: []decisions.Prefill{{Worker: pre.Worker().ID(),
				AtMs: 1, EndAtMs: 50}}, DecodeAtMs: 50}
		}
		if fails {
			r.Record = &routing.Choice{}
			if err := p.RetryPrefill(&r, &l); err != nil {
				t.Fatal(err)
			}
			a.Handover.Prefills = append(a.Handover.Prefills, decisions.Prefill{Worker: l.Prefill().Worker().ID(),
				Reason: string(l.Prefill().Reason()), AtMs: 50, EndAtMs: 99, Choice: r.Record})
		}
		l.Release(routing.Result{At: at.Add(200 * time.Millisecond), Err: routing.ErrExcluded})
		ds = append(ds, d)
	}
	return ds
}

// under replays records of a pool under another one in its place.
func under(t testing.TB, was Pool, is *Pool, ds []*decisions.Decision) *Report {
	t.Helper()
	now := setup(t, thresholds(1<<40, 1<<41), routing.Config{Name: "least_load"})
	now.Pools[0] = was
	c := Config{Now: now}
	if is != nil {
		draft := setup(t, thresholds(1<<40, 1<<41), routing.Config{Name: "least_load"})
		draft.Pools[0] = *is
		c.Draft = &draft
	}
	return replay(t, c, ds...)
}

// TestHandoversAreDecidedAgainUnderADraft: by another threshold, policy, and roles.
func TestHandoversAreDecidedAgainUnderADraft(t *testing.T) {
	prompts := []int64{50, 200, 600, 4000, 60_000, 300, 5000, 80}
	with := func(change func(*Pool)) func(Pool) Pool {
		return func(p Pool) Pool {
			p.Members, p.Handover = append([]routing.Member(nil), p.Members...), new(*p.Handover)
			change(&p)
			return p
		}
	}
	threshold := func(n int64) func(Pool) Pool { return with(func(p *Pool) { p.Handover.Threshold = n }) }
	for name, tt := range map[string]struct {
		was     Pool
		is      func(Pool) Pool
		want    Handovers
		skipped int
		moved   int // requests with another decode worker; negative: any number
	}{
		"equal": {pairs(512, "least_load", "least_load", symmetric), threshold(512),
			Handovers{Local: Totals{4, 4}, Remote: Totals{4, 4}}, 0, 0},
		"lower threshold": {pairs(512, "least_load", "least_load", symmetric), threshold(100),
			Handovers{Local: Totals{4, 2}, Remote: Totals{4, 6}, Changed: 2}, 0, 0},
		"never": {pairs(512, "least_load", "least_load", symmetric), threshold(0),
			Handovers{Local: Totals{4, 8}, Remote: Totals{4, 0}, Changed: 4}, 0, 0},
		"by cost, of which the record lacks the loads": {pairs(1000, "least_load", "least_load", symmetric),
			threshold(routing.AutoThreshold), Handovers{Undecided: 5}, 0, -1},
		"no prefill workers": {pairs(512, "least_load", "least_load", symmetric), with(func(p *Pool) {
			p.Members = p.Members[2:]
		}), Handovers{Local: Totals{4, 8}, Remote: Totals{4, 0}, Changed: 4}, 0, 0},
		"prefill workers with another role": {pairs(512, "least_load", "least_load", symmetric), with(func(p *Pool) {
			p.Members[0].Stages, p.Members[1].Stages = symmetric, symmetric
		}), Handovers{Local: Totals{4, 8}, Remote: Totals{4, 0}, Changed: 4}, 0, -1},
		"no prefill workers, and none computes prompts": {pairs(512, "least_load", "least_load", routing.StageDecode),
			with(func(p *Pool) { p.Members = p.Members[2:] }), Handovers{}, 8, 0},
		"without a hand-over": {pairs(512, "least_load", "least_load", symmetric), func(p Pool) Pool {
			p.Handover, p.Members = nil, []routing.Member{{ID: "d1", Weight: 1}, {ID: "d2", Weight: 1}}
			return p
		}, Handovers{Local: Totals{4, 0}, Remote: Totals{4, 0}}, 0, 0},
		"with a new hand-over": {Pool{Name: "small", Policy: routing.Config{Name: "least_load"},
			Members: []routing.Member{{ID: "d1", Weight: 1}, {ID: "d2", Weight: 1}}}, func(Pool) Pool {
			return pairs(512, "least_load", "least_load", symmetric)
		}, Handovers{Local: Totals{0, 4}, Remote: Totals{0, 4}}, 0, 0},
	} {
		ds := requestsOf(t, tt.was, prompts...)
		is := tt.is(tt.was)
		got := under(t, tt.was, &is, ds)
		skipped := 0
		for _, s := range got.Skipped {
			skipped += s.N
		}
		if skipped != tt.skipped || tt.moved >= 0 && got.ChangedWorker != tt.moved {
			t.Errorf("%s: skipped %v, want %d; %d other workers, want %d", name, got.Skipped, tt.skipped, got.ChangedWorker,
				tt.moved)
		}
		h := Handovers{}
		if got.Handovers != nil {
			h = *got.Handovers
		}
		if tt.want.Undecided > 0 {
			h.Local, h.Remote, h.Changed = Totals{}, Totals{}, 0 // by cost
		}
		if part := h.Reproduced; part.N != part.Of {
			t.Errorf("%s: %d of %d decisions are reproduced", name, part.N, part.Of)
		}
		if h.Reproduced = (Part{}); h != tt.want {
			t.Errorf("%s: %+v, want %+v", name, h, tt.want)
		}
	}
}

// TestAnotherPrefillPolicyPlacesPromptsElsewhere: in turns, and never at a drained worker.
func TestAnotherPrefillPolicyPlacesPromptsElsewhere(t *testing.T) {
	was := pairs(1, "least_load", "random", symmetric)
	ds := requestsOf(t, was, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000)
	turns := pairs(1, "least_load", "round_robin", symmetric)
	if h := under(t, was, &turns, ds).Handovers; h.Remote != (Totals{8, 8}) || h.ChangedWorker == 0 || h.Changed != 0 {
		t.Errorf("%+v", h)
	}
	drained := pairs(1, "least_load", "random", symmetric)
	drained.Members[0].Weight = 0
	at := 0
	for _, d := range ds {
		if d.Attempts[0].Choice.Handover.Worker == "p1" {
			at++
		}
	}
	if h := under(t, was, &drained, ds).Handovers; h.ChangedWorker != at || at == 0 || h.Remote != (Totals{8, 8}) {
		t.Errorf("%+v, want %d other prefill workers", h, at)
	}
}

// TestPrefillWorkerAfterAFailureIsDecidedAgain under the configuration in force, and among the draft's workers.
func TestPrefillWorkerAfterAFailureIsDecidedAgain(t *testing.T) {
	was := pairs(1, "least_load", "weighted_round_robin", symmetric)
	was.Members[0].Weight, was.Members[1].Weight = 5, 3
	third := routing.Member{ID: "p3", Weight: 1, Stages: routing.StagePrefill}
	was.Members = append(was.Members[:2:2], append([]routing.Member{third}, was.Members[2:]...)...)
	ds := requestsThatFail(t, true, was, 1000)
	stages := ds[0].Attempts[0].Handover.Prefills
	without := func(ids ...string) *Pool {
		is := was
		is.Members = slices.DeleteFunc(slices.Clone(was.Members), func(m routing.Member) bool {
			return slices.Contains(ids, m.ID)
		})
		return &is
	}
	next, another := stages[1].Worker, "p1"
	for another == next || another == stages[0].Worker {
		another = "p" + string(another[1]+1)
	}
	for name, c := range map[string]struct {
		is                 *Pool
		changed, undecided int
	}{
		"checked":          {nil, 0, 0},
		"equal":            {&was, 0, 0},
		"without the next": {without(next), 1, 0},
		"without another":  {without(another), 0, 0},
		"without both":     {without(next, another), 0, 1},
	} {
		want := Handovers{Remote: Totals{1, 1}, Reproduced: Part{2, 2}, ChangedWorker: c.changed, Undecided: c.undecided}
		if got := under(t, was, c.is, ds).Handovers; *got != want {
			t.Errorf("%s: %+v, want %+v", name, *got, want)
		}
	}
	stages[1].Choice = nil
	if got, want := under(t, was, without(next), ds).Handovers, (Handovers{Remote: Totals{1, 1},
		Reproduced: Part{1, 1}}); *got != want {
		t.Errorf("without a recorded pick: %+v, want %+v", *got, want)
	}
}

// TestEqualDraftReproducesEachHandover of any policies, thresholds and roles.
func TestEqualDraftReproducesEachHandover(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SampledFrom(routing.Names())
		pool := pairs(rapid.SampledFrom([]int64{routing.AutoThreshold, 0, 1, 700}).Draw(rt, "threshold"),
			names.Draw(rt, "policy"), names.Draw(rt, "prefill policy"),
			rapid.SampledFrom([]routing.Stages{symmetric, routing.StageDecode}).Draw(rt, "decode"))
		if rapid.Bool().Draw(rt, "mixed") {
			pool.Members[1].Stages = symmetric | routing.StagePrefill
		}
		ds := requestsOf(t, pool, rapid.SliceOfN(rapid.Int64Range(1, 20_000), 1, 12).Draw(rt, "prompts")...)
		for name, is := range map[string]*Pool{"checked": nil, "equal": &pool} {
			got := under(t, pool, is, ds)
			h := got.Handovers
			if len(got.Skipped) > 0 || got.ChangedWorker > 0 || h == nil || h.Changed+h.ChangedWorker+h.Undecided > 0 ||
				h.Reproduced != (Part{len(ds), len(ds)}) || h.Local.Now != h.Local.Draft || h.Remote.Now != h.Remote.Draft {
				rt.Fatalf("%s: %+v of %+v", name, h, got)
			}
		}
	})
}

// TestPromptIsLoadOfItsPrefillWorker until the first content, and none of the decode worker's.
func TestPromptIsLoadOfItsPrefillWorker(t *testing.T) {
	pool := pairs(1, "least_load", "least_load", symmetric)
	d := requestsOf(t, pool, 4000)[0]
	s := replaySide{}
	to, err := openPool(&pool, &pool, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	p := newPick(d, &d.Attempts[0], "small", 0)
	s.placeRequest(to, p.worker, p.prefiller, p.residency)
	state := func() string {
		text := ""
		for _, id := range []string{p.prefiller, p.worker} {
			w := to.worker(id)
			text += fmt.Sprint(w.inflight, " ", w.pending, " ", w.output, " ", w.tokens, "; ")
		}
		return text
	}
	if state() != "1 4000 0 4000; 1 0 100 4100; " {
		t.Errorf("at first: %s", state())
	}
	if s.events.until(millis(100)); state() != "0 0 0 0; 1 0 100 4100; " {
		t.Errorf("after the first content: %s", state())
	}
	if s.events.until(millis(200)); state() != "0 0 0 0; 0 0 0 0; " {
		t.Errorf("at the end: %s", state())
	}
}
