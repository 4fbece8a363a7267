package routing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAnEstimateGoesFromItsPriorToItsSamples(t *testing.T) {
	e := estimator{limits: limits{100, 1, 1e6}}
	if got := e.value(100); got != 100 {
		t.Errorf("without samples it is %v", got)
	}
	for range 20 {
		e.learn(300)
	}
	if got := e.value(100); math.Abs(got-200) > 1e-9 {
		t.Errorf("with 20 samples it is %v, want half way", got)
	}
	for range 10000 {
		e.learn(300)
	}
	if got := e.value(100); math.Abs(got-300) > 1 {
		t.Errorf("with very many samples it is %v", got)
	}
	for range 100 {
		e.learn(50)
	}
	if got := e.value(100); math.Abs(got-50) > 25 {
		t.Errorf("100 samples after a change to 50 it is %v", got)
	}
}

func TestAnOutlierHardlyMovesAnEstimate(t *testing.T) {
	e := estimator{limits: limits{100, 1, 1e6}}
	for range 100 {
		e.learn(100)
	}
	for _, absurd := range []float64{1e300, math.Inf(1), math.NaN(), -5, 0, math.SmallestNonzeroFloat64} {
		before := e.mean
		if e.learn(absurd); math.Abs(e.mean/before-1) > 0.1 {
			t.Errorf("%v moved the mean from %v to %v", absurd, before, e.mean)
		}
	}
}

func TestEstimatesStayInTheirBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := estimator{limits: rateLimits}
		for range 50 {
			e.learn(rapid.Float64().Draw(rt, "sample"))
			if v := e.value(rapid.Float64Range(rateLimits.floor, rateLimits.ceiling).Draw(rt, "prior")); !(v >= e.floor &&
				v <= e.ceiling) {
				rt.Fatalf("the value is %v", v)
			}
		}
	})
}

func TestMedianWithoutAnElement(t *testing.T) {
	for _, c := range []struct {
		sorted  []float64
		without int
		want    float64
	}{
		{nil, -1, 0}, {[]float64{5}, 0, 0}, {[]float64{5}, -1, 5}, {[]float64{1, 3}, -1, 2},
		{[]float64{1, 3, 9}, -1, 3}, {[]float64{1, 3, 9}, 0, 6}, {[]float64{1, 3, 9}, 1, 5}, {[]float64{1, 3, 9}, 2, 2},
		{[]float64{1, 2, 3, 4}, 1, 3},
	} {
		if got := medianWithout(c.sorted, c.without); got != c.want {
			t.Errorf("the median of %v without %d is %v, want %v", c.sorted, c.without, got, c.want)
		}
	}
}

