package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// mixedWorker is a worker under test: its true rate, and the samples of its streams.
type mixedWorker struct {
	rate   float64
	ratios []float64
	warmed bool
	cold   int // prompts
}

// serve sends one stream of 8,000 tokens to the worker and answers as its engine does: cached tokens
// cost nothing, other tokens cost its rate, and the first step is in proportion. A warm prompt is the
// same each time but for 120 tokens that a chat template changes; a cold one is new.
func (m *mixedWorker) serve(t *testing.T, p *Pool, w *Worker, now time.Time, warm bool, reports bool) {
	t.Helper()
	seed := 1
	if !warm {
		m.cold++
		seed += m.cold
	}
	blocks := chat(seed*7+w.index, 1, 32000)
	r := Request{Now: now, Blocks: blocks, PromptTokens: 8000, OutputTokens: 10, Stream: true}
	l, err := p.Acquire(&r, p.workersBut(w)...)
	if err != nil || l.Worker() != w {
		t.Fatalf("not on %s: %v", w.ID(), err)
	}
	computed := 8000.0
	if warm && m.warmed {
		computed = 120 // 40 ms with the first step, at 8,000 tokens/s
	}
	cached := int64(8000 - computed)
	m.warmed = m.warmed || warm
	took := seconds(firstStep.Seconds()*8000/m.rate + computed/m.rate)
	l.Answered(now.Add(took), nil)
	m.ratios = append(m.ratios, w.pace.last().ratio)
	o := Result{At: now.Add(took), PromptTokens: 8000, OutputTokens: 10, Text: true}
	if reports {
		o.CachedTokens = cached
	}
	l.Release(o)
}

func (m *mixedWorker) median() float64 {
	s := slices.Clone(m.ratios[len(m.ratios)/2:])
	slices.Sort(s)
	return s[len(s)/2]
}

// workersBut returns all workers but one.
func (p *Pool) workersBut(w *Worker) []*Worker {
	return slices.DeleteFunc(slices.Clone(p.workers), func(o *Worker) bool { return o == w })
}

// pacedPool returns a pool of workers without bounds.
func pacedPool(workers int) *Pool {
	var members []Member
	for i := range workers {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
	}
	return poolOf(members...)
}

func TestCachedChatsDoNotRaiseTheRate(t *testing.T) {
	for _, reports := range []bool{false, true} {
		p := pacedPool(2)
		ws := []*mixedWorker{{rate: 8000}, {rate: 8000}}
		for i := range 200 {
			now := start.Add(time.Duration(i) * time.Second)
			ws[0].serve(t, p, p.workers[0], now, true, reports)
			ws[1].serve(t, p, p.workers[1], now, false, reports)
		}
		warm, cold := ws[0].median(), ws[1].median()
		if warm/cold > 2 || cold/warm > 2 {
			t.Errorf("reports %v: the warm one takes %.2f of what it should, the cold one %.2f", reports, warm, cold)
		}
		for i, v := range p.Snapshot(start) {
			if v.Rate < 8000/1.5 || v.Rate > 8000*1.5 {
				t.Errorf("reports %v: %s is taken for %.0f tokens/s of 8,000, from %d samples",
					reports, v.ID, v.Rate, p.workers[i].learned[prefillRate].count)
			}
		}
	}
}

func TestSlowWorkerShowsOnCachedAndColdPrompts(t *testing.T) {
	p := pacedPool(2)
	ws := []*mixedWorker{{rate: 8000}, {rate: 1600}}
	for i := range 900 { // enough samples to outweigh the prior
		now := start.Add(time.Duration(i) * time.Second)
		for k, m := range ws {
			m.serve(t, p, p.workers[k], now, i%3 > 0, i%2 == 0)
		}
	}
	if fast, slow := ws[0].median(), ws[1].median(); slow/fast < 3 {
		t.Errorf("the slow one takes %.2f of what it should, the other %.2f", slow, fast)
	}
	for k, v := range p.Snapshot(start) {
		if v.Rate < ws[k].rate/1.5 || v.Rate > ws[k].rate*1.5 {
			t.Errorf("%s is taken for %.0f tokens/s of %.0f", v.ID, v.Rate, ws[k].rate)
		}
	}
}

