package routing

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"tierway/fixedseed"
)

const allStages = StageWhole | StagePrefill | StageDecode

// pairs returns a pool with a hand-over whose members have these stages and are up.
func pairs(threshold int64, stages map[string]Stages) *Pool {
	var members []Member
	for _, id := range []string{"p1", "p2", "d1", "d2", "both"} {
		if s, ok := stages[id]; ok {
			members = append(members, Member{ID: id, Weight: 1, Stages: s})
		}
	}
	p := poolOf(members...)
	p.Configure(first{}, members)
	p.SetHandover(&Handover{Policy: first{}, Threshold: threshold})
	return p
}

// fleet is two prefill and two decode workers of an engine whose decode workers can compute prompts.
func fleet() map[string]Stages {
	return map[string]Stages{"p1": StagePrefill, "p2": StagePrefill, "d1": StageWhole | StageDecode,
		"d2": StageWhole | StageDecode}
}

// strict is the same for an engine whose decode workers cannot.
func strict() map[string]Stages {
	return map[string]Stages{"p1": StagePrefill, "p2": StagePrefill, "d1": StageDecode, "d2": StageDecode}
}

// long is a stream with a prompt of that many tokens.
func long(tokens int64) *Request {
	return &Request{Now: start, PromptTokens: tokens, OutputTokens: 50, Stream: true, Timed: true, Record: &Choice{}}
}

func TestBothStagesAreBookedInOneStep(t *testing.T) {
	p := pairs(1, fleet())
	l, err := p.Acquire(long(4000))
	if err != nil || l.Prefill() == nil || !l.HandedOver() {
		t.Fatalf("%v, prefill %v", err, l.Prefill())
	}
	// The decode worker owes the output only, the prefill worker the prompt and one token.
	wantBooks(t, p, "p1 1 4000 1, p2 0 0 0, d1 1 0 50, d2 0 0 0")
	l.Prefill().Answered(start.Add(400*time.Millisecond), nil)
	wantBooks(t, p, "p1 1 0 1, p2 0 0 0, d1 1 0 50, d2 0 0 0")
	l.Begin(start.Add(400 * time.Millisecond))
	l.Prefill().Release(Result{At: start.Add(450 * time.Millisecond), PromptTokens: 4000, OutputTokens: 1})
	l.Answered(start.Add(450*time.Millisecond), nil)
	wantBooks(t, p, "p1 0 0 0, p2 0 0 0, d1 1 0 50, d2 0 0 0")
	l.Release(Result{At: start.Add(2 * time.Second), PromptTokens: 4000, CachedTokens: 3999, OutputTokens: 50})
	wantBooks(t, p, "p1 0 0 0, p2 0 0 0, d1 0 0 0, d2 0 0 0")
}

// TestPD5ThresholdOfUncachedTokens: with a threshold of 512 tokens, the uncached ones decide.
func TestPD5ThresholdOfUncachedTokens(t *testing.T) {
	for _, c := range []struct {
		prompt, cached int64
		want           string
	}{{100, 0, HandoverLocal}, {511, 0, HandoverLocal}, {512, 0, HandoverRemote}, {600, 0, HandoverRemote},
		{4000, 0, HandoverRemote}, {4000, 3800, HandoverLocal}, {0, 0, HandoverLocal}} {
		p := NewPool(newKVAware(), []Member{{ID: "p1", Weight: 1, Stages: StagePrefill, Ref: "p1"},
			{ID: "d1", Weight: 1, Stages: StageWhole | StageDecode, Ref: "d1"}})
		p.Observe("p1", "p1", Status{Up: true})
		p.Observe("d1", "d1", Status{Up: true})
		p.SetHandover(&Handover{Policy: newKVAware(), Threshold: 512})
		r := long(c.prompt)
		r.Cached = []CachedPrefix{{Ref: "d1", Tokens: c.cached}}
		l, err := p.Acquire(r)
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Record.Handover; d.Decision != c.want || d.Why != HandoverThreshold ||
			(l.Prefill() != nil) != (c.want == HandoverRemote) {
			t.Errorf("%d tokens, %d cached: %+v", c.prompt, c.cached, d)
		}
		l.Release(Result{At: start, Err: ErrExcluded})
		wantBooks(t, p, "p1 0 0 0, d1 0 0 0")
	}
	never := pairs(0, fleet())
	r := long(100_000)
	if l, err := never.Acquire(r); err != nil || l.Prefill() != nil {
		t.Errorf("a threshold of 0 handed over: %v %+v", err, r.Record.Handover)
	}
}

