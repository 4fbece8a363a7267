package routing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// answers makes a pool learn n answers whose lengths draw gives.
func answers(t testing.TB, p *Pool, n int, draw func() int64) {
	t.Helper()
	r := Request{Now: time.Unix(1, 0), OutputTokens: 1}
	for range n {
		l, err := p.Acquire(&r)
		if err != nil {
			t.Fatal(err)
		}
		l.Release(Result{At: r.Now, OutputTokens: draw()})
	}
}

// longPool is a pool of one worker that is up.
func longPool() *Pool {
	p := NewPool(leastLoad{}, []Member{{ID: "a", Weight: 1}})
	p.Observe("a", nil, Status{Up: true})
	return p
}

func TestOutputP90IsThePriorUntilThereAreSamples(t *testing.T) {
	p := longPool()
	answers(t, p, outputP90Samples-1, func() int64 { return 40 })
	for bound, want := range map[int64]int64{0: 512, -1: 512, 100: 100, 512: 512, 4096: 512} {
		if got := p.Learned().OutputP90(bound); got != want {
			t.Errorf("OutputP90(%d) is %d, want %d", bound, got, want)
		}
	}
	answers(t, p, 1, func() int64 { return 40 })
	if got := p.Learned().OutputP90(0); got < 36 || got > 44 {
		t.Errorf("after 20 answers of 40 tokens it is %d", got)
	}
}

// distributions are lengths of answers, with their true nine tenths.
func distributions(r *rand.Rand) map[string]struct {
	draw func() int64
	want float64
} {
	type d = struct {
		draw func() int64
		want float64
	}
	return map[string]d{
		"one length":   {func() int64 { return 700 }, 700},
		"by chance":    {func() int64 { return 1 + int64(r.ExpFloat64()*300) }, 300 * math.Log(10)},
		"even":         {func() int64 { return 1 + r.Int64N(1000) }, 900},
		"log-normal":   {func() int64 { return 1 + int64(math.Exp(5+r.NormFloat64())) }, math.Exp(5 + 1.2816)},
		"a few longer": {func() int64 { return []int64{50, 4000}[r.IntN(100)/80] }, 4000},
		"the longest":  {func() int64 { return 1 << 40 }, 131072},
		"the shortest": {func() int64 { return 1 }, outputP90Floor},
	}
}

func TestOutputP90ConvergesToTheNinthDecile(t *testing.T) {
	for name := range distributions(nil) {
		t.Run(name, func(t *testing.T) {
			d, p := distributions(rand.New(rand.NewPCG(1, 2)))[name], longPool()
			answers(t, p, 1000, d.draw)
			var off []float64
			for range 200 {
				answers(t, p, 50, d.draw)
				off = append(off, math.Abs(float64(p.Learned().OutputP90(0))/d.want-1))
			}
			slices.Sort(off)
			if middle, bad := off[len(off)/2], off[len(off)*19/20]; middle > 0.10 || bad > 0.25 {
				t.Errorf("off by %.0f %% in the middle and %.0f %% one time in twenty", 100*middle, 100*bad)
			}
		})
	}
}

func TestOutputP90FollowsAChange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	even := func(most int64) func() int64 { return func() int64 { return most/2 + r.Int64N(most/2) } }
	p := longPool()
	answers(t, p, 5000, even(400))
	for _, step := range []struct{ most, within int64 }{{4000, 100}, {400, 600}, {40, 600}} {
		answers(t, p, int(step.within), even(step.most))
		want := 0.95 * float64(step.most)
		if got := float64(p.Learned().OutputP90(0)); got < 0.8*want || got > 1.2*want {
			t.Errorf("%d answers of up to %d tokens later it is %.0f", step.within, step.most, got)
		}
	}
}

func TestOnlyWholeAnswersTeachTheOutputP90(t *testing.T) {
	p := longPool()
	r := Request{Now: time.Unix(1, 0), OutputTokens: 1}
	for range 100 {
		l, err := p.Acquire(&r)
		if err != nil {
			t.Fatal(err)
		}
		l.Release(Result{At: r.Now, OutputTokens: 9000, Err: ErrExcluded})
		l.Release(Result{At: r.Now, OutputTokens: 9000})
	}
	answers(t, p, 100, func() int64 { return 0 })
	if got := p.Learned().OutputP90(0); got != outputP90Prior {
		t.Errorf("it is %d", got)
	}
}

func TestOutputP90AllocatesNothing(t *testing.T) {
	var a outputP90
	p := longPool()
	tokens := int64(0)
	if n := testing.AllocsPerRun(10000, func() { tokens++; a.learn(tokens); p.Learned().OutputP90(7) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOutputP90(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := make([]int64, 1024)
	for i := range lengths {
		lengths[i] = 1 + int64(r.ExpFloat64()*300)
	}
	var a outputP90
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a.learn(lengths[i%len(lengths)])
	}
}