// engine answers a stream with that prefill rate and time per token.
func engine(t *testing.T, p *Pool, now time.Time, prompt int64, rate float64, token time.Duration) {
	t.Helper()
	l, err := p.Acquire(&Request{Now: now, PromptTokens: p.Learned().PromptTokens(prompt), OutputTokens: 10, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	first := now.Add(firstStep + seconds(float64(l.ahead)/rate))
	l.Answered(first, nil)
	l.Release(Result{At: first.Add(99 * token), OutputTokens: 100, PromptTokens: prompt, Text: true})
}

func TestAWorkersSpeedIsLearned(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	for range 2000 {
		engine(t, p, start, 4000, 2000, 50*time.Millisecond)
	}
	v := p.Snapshot(start)[0]
	w := p.workers[0]
	if math.Abs(v.Rate-2000) > 100 || w.learned[prefillRate].count != 2000 ||
		math.Abs(w.value[tokenTime]-0.050) > 0.001 || w.learned[tokenTime].count != 2000 {
		t.Errorf("learned %+v, %+v, %+v", v, w.value, w.learned)
	}
	e := p.Estimates()
	if math.Abs(e.OutputTokens.Value-100) > 5 || p.Learned().OutputTokens(0) != int64(math.Round(e.OutputTokens.Value)) ||
		p.Learned().OutputTokens(7) != 7 || math.Abs(e.Rate-2000) > 100 {
		t.Errorf("learned %+v", e)
	}
	p.Configure(leastLoad{}, []Member{{ID: "a", Weight: 3}})
	if after := p.Snapshot(start)[0]; after.Rate != v.Rate || p.workers[0].learned[prefillRate].count != 2000 {
		t.Errorf("a reload forgot: %+v", after)
	}
}

func TestCachedTokensDoNotTeachTheRate(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	for range 200 {
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 20000, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		first := start.Add(firstStep + 500*time.Millisecond) // 4,000 of 20,000 tokens at 8,000/s
		l.Answered(first, nil)
		l.Release(Result{At: first, PromptTokens: 20000, CachedTokens: 16000})
	}
	v, samples := p.Snapshot(start)[0], p.workers[0].learned[prefillRate].count
	if math.Abs(v.Rate-8000) > 100 || samples != 200 {
		t.Errorf("learned %v from %d samples", v.Rate, samples)
	}
}

func TestUnusableAnswersTeachNothing(t *testing.T) {
	ok := Result{At: start.Add(time.Minute), OutputTokens: 100}
	for name, c := range map[string]struct {
		r        Request
		answered time.Time
		o        Result
	}{
		"a short prompt": {Request{PromptTokens: 999, Stream: true}, start.Add(time.Second), Result{}},
		"a whole answer": {Request{PromptTokens: 9999}, start.Add(time.Second), ok},
		"no time":        {Request{PromptTokens: 9999, Stream: true}, time.Time{}, ok},
		"a clock that went back": {Request{PromptTokens: 9999, Stream: true}, start.Add(-time.Second),
			Result{At: start.Add(-time.Minute), OutputTokens: 100}},
		"a short answer": {Request{PromptTokens: 9, Stream: true}, start.Add(time.Second),
			Result{At: start.Add(time.Minute), OutputTokens: 15}},
		"an answer that broke off": {Request{PromptTokens: 9, Stream: true}, start.Add(time.Second),
			Result{At: start.Add(time.Minute), OutputTokens: 100, Err: ErrExcluded}},
	} {
		p := poolOf(Member{ID: "a", Weight: 1})
		c.r.Now = start
		l, err := p.Acquire(&c.r)
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(c.answered, nil)
		l.Release(c.o)
		if l := p.workers[0].learned; l[prefillRate].count != 0 || l[tokenTime].count != 0 {
			t.Errorf("%s taught %+v", name, l)
		}
	}
}

func TestPromptScaleConverges(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	for range 3000 {
		l, err := p.Acquire(&Request{Now: start, PromptTokens: p.Learned().PromptTokens(1000), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Release(Result{PromptTokens: 1700, Text: true})
	}
	if got := p.Learned().PromptTokens(1000); got < 1690 || got > 1710 {
		t.Errorf("1,000 estimated tokens are %d, the engine counts 1,700", got)
	}
	if got := p.Learned().PromptTokens(0); got != 0 {
		t.Errorf("no prompt has %d tokens", got)
	}
	l, err := p.Acquire(&Request{Now: start, PromptTokens: 1000})
	if err != nil {
		t.Fatal(err)
	}
	l.Release(Result{PromptTokens: 99999}) // with an image
	if n := p.Estimates().PromptScale.Count; n != 3000 {
		t.Errorf("%d samples of text, want 3000", n)
	}
}

func TestNewWorkerStartsWithTheMedianOfItsPeers(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}, {ID: "c", Weight: 1}}
	p := poolOf(members...)
	p.Configure(&roundRobin{last: -1}, members)
	for i := range 600 {
		engine(t, p, start, 4000, []float64{1000, 2000, 30000}[i%3], 80*time.Millisecond)
	}
	p.Configure(&roundRobin{last: -1}, append(members, Member{ID: "new", Weight: 1}))
	v, w := p.Snapshot(start)[3], p.workers[3]
	if math.Abs(v.Rate-2000) > 100 || w.learned[prefillRate].count != 0 || math.Abs(w.value[tokenTime]-0.080) > 0.004 {
		t.Errorf("the new one is taken for %v tokens/s and %v s a token", v.Rate, w.value[tokenTime])
	}
}

// A worker that joins seven known ones gets 50 to 150 % of its share in its first minute, under every
// policy. Short answers and steady arrivals keep a random policy within a tenth; a hash gives a
// worker the share of its part of the ring.
func TestNewWorkerGetsItsShare(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			policy, err := New(Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			joins(t, policy)
		})
	}
}

// joins adds a worker to seven under that policy.
func joins(t *testing.T, policy Policy) {
	var members []Member
	for i := range 8 {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
	}
	p := poolOf(members[:7]...)
	p.Configure(policy, members[:7])
	type flight struct {
		l           *Lease
		first, last time.Time
	}
	var flying []flight
	got, all, rand := 0, 0, uint64(1)
	for i := range 4000 { // 50 requests a second for 80 seconds, of which the newcomer sees 60
		now := start.Add(time.Duration(i) * 20 * time.Millisecond)
		if i == 1000 {
			p.Configure(policy, members)
			p.Observe("w7", nil, Status{Up: true})
		}
		rest := flying[:0]
		for _, f := range flying {
			if !now.Before(f.first) {
				f.l.Answered(f.first, nil)
			}
			if now.Before(f.last) {
				rest = append(rest, f)
				continue
			}
			f.l.Release(Result{At: f.last, PromptTokens: 2000, OutputTokens: 100, Text: true})
		}
		flying = rest
		rand = rand*6364136223846793005 + 1442695040888963407
		blocks := prompt(int(rand>>33%997), 0, 8)
		l, err := p.Acquire(&Request{
			Now: now, Rand: rand ^ rand>>29, Prefix: blocks[0].Hash, Blocks: blocks, Model: 1,
			PromptTokens: p.Learned().PromptTokens(2000), OutputTokens: p.Learned().OutputTokens(0), Stream: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		first := now.Add(firstStep + seconds(float64(l.ahead)/20000))
		flying = append(flying, flight{&l, first, first.Add(99 * 10 * time.Millisecond)})
		if i >= 1000 {
			if all++; l.Worker().ID() == "w7" {
				got++
			}
		}
	}
	if fair := float64(all) / 8; float64(got) < fair/2 || float64(got) > fair*3/2 {
		t.Errorf("it got %d of %d requests, fair were %.0f", got, all, fair)
	}
	for _, f := range flying {
		f.l.Release(Result{})
	}
	noChains(t, p)
}
