package routing

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// turns returns the workers of the next n turns as letters: a, b, c for w0, w1, w2.
func turns(p *weightedRoundRobin, n int, ws []View) string {
	var s strings.Builder
	for range n {
		i, _ := p.Pick(&Request{}, ws)
		s.WriteByte('a' + byte(ws[i].ID[1]-'0'))
	}
	return s.String()
}

func TestWeightedTurnsAreSpread(t *testing.T) {
	for _, c := range []struct {
		weights []int
		want    string
	}{
		{[]int{5, 1, 1}, "aabacaaaabacaa"},
		{[]int{1, 1, 1}, "abcabc"},
		{[]int{2, 1}, "abaaba"},
		{[]int{3, 2}, "ababaababa"},
		{[]int{7}, "aaa"},
	} {
		if got := turns(&weightedRoundRobin{}, len(c.want), weighted(c.weights...)); got != c.want {
			t.Errorf("weights %v go %s, want %s", c.weights, got, c.want)
		}
	}
	if _, reason := (&weightedRoundRobin{}).Pick(&Request{}, weighted(1)); reason != ReasonWeightedRoundRobin {
		t.Errorf("the reason is %q", reason)
	}
}

// Over a period each worker has exactly its weight in turns, and within it never more than its share,
// rounded up.
func TestWeightedTurnsAreExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 8).Draw(rt, "weights")
		period, ws, p := 0, weighted(weights...), &weightedRoundRobin{}
		for _, w := range weights {
			period += w
		}
		got := make([]int, len(weights))
		for turn := 1; turn <= 2*period; turn++ {
			i, _ := p.Pick(&Request{}, ws)
			got[i]++
			if share := float64(turn*weights[i]) / float64(period); float64(got[i]) >= share+1 {
				rt.Fatalf("after %d turns of weights %v worker %d has %d, its share is %.2f", turn, weights, i, got[i], share)
			}
			if turn == period && !slices.Equal(got, weights) {
				rt.Fatalf("weights %v had %v turns in a period", weights, got)
			}
		}
	})
}

func TestWeightedTurnsSurviveChangingMembers(t *testing.T) {
	p := &weightedRoundRobin{}
	all := weighted(4, 1, 1)
	turns(p, 6, all)
	// Who joins waits for its turn like the others, and does not get all.
	joined := weighted(4, 1, 1, 3)
	if got := turns(p, 18, joined); strings.Count(got, "d") != 6 || strings.Contains(got, "ddd") {
		t.Errorf("a newcomer of weight 3 in 9 goes %s", got)
	}
	// Who leaves leaves its turns to the others by their weight.
	left := turns(p, 12, all)
	if strings.Count(left, "a") < 7 || strings.Count(left, "b") < 1 || strings.Count(left, "c") < 1 {
		t.Errorf("without it they go %s", left)
	}
	// Who is away for a while neither gains by it nor loses.
	alone := []View{all[0]}
	turns(p, 1000, alone)
	if got := turns(p, 60, all); strings.Count(got, "a") != 40 || strings.Contains(got, "bb") ||
		strings.Contains(got, "cc") {
		t.Errorf("after a long time apart they go %s", got)
	}
	// A debt of a time of high weights does not outlive it.
	p = &weightedRoundRobin{}
	turns(p, 1, weighted(1_000_000, 1_000_000))
	if got := turns(p, 40, weighted(1, 1)); strings.Count(got, "a") < 16 || strings.Count(got, "b") < 16 {
		t.Errorf("after other weights they go %s", got)
	}
}

// A new member begins with the mean credit of the present ones.
func TestNewMembersTurnIsThatOfAPresentMember(t *testing.T) {
	p, all := &weightedRoundRobin{}, weighted(slices.Repeat([]int{100}, 11)...)
	if got := turns(p, 9, all[:10]); got != "abcdefghi" {
		t.Fatalf("ten equal ones go %s", got)
	}
	if got := turns(p, 4, all[9:]); got != "jbjb" { // w9 and w10
		t.Errorf("with the worker that has the turn, the new member gets %s", got)
	}
}

// While other members come and go, a worker that stays gets nearly its share of the turns.
func TestWeightedTurnsStarveNoStayingWorker(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 5), 2, 6).Draw(rt, "weights")
		all, p, waited, sum := weighted(weights...), &weightedRoundRobin{}, 0, 0
		for _, w := range weights {
			sum += w
		}
		for range 200 {
			var ws []View
			for i := range all {
				if i == 0 || rapid.Bool().Draw(rt, "eligible") {
					ws = append(ws, all[i])
				}
			}
			if i, _ := p.Pick(&Request{}, ws); i == 0 {
				waited = 0
			} else if waited++; waited > 4*sum {
				rt.Fatalf("weights %v: the first waited %d turns", weights, waited)
			}
		}
	})
}

