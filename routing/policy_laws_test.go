package routing_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// policyLaws fails t unless policies made by newPolicy keep the laws of routing:
//
//   - only an eligible worker is chosen, and some worker whenever there is one;
//   - the choice depends on the facts and the given random number only;
//   - bookings return to zero after any history;
//   - no bound is exceeded by any number of goroutines;
//   - neither Acquire nor a round allocates, recorded or not;
//   - a record does not change the pick, and the policy makes the same pick from the record alone;
//   - a preview, also with a draft, shows the same pick and changes nothing.
//
// If the policy plans (routing.Planner), it is shown full workers for requests that can wait, and may
// choose one. newPolicy must return a new policy at each call.
func policyLaws(t *testing.T, newPolicy func() routing.Policy) {
	t.Helper()
	t.Run("AnyHistoryKeepsTheBooks", rapid.MakeCheck(func(rt *rapid.T) { history(rt, newPolicy) }))
	t.Run("ChoiceDependsOnTheFactsAlone", rapid.MakeCheck(func(rt *rapid.T) { choices(rt, newPolicy) }))
	t.Run("RecordsAreThePickItself", rapid.MakeCheck(func(rt *rapid.T) { recorded(rt, newPolicy) }))
	t.Run("BoundsHoldUnderConcurrency", func(t *testing.T) { concurrency(t, newPolicy()) })
	for name, record := range map[string]func() *routing.Choice{
		"": func() *routing.Choice { return nil },
		"Recorded": func() *routing.Choice {
			return &routing.Choice{Candidates: make([]routing.Candidate, 0, routing.MaxCandidates)}
		},
	} {
		t.Run(name+"AcquireAllocatesNothing", func(t *testing.T) { allocations(t, newPolicy(), record) })
		t.Run(name+"RoundsAllocateNothing", func(t *testing.T) { roundAllocations(t, newPolicy(), record) })
	}
}

// failer is the part of *testing.T and *rapid.T that the laws use.
type failer interface {
	Fatalf(format string, args ...any)
}

// witness passes each call to two equal policies, which must agree, and checks views and results.
type witness struct {
	t         failer
	one, twin routing.Policy
	shown     func(*routing.Request, []routing.View) // also called with the facts, unless nil
	last      []routing.View                         // views of the last call
	chose     int                                    // index of the last call
}

// Plans reports whether the policy plans for the request.
func (w *witness) Plans(r *routing.Request) bool {
	p, ok := w.one.(routing.Planner)
	return ok && p.Plans(r)
}

// overlap returns the Overlap of the worker of that ID in the last call.
func (w *witness) overlap(id string) int64 {
	return w.last[slices.IndexFunc(w.last, func(v routing.View) bool { return v.ID == id })].Overlap
}

func newWitness(t failer, newPolicy func() routing.Policy) *witness {
	return &witness{t: t, one: newPolicy(), twin: newPolicy()}
}

// Name returns the policy's name.
func (w *witness) Name() string { return w.one.Name() }

// Pick returns the policy's choice after it has checked the laws.
func (w *witness) Pick(r *routing.Request, ws []routing.View) (int, routing.Reason) {
	plan := r.Wait && w.Plans(r)
	for _, v := range ws {
		if v.Full && !plan || v.Weight < 1 || v.Group != ws[0].Group || !(v.Rate > 0) {
			w.t.Fatalf("the policy was shown an ineligible worker: %+v", v)
		}
	}
	before, asked := slices.Clone(ws), *r
	asked.Blocks = slices.Clone(r.Blocks)
	if w.shown != nil {
		w.shown(r, ws)
	}
	w.last = before
	i, reason := w.one.Pick(r, ws)
	if i < -1 || i >= len(ws) {
		w.t.Fatalf("%s picked index %d of %d workers", w.Name(), i, len(ws))
	}
	if i >= 0 && reason == "" {
		w.t.Fatalf("%s gave no reason for its choice", w.Name())
	}
	if !slices.Equal(before, ws) || !reflect.DeepEqual(asked, *r) {
		w.t.Fatalf("%s changed the facts that it was shown", w.Name())
	}
	w.chose = i
	if j, again := w.twin.Pick(r, ws); i != j || reason != again {
		w.t.Fatalf("the same facts gave %d (%s) and %d (%s)", i, reason, j, again)
	}
	return i, reason
}