// TestWhereAPromptMayBeComputed shows the decisions that no cost changes.
func TestWhereAPromptMayBeComputed(t *testing.T) {
	for name, c := range map[string]struct {
		pool     *Pool
		change   func(p *Pool, r *Request)
		worker   string
		decision string
		why      string
		err      error
	}{
		"whole":               {pairs(1, fleet()), func(_ *Pool, r *Request) { r.Whole = true }, "d1", HandoverLocal, HandoverWhole, nil},
		"whole, nobody can":   {pairs(1, strict()), func(_ *Pool, r *Request) { r.Whole = true }, "", "", "", ErrNoWorker},
		"decode workers only": {pairs(AutoThreshold, strict()), nil, "d1", HandoverRemote, HandoverOnlyWay, nil},
		"a short prompt too":  {pairs(100_000, strict()), nil, "d1", HandoverRemote, HandoverOnlyWay, nil},
		"an engine without the connector": {pairs(1, map[string]Stages{"p1": StagePrefill, "both": StageWhole}), nil, "both",
			HandoverLocal, HandoverOnlyWay, nil},
		"no prefill worker is up": {pairs(1, fleet()), func(p *Pool, _ *Request) {
			p.Observe("p1", nil, Status{})
			p.Observe("p2", nil, Status{})
		}, "d1", HandoverLocal, HandoverNoPrefill, nil},
		"none, and nobody can do without": {pairs(1, strict()), func(p *Pool, _ *Request) {
			p.Observe("p1", nil, Status{})
			p.Observe("p2", nil, Status{})
		}, "", "", "", ErrNoWorker},
		"none, and another worker can": {pairs(1, map[string]Stages{"d1": StageDecode, "both": StageWhole}),
			nil, "both", HandoverLocal, HandoverNoPrefill, nil},
		"a worker never hands over to itself": {pairs(1, map[string]Stages{"both": allStages}), nil, "both", HandoverLocal,
			HandoverNoPrefill, nil},
		"prefill workers alone serve nothing": {pairs(1, map[string]Stages{"p1": StagePrefill}), nil, "", "", "",
			ErrNoWorker},
	} {
		t.Run(name, func(t *testing.T) {
			r := long(4000)
			if c.change != nil {
				c.change(c.pool, r)
			}
			preview, previewErr := c.pool.Preview(r, nil)
			before := books(c.pool)
			l, err := c.pool.Acquire(r)
			if !errors.Is(err, c.err) || !errors.Is(previewErr, c.err) {
				t.Fatalf("errors %v and %v, want %v", err, previewErr, c.err)
			}
			if err != nil {
				wantBooks(t, c.pool, before)
				return
			}
			d, shown := r.Record.Handover, preview.Choice.Handover
			if l.Worker().ID() != c.worker || d == nil || d.Decision != c.decision || d.Why != c.why {
				t.Errorf("%s, %+v", l.Worker().ID(), d)
			}
			if preview.Worker != c.worker || shown == nil || shown.Decision != c.decision || shown.Why != c.why ||
				shown.Worker != d.Worker {
				t.Errorf("the preview is %s, %+v", preview.Worker, shown)
			}
			l.Release(Result{At: start, Err: ErrExcluded})
			wantBooks(t, c.pool, before)
		})
	}
}