func TestReusedIndexIsANewWorker(t *testing.T) {
	p := &weightedRoundRobin{}
	turns(p, 3, weighted(5, 1, 1))
	other := weighted(1, 1, 1)
	for i := range other {
		other[i].ID = string("xyz"[i]) + "0"
	}
	var got [3]int
	for range 9 {
		i, _ := p.Pick(&Request{}, other)
		got[i]++
	}
	if got != [3]int{3, 3, 3} {
		t.Errorf("three new workers in old places had %v turns", got)
	}
	if len(p.accounts) != 3 {
		t.Errorf("%d accounts for 3 members", len(p.accounts))
	}
}

// The random policy depends on the request's number only and is even for any weights and loads.
func TestRandomIsEven(t *testing.T) {
	ws := weighted(1, 100, 7, 1, 1)
	ws[0].OutputTokens, ws[3].Inflight = 1<<40, 99
	got := make([]int, len(ws))
	for k := range uint64(1000) {
		r := &Request{Rand: k * (math.MaxUint64 / 1000)}
		i, reason := random{}.Pick(r, ws)
		if again, _ := (random{}).Pick(r, ws); again != i || reason != ReasonRandom {
			t.Fatalf("one number gave %d and %d (%s)", i, again, reason)
		}
		got[i]++
	}
	if slices.Max(got) > 201 || slices.Min(got) < 199 {
		t.Errorf("1000 even numbers went %v", got)
	}
	if i, _ := (random{}).Pick(&Request{Rand: math.MaxUint64}, ws); i != 4 {
		t.Errorf("the greatest number went to %d", i)
	}
}

func TestPowerOfTwoTakesTheLessLoadedOfTwo(t *testing.T) {
	// Of three with different loads, the most loaded one is never taken, because
	// two are drawn and they are not the same one.
	ws := weighted(1, 1, 1)
	ws[1].OutputTokens, ws[2].PendingTokens = 100, 200
	d, got := rng(9), make([]int, 3)
	for range 9000 {
		i, reason := powerOfTwo{}.Pick(&Request{Rand: d.next()}, ws)
		if reason != ReasonPowerOfTwo {
			t.Fatalf("the reason is %q", reason)
		}
		got[i]++
	}
	// The least loaded one is drawn in two of three pairs.
	if got[2] != 0 || math.Abs(float64(got[0])/9000-2./3) > 0.02 {
		t.Errorf("9000 requests went %v", got)
	}
	// Load is for each unit of weight.
	ws = weighted(10, 1)
	ws[0].OutputTokens, ws[1].OutputTokens = 900, 100
	for range 100 {
		if i, _ := (powerOfTwo{}).Pick(&Request{Rand: d.next()}, ws); i != 0 {
			t.Fatal("90 tokens for a unit of weight were passed for 100")
		}
	}
	if i, _ := (powerOfTwo{}).Pick(&Request{Rand: d.next()}, weighted(3)); i != 0 {
		t.Error("one worker alone is not taken")
	}
}

func TestPowerOfTwoDrawsByWeight(t *testing.T) {
	d, got := rng(11), make([]int, 3)
	const n = 12_000
	for range n {
		i, _ := powerOfTwo{}.Pick(&Request{Rand: d.next()}, weighted(1, 2, 3))
		got[i]++
	}
	for i, count := range got {
		if fair := float64(i+1) / 6; math.Abs(float64(count)/n-fair) > 0.015 {
			t.Errorf("idle workers of weights 1, 2, 3 had %v of %d requests", got, n)
		}
	}
	// The second of a pair is drawn by weight among those that are left: with the
	// third loaded most, the first has what it is drawn with the third for.
	ws := weighted(1, 2, 3)
	ws[0].OutputTokens, ws[1].OutputTokens, ws[2].OutputTokens = 1, 0, 1<<40
	clear(got)
	for range n {
		i, _ := powerOfTwo{}.Pick(&Request{Rand: d.next()}, ws)
		got[i]++
	}
	// Pairs of 0 and 2: 1/6·3/5 + 3/6·1/3.
	if want := 1./6*3/5 + 3./6*1/3; got[2] != 0 || math.Abs(float64(got[0])/n-want) > 0.015 {
		t.Errorf("the first has %d of %d requests, want %.0f", got[0], n, want*n)
	}
}