// choices shows a policy arbitrary eligible workers.
func choices(rt *rapid.T, newPolicy func() routing.Policy) {
	w := newWitness(rt, newPolicy)
	var weights [20]int // steady, as between two reloads
	for i := range weights {
		weights[i] = rapid.SampledFrom([]int{1, 1, 1, 2, 3, 10}).Draw(rt, "weight")
	}
	for range rapid.IntRange(1, 20).Draw(rt, "calls") {
		r := drawRequest(rt, epoch())
		var ws []routing.View
		for index := range weights {
			if !rapid.Bool().Draw(rt, "eligible") {
				continue
			}
			ws = append(ws, routing.View{
				ID: fmt.Sprint("w", index), Index: index,
				Weight:        weights[index],
				Full:          r.Wait && w.Plans(&r) && rapid.Bool().Draw(rt, "full"),
				Inflight:      rapid.IntRange(0, 1000).Draw(rt, "inflight"),
				PendingTokens: rapid.Int64Range(0, 1<<60).Draw(rt, "pending"),
				OutputTokens:  rapid.Int64Range(0, 1<<60).Draw(rt, "output"),
				Waiting:       rapid.IntRange(0, 1000).Draw(rt, "waiting"),
				KVUsage:       rapid.Float64Range(0, 1).Draw(rt, "kv usage"),
				Overlap:       rapid.Int64Range(0, 1<<40).Draw(rt, "overlap"),
				Rate:          rapid.Float64Range(50, 1e6).Draw(rt, "rate"),
				CachedBlocks:  rapid.IntRange(0, 20_000).Draw(rt, "blocks"),
				Success:       rapid.Float64Range(0, 1).Draw(rt, "success"),
				Latency: routing.LatencyFacts{Mean: rapid.Float64Range(0, 100).Draw(rt, "latency"),
					Samples: rapid.IntRange(8, 12).Draw(rt, "samples"), Idle: rapid.Float64Range(0, 20).Draw(rt, "idle")},
			})
		}
		if len(ws) > 0 {
			w.Pick(&r, ws)
		}
	}
}

func drawRequest(rt *rapid.T, now time.Time) routing.Request {
	r := routing.Request{
		Now: now, Rand: rapid.Uint64().Draw(rt, "rand"),
		Model:        rapid.Uint64Range(0, 2).Draw(rt, "model"),
		PromptTokens: rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 20000)).Draw(rt, "prompt tokens"),
		OutputTokens: rapid.Int64().Draw(rt, "output tokens"),
		Stream:       rapid.Bool().Draw(rt, "stream"),
		Wait:         rapid.Bool().Draw(rt, "wait"),
		Rule:         rapid.IntRange(0, 2).Draw(rt, "rule"),
		Waited:       time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "waited")),
	}
	r.Regions = rapid.SampledFrom([][]uint64{nil, nil, {1}, {2, 1}, {1, 2, 3}}).Draw(rt, "regions")
	r.Blocks = chain(rapid.IntRange(0, 1).Draw(rt, "chat"), rapid.IntRange(0, 40).Draw(rt, "branch"),
		rapid.IntRange(0, 60).Draw(rt, "blocks"))
	if len(r.Blocks) > 0 {
		r.Prefix = r.Blocks[0].Hash
	}
	if r.KeyOf = rapid.SampledFrom([]string{"", routing.KeySession, routing.KeyHeader}).Draw(rt, "key of"); r.KeyOf != "" {
		r.Key = rapid.Uint64Range(1, 20).Draw(rt, "key")
	}
	return r
}

// chain returns a prompt of n blocks of 64 characters. Prompts of one chat are equal up to the branch.
func chain(chat, branch, n int) []routing.Block {
	blocks := make([]routing.Block, n)
	hash := uint64(chat + 1)
	for i := range blocks {
		if i == branch {
			hash += uint64(branch+1) << 32
		}
		hash = (hash ^ uint64(i)<<8) * 0x9E3779B97F4A7C15
		blocks[i] = routing.Block{Hash: hash, End: int64(i+1) * 64}
	}
	return blocks
}