// TestDecisionFollowsCost: an idle decode worker computes a short prompt. Answers in flight speak for the prefill
// worker, even if the pool has not learned that its engines stop for prefills, as do cached prompts, which both
// workers have after a hand-over, and which the next turn of a conversation needs. A backlog speaks against it, and
// requests that wait there are no answers.
func TestDecisionFollowsCost(t *testing.T) {
	type state struct {
		prompt  int64
		answers int   // in flight on the decode worker
		queued  int   // prompts of 20,000 tokens in flight on the prefill worker
		cached  int64 // mean cached tokens of a request
	}
	for _, c := range []struct {
		state
		want string
	}{
		{state{prompt: 50}, HandoverLocal},
		{state{prompt: 50, answers: 1}, HandoverLocal},
		{state{prompt: 4000}, HandoverLocal},
		{state{prompt: 4000, cached: 4000}, HandoverRemote},
		{state{prompt: 4000, answers: 1}, HandoverRemote},
		{state{prompt: 4000, answers: 10}, HandoverRemote},
		{state{prompt: 30_000, answers: 10}, HandoverRemote},
		{state{prompt: 4000, answers: 1, queued: 3}, HandoverLocal},
		{state{prompt: 4000, answers: 60, queued: 1}, HandoverRemote},
		{state{prompt: 4000, answers: 60, queued: 4}, HandoverLocal}, // a long wait helps no answer
	} {
		p := pairs(AutoThreshold, map[string]Stages{"p1": StagePrefill, "d1": StageWhole | StageDecode})
		p.traffic.cached.mean = float64(c.cached)
		for range c.queued {
			if err := p.bookPrefill(&Lease{}, long(20_000), nil); err != nil {
				t.Fatal(err)
			}
		}
		for range c.answers {
			l, err := p.Acquire(&Request{Now: start, PromptTokens: 1, OutputTokens: 100, Stream: true, Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			l.Answered(start, nil)
		}
		r := long(c.prompt)
		if _, err := p.Acquire(r); err != nil {
			t.Fatal(err)
		}
		d := r.Record.Handover
		if d.Decision != c.want || d.Why != HandoverCost || d.Local <= 0 || d.Remote <= 0 ||
			(d.Remote < d.Local) != (c.want == HandoverRemote) {
			t.Errorf("%+v: %+v", c.state, d)
		}
	}
}

// TestGatesOfBothStages: a refusal by either gate leaves nothing booked, and the other one gets no outcome of a
// worker.
func TestGatesOfBothStages(t *testing.T) {
	for name, refusing := range map[string]string{"prefill": "p1", "decode": "d1"} {
		gates := map[string]*recordingGate{}
		var members []Member
		for _, id := range []string{"p1", "p2", "d1", "d2"} {
			gates[id] = &recordingGate{refuse: id == refusing}
			members = append(members, Member{ID: id, Weight: 1, Stages: fleet()[id], Gate: gates[id]})
		}
		p := poolOf(members...)
		p.SetHandover(&Handover{Policy: leastLoad{}, Threshold: 1})
		l, err := p.Acquire(long(4000))
		if err != nil || l.Prefill() == nil || l.Worker().ID() == refusing || l.Prefill().Worker().ID() == refusing {
			t.Fatalf("%s: %v, %s after %s", name, err, l.Worker().ID(), l.Prefill().Worker().ID())
		}
		l.Release(Result{At: start, Err: ErrExcluded})
		wantBooks(t, p, "p1 0 0 0, p2 0 0 0, d1 0 0 0, d2 0 0 0")
		for id, g := range gates {
			accepted := g.asked
			if g.refuse {
				accepted = 0
			}
			if len(g.outcomes) != accepted {
				t.Errorf("%s: the gate of %s was asked %d times and has %d outcomes", name, id, g.asked, len(g.outcomes))
			}
			for _, err := range g.outcomes {
				if !errors.Is(err, ErrExcluded) {
					t.Errorf("%s: the gate of %s has %v", name, id, err)
				}
			}
		}
	}
}

// TestFullPrefillWorkersMakeOnlyStrictRequestsWait: a decode worker that can compute prompts does it.
func TestFullPrefillWorkersMakeOnlyStrictRequestsWait(t *testing.T) {
	for name, stages := range map[string]Stages{"strict": StageDecode, "not strict": StageWhole | StageDecode} {
		p := poolOf(Member{ID: "p1", Weight: 1, Stages: StagePrefill, MaxInflight: 1},
			Member{ID: "d1", Weight: 1, Stages: stages})
		p.SetHandover(&Handover{Policy: leastLoad{}, Threshold: 1})
		first, err := p.Acquire(long(4000))
		if err != nil || first.Prefill() == nil {
			t.Fatal(err, first.Prefill())
		}
		second, err := p.Acquire(long(4000))
		if strictly := stages == StageDecode; strictly != errors.Is(err, ErrFull) || !strictly && second.Prefill() != nil {
			t.Errorf("%s: %v, prefill %v", name, err, second.Prefill())
		}
	}
}

// TestRetryOfThePrefillStage books another prefill worker, and PrefillLocally none.
func TestRetryOfThePrefillStage(t *testing.T) {
	p := pairs(1, fleet())
	r := long(4000)
	l, err := p.Acquire(r)
	if err != nil {
		t.Fatal(err)
	}
	failed := l.Prefill()
	failed.Release(Result{At: start, Err: errors.New("it answered 500")})
	if err := p.RetryPrefill(r, &l); err != nil || l.Prefill().Worker().ID() != "p2" {
		t.Fatalf("%v", err)
	}
	wantBooks(t, p, "p1 0 0 0, p2 1 4000 1, d1 1 0 50, d2 0 0 0")
	if err := p.RetryPrefill(r, &l, failed.Worker()); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a third prefill worker: %v", err)
	}
	if err := l.PrefillLocally(start); err != nil || l.Prefill() != nil || l.HandedOver() {
		t.Errorf("locally: %v", err)
	}
	wantBooks(t, p, "p1 0 0 0, p2 0 0 0, d1 1 4000 50, d2 0 0 0")
	l.Answered(start.Add(time.Second), nil)
	l.Release(Result{At: start.Add(2 * time.Second), PromptTokens: 4000, OutputTokens: 50})
	wantBooks(t, p, "p1 0 0 0, p2 0 0 0, d1 0 0 0, d2 0 0 0")

	q := pairs(1, strict())
	m, err := q.Acquire(long(4000))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.PrefillLocally(start); !errors.Is(err, ErrNotWhole) {
		t.Errorf("a decode worker that cannot: %v", err)
	}
	m.Release(Result{At: start, Err: ErrExcluded})
	wantBooks(t, q, "p1 0 0 0, p2 0 0 0, d1 0 0 0, d2 0 0 0")
}

// TestDecodeStageTeachesNoPrefill: its first token shows the transfer, its cached tokens are another worker's work, and
// the one token of the prefill stage is no answer.
func TestDecodeStageTeachesNoPrefill(t *testing.T) {
	p := pairs(1, fleet())
	now := start
	for range 50 {
		r := long(20_000)
		r.Now = now
		l, err := p.Acquire(r)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * time.Second)
		l.Prefill().Answered(now, nil)
		l.Begin(now)
		now = now.Add(200 * time.Millisecond)
		l.Prefill().Release(Result{At: now, PromptTokens: 20_000, OutputTokens: 1})
		l.Answered(now, nil)
		now = now.Add(time.Second)
		l.Release(Result{At: now, PromptTokens: 20_000, CachedTokens: 19_999, OutputTokens: 101})
	}
	e := p.Estimates()
	if rate := e.Workers[0].Rate; rate.Count == 0 || rate.Value < 9_000 || rate.Value > 11_000 {
		t.Errorf("the prefill rate is %+v, want about 10,000 tokens/s", rate)
	}
	if rate := e.Workers[2].Rate; rate.Count != 0 {
		t.Errorf("a decode worker has a prefill rate: %+v", rate)
	}
	if e.OutputTokens.Value < 90 {
		t.Errorf("an answer has %.0f tokens, want about 100", e.OutputTokens.Value)
	}
	if got := p.handover.transfer.seconds(20_000); got < 0.15 || got > 0.2 {
		t.Errorf("a transfer of 20,000 tokens takes %.3f s, want about 0.18", got)
	}
}