func TestAssumedCacheTeachesNoRate(t *testing.T) {
	for name, c := range map[string]struct {
		known   int // blocks of 80 that are remembered
		o       Result
		rate    float64 // 0: nothing is learned
		waiting bool    // behind a prompt of which most is only remembered
	}{
		"unknown":                      {0, Result{}, 8000, false},
		"an eighth is known":           {8, Result{}, 7200, false},
		"a quarter is known":           {20, Result{}, 0, false},
		"reported":                     {60, Result{PromptTokens: 8000, CachedTokens: 5600}, 2400, false},
		"counted, not reported":        {60, Result{PromptTokens: 8000}, 0, false},
		"counted, a little known":      {8, Result{PromptTokens: 16000}, 14400, false},
		"unknown, behind a known one":  {0, Result{}, 0, true},
		"reported, behind a known one": {0, Result{PromptTokens: 8000, CachedTokens: 16}, 7985, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(Member{ID: "a", Weight: 1})
			blocks, other := prompt(1, 100, 80), prompt(2, 100, 80)
			if c.known > 0 {
				answer(t, p, Request{Now: start, Blocks: blocks[:c.known], Stream: true})
			}
			if c.waiting {
				answer(t, p, Request{Now: start, Blocks: other, Stream: true})
			}
			if c.waiting {
				if _, err := p.Acquire(&Request{Now: start, Blocks: other, PromptTokens: 8000, Stream: true}); err != nil {
					t.Fatal(err)
				}
			}
			l, err := p.Acquire(&Request{Now: start, Blocks: blocks, PromptTokens: 8000, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			l.Answered(start.Add(firstStep+time.Second), nil)
			l.Release(c.o)
			e := p.workers[0].learned[prefillRate]
			if c.rate == 0 && e.count > 0 || c.rate > 0 && (e.count != 1 || math.Abs(e.mean-c.rate) > 1.5) {
				t.Errorf("learned %.0f tokens/s from %d samples, want %.0f", e.mean, e.count, c.rate)
			}
		})
	}
}

func TestOutcomeIsExpectedAtTheAnswersPredictedTime(t *testing.T) {
	for name, c := range map[string]struct {
		ahead int64 // pending before it
		r     Request
		want  time.Duration
	}{
		"a stream": {0, Request{PromptTokens: 8000, OutputTokens: 100, Stream: true}, firstStep + time.Second},
		"a stream behind others": {16000, Request{PromptTokens: 8000, OutputTokens: 100, Stream: true},
			firstStep + 3*time.Second},
		"a whole answer": {0, Request{PromptTokens: 8000, OutputTokens: 100}, firstStep + time.Second +
			2500*time.Millisecond},
		"one behind others": {16000, Request{PromptTokens: 8000, OutputTokens: 100}, firstStep + 3*time.Second +
			2500*time.Millisecond},
		"nothing to do":     {0, Request{Stream: true}, firstStep},
		"an endless answer": {0, Request{PromptTokens: 8000, OutputTokens: 1 << 40}, maxPrefill},
		"an endless prompt": {0, Request{PromptTokens: 1 << 40, Stream: true}, maxPrefill},
	} {
		g := &recordingGate{}
		p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
		c.r.Now = start
		if c.ahead > 0 {
			if _, err := p.Acquire(&Request{Now: start, PromptTokens: c.ahead, OutputTokens: 9999, Stream: true}); err != nil {
				t.Fatal(err)
			}
		}
		l, err := p.Acquire(&c.r)
		if err != nil {
			t.Fatal(err)
		}
		if (g.expected - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: the outcome is expected after %s, want %s", name, g.expected, c.want)
		}
		l.Release(Result{})
	}
}

func TestPrefixesInFlightAreNotAssumedCached(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	blocks := prompt(1, 100, 80)
	first, err := p.Acquire(&Request{Now: start, Blocks: blocks[:57], Stream: true}) // ends with a landmark
	if err != nil {
		t.Fatal(err)
	}
	first.Answered(start, nil) // its blocks are in use, and remembered as well
	second, err := p.Acquire(&Request{Now: start, Blocks: blocks, PromptTokens: 16000, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	second.Answered(start.Add(firstStep+time.Second), nil)
	second.Release(Result{})
	first.Release(Result{})
	if e := p.workers[0].learned[prefillRate]; e.count != 1 || e.mean != 4600 {
		t.Errorf("learned %.0f tokens/s from %d samples, want 4600", e.mean, e.count)
	}
}