// TestSilenceOfTheDecodeStageBeginsWithIt: a decode worker owes nothing while the prompt is computed.
func TestSilenceOfTheDecodeStageBeginsWithIt(t *testing.T) {
	p := pairs(1, fleet())
	l, err := p.Acquire(long(4000))
	if err != nil {
		t.Fatal(err)
	}
	later := start.Add(time.Minute)
	if l.Overdue(later) || !l.Prefill().Overdue(later) {
		t.Errorf("after a minute of prefill: decode overdue %v, prefill %v", l.Overdue(later), l.Prefill().Overdue(later))
	}
	l.Prefill().Answered(later, nil)
	l.Begin(later)
	if l.Overdue(later.Add(time.Second)) || !l.Overdue(later.Add(time.Minute)) {
		t.Error("the silence of the decode stage does not begin with it")
	}
}

// TestParallelDecodeStageIsNotOverdueDuringPrefill: a decode worker that gets the request at once with the prefill
// worker is overdue only after the predicted time of both stages.
func TestParallelDecodeStageIsNotOverdueDuringPrefill(t *testing.T) {
	p := pairs(1, fleet())
	l, err := p.Acquire(long(100_000)) // about 13 s
	if err != nil {
		t.Fatal(err)
	}
	l.Begin(start)
	both, later := l.Prefill().Expected(), start
	for ; !l.Prefill().Overdue(later); later = later.Add(time.Second) {
		if l.Overdue(later) {
			t.Fatalf("overdue after %v, with a prefill of %v", later.Sub(start), both)
		}
	}
	if !l.Overdue(later.Add(10 * time.Second)) {
		t.Error("the decode worker is not overdue after both")
	}
}

// TestStagesEndAtZero runs requests through random ends of both stages.
func TestStagesEndAtZero(t *testing.T) {
	for i := range fixedseed.Samples(200, 5000) {
		seed := uint64(i)
		rng := rand.New(rand.NewPCG(seed, 36))
		stages := []map[string]Stages{fleet(), strict(), {"p1": StagePrefill, "d1": allStages, "both": allStages}}[seed%3]
		p := pairs([]int64{AutoThreshold, 1, 500}[rng.IntN(3)], stages)
		var open []*Lease
		now := start
		for range 60 {
			now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
			r := long(int64(rng.IntN(8000)))
			r.Now, r.Stream, r.Record = now, rng.IntN(3) > 0, nil
			if rng.IntN(2) == 0 || len(open) == 0 {
				if l, err := p.Acquire(r); err == nil {
					open = append(open, &l)
				}
				continue
			}
			at := rng.IntN(len(open))
			l := open[at]
			switch rng.IntN(7) {
			case 0:
				if pre := l.Prefill(); pre != nil {
					pre.Answered(now, nil)
					l.Begin(now)
				}
			case 1:
				if pre := l.Prefill(); pre != nil {
					pre.Release(Result{At: now, PromptTokens: 1000, OutputTokens: 1})
				}
			case 2:
				if pre := l.Prefill(); pre != nil {
					pre.Release(Result{At: now, Err: errors.New("failed")})
					_ = p.RetryPrefill(r, l) // none may be left
				}
			case 3:
				_ = l.PrefillLocally(now) // its worker may not be able to
			case 4:
				l.Answered(now, nil)
			case 5:
				l.Cut(now)
				l.Unbook()
			case 6:
				l.Release(Result{At: now, Err: []error{nil, ErrExcluded, errors.New("failed")}[rng.IntN(3)], PromptTokens: 100})
				open = append(open[:at], open[at+1:]...)
			}
		}
		for _, l := range open {
			l.Release(Result{At: now, Err: ErrExcluded})
		}
		for _, v := range p.Snapshot(now) {
			if v.Inflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 || v.TokensInflight != 0 {
				t.Fatalf("seed %d: %s keeps %+v", seed, v.ID, v)
			}
		}
		for _, w := range p.workers {
			if w.costs.first != nil || len(w.silences.waiting) != 0 || w.streams != 0 || w.answering != 0 ||
				len(w.prefillEnds) != 0 || w.assumedCached != 0 || w.prefixBookings != 0 {
				t.Fatalf("seed %d: %s is left with a prefill, a silence or a stream", seed, w.id)
			}
		}
	}
}

// TestPoolAfterAHandoverBehavesLikeAPlainPool: records and leases have no hand-over.
func TestPoolAfterAHandoverBehavesLikeAPlainPool(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
	p.SetHandover(&Handover{Policy: leastLoad{}, Threshold: 1})
	p.SetHandover(nil)
	r := long(4000)
	l, err := p.Acquire(r)
	if err != nil || l.Prefill() != nil || r.Record.Handover != nil || r.Record.Candidates[0].Stages != 0 {
		t.Errorf("%v, %+v", err, r.Record)
	}
	if err := p.RetryPrefill(r, &l); !errors.Is(err, ErrNoWorker) {
		t.Errorf("RetryPrefill without a hand-over: %v", err)
	}
}

// TestRedecideHandoverRepeatsTheDecision by its record, and follows another threshold.
func TestRedecideHandoverRepeatsTheDecision(t *testing.T) {
	for _, prompt := range []int64{50, 4000, 60_000} {
		p := pairs(AutoThreshold, fleet())
		r := long(prompt)
		if _, err := p.Acquire(r); err != nil {
			t.Fatal(err)
		}
		was := r.Record.Handover
		again := func(h Handover) HandoverChoice {
			d, known := RedecideHandover(&h, r.Record, 0, 0, 0, nil, start)
			if !known {
				t.Errorf("%d tokens: not known", prompt)
			}
			return d
		}
		if d := again(Handover{first{}, AutoThreshold}); d.Decision != was.Decision || d.Worker != was.Worker ||
			math.Abs(d.Local-was.Local) > 1e-9 || math.Abs(d.Remote-was.Remote) > 1e-9 {
			t.Errorf("%d tokens: %+v, was %+v", prompt, d, was)
		}
		if d := again(Handover{first{}, 1}); d.Decision != HandoverRemote || d.Why != HandoverThreshold {
			t.Errorf("%d tokens with a threshold of 1: %+v", prompt, d)
		}
		if d := again(Handover{first{}, 0}); d.Decision != HandoverLocal {
			t.Errorf("%d tokens with a threshold of 0: %+v", prompt, d)
		}
		r.Record.Handover = nil
		if _, known := RedecideHandover(&Handover{first{}, 1}, r.Record, 0, 0, 0, nil, start); known {
			t.Error("a hand-over is decided without the prefill workers")
		}
	}
}

func TestStagesAreWords(t *testing.T) {
	for s, want := range map[Stages]string{0: `""`, StageWhole: `"whole"`, StageWhole | StageDecode: `"whole,decode"`,
		allStages: `"whole,prefill,decode"`} {
		text, err := json.Marshal(s)
		var back Stages
		if err != nil || string(text) != want || json.Unmarshal(text, &back) != nil || back != s {
			t.Errorf("%d is %s, and back %d", s, text, back)
		}
	}
	var s Stages
	if err := s.UnmarshalText([]byte("decode,cook")); err == nil {
		t.Error("an unknown word is read")
	}
}

// TestExplainedHandoverNamesBothPicks: the prefill worker with its reason, and the members that serve no such stage.
func TestExplainedHandoverNamesBothPicks(t *testing.T) {
	p := pairs(1, fleet())
	o, err := p.Preview(long(4000), nil)
	h := o.Choice.Handover
	if err != nil || h == nil || h.Decision != HandoverRemote || h.Worker != "p1" || h.Reason == "" ||
		h.Prefill.Seen != 2 {
		t.Fatalf("%v, %+v", err, h)
	}
	for name, all := range map[string][]Excluded{"p1 p2": o.Excluded, "d1 d2": o.PrefillExcluded} {
		if len(all) != 2 || all[0].Worker+" "+all[1].Worker != name || all[0].Why != ExcludedRole {
			t.Errorf("%+v, want %s by their role", all, name)
		}
	}
	r := long(4000)
	if _, err := p.Acquire(r); err != nil || r.Record.Handover.Reason != h.Reason {
		t.Errorf("%v, the record has the reason %q, want %q", err, r.Record.Handover.Reason, h.Reason)
	}
}

// TestWholeRequestForLackOfAPrefillWorkerSaysSo in the record and in an explanation.
func TestWholeRequestForLackOfAPrefillWorkerSaysSo(t *testing.T) {
	p := pairs(1, map[string]Stages{"d1": StageDecode, "both": StageWhole})
	r := long(4000)
	o, err := p.Preview(r, nil)
	if err != nil || o.Worker != "both" || o.Choice.Handover.Why != HandoverNoPrefill {
		t.Errorf("%v, %+v", err, o.Choice.Handover)
	}
	if l, err := p.Acquire(r); err != nil || l.Worker().ID() != "both" || r.Record.Handover.Why != HandoverNoPrefill {
		t.Errorf("%v, %+v", err, r.Record.Handover)
	}
}
