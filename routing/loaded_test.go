package routing

import (
	"errors"
	"testing"
)

// planning is a policy that plans.
type planning struct{ first }

func (planning) Plans(*Request) bool { return true }

// TestEligibleIsWhatAPoolShowsItsPolicy has one row per rule. A shown worker is written by its name,
// with a * if it is full.
func TestEligibleIsWhatAPoolShowsItsPolicy(t *testing.T) {
	limit := Saturation{Waiting: 5, KVUsage: 0.9}
	worker := func(id string, change func(*Loaded)) Loaded {
		l := Loaded{Member: Member{ID: id, Weight: 1}}
		if change != nil {
			change(&l)
		}
		return l
	}
	a, b := worker("a", nil), worker("b", nil)
	for name, c := range map[string]struct {
		workers []Loaded
		plans   bool // the policy weighs waits, and the request can wait
		want    string
		err     error
	}{
		"all":          {[]Loaded{a, b}, false, "a b", nil},
		"none":         {nil, false, "", ErrNoWorker},
		"no weight":    {[]Loaded{worker("a", func(l *Loaded) { l.Weight = 0 }), b}, false, "b", nil},
		"its model":    {[]Loaded{worker("a", func(l *Loaded) { l.Models = []uint64{7} }), b}, false, "a b", nil},
		"other models": {[]Loaded{worker("a", func(l *Loaded) { l.Models = []uint64{8} }), b}, false, "b", nil},
		"lower group":  {[]Loaded{worker("a", func(l *Loaded) { l.Group = 1 }), b}, false, "b", nil},
		"a full group holds": {[]Loaded{worker("a", func(l *Loaded) { l.Group = 1 }),
			worker("b", func(l *Loaded) { l.Full = true })},
			false, "", ErrFull},
		"full by its own word": {[]Loaded{worker("a", func(l *Loaded) { l.Full = true }), b}, false, "b", nil},
		"below max_inflight": {[]Loaded{worker("a", func(l *Loaded) { l.MaxInflight, l.Inflight = 2, 1 }), b}, false,
			"a b", nil},
		"at max_inflight": {[]Loaded{worker("a", func(l *Loaded) { l.MaxInflight, l.Inflight = 2, 2 }), b}, false, "b",
			nil},
		"shown to a planner": {[]Loaded{worker("a", func(l *Loaded) { l.MaxInflight, l.Inflight = 2, 2 }), b}, true,
			"a* b", nil},
		"up to its tokens": {[]Loaded{worker("a", func(l *Loaded) {
			l.MaxTokensInflight, l.Inflight, l.Tokens = 1000, 1, 890
		}), b}, false, "a b", nil},
		"over its tokens": {[]Loaded{worker("a", func(l *Loaded) {
			l.MaxTokensInflight, l.Inflight, l.Tokens = 1000, 1, 891
		}), b}, false, "b", nil},
		"one long request":      {[]Loaded{worker("a", func(l *Loaded) { l.MaxTokensInflight = 10 }), b}, false, "a b", nil},
		"fewer wait":            {[]Loaded{worker("a", func(l *Loaded) { l.Waiting = 4 }), b}, false, "a b", nil},
		"as many wait":          {[]Loaded{worker("a", func(l *Loaded) { l.Waiting = 5 }), b}, false, "b", nil},
		"not even to a planner": {[]Loaded{worker("a", func(l *Loaded) { l.Waiting = 5 }), b}, true, "b", nil},
		"more since": {[]Loaded{worker("a", func(l *Loaded) { l.Waiting, l.Inflight, l.Reported = 4, 9, 8 }), b},
			false, "b", nil},
		"fewer since": {[]Loaded{worker("a", func(l *Loaded) { l.Waiting, l.Inflight, l.Reported = 5, 8, 9 }), b},
			false, "a b", nil},
		"its cache": {[]Loaded{worker("a", func(l *Loaded) { l.Waiting, l.KVUsage = 1, 0.9 }), b}, false, "b",
			nil},
		"its cache, none waits": {[]Loaded{worker("a", func(l *Loaded) { l.KVUsage = 1 }), b}, false, "a b", nil},
		"metrics alone, idle":   {[]Loaded{worker("a", func(l *Loaded) { l.Waiting = 5 })}, false, "a", nil},
		"metrics alone, busy": {[]Loaded{worker("a", func(l *Loaded) { l.Waiting, l.Inflight, l.Reported = 5, 1, 1 })},
			false, "", ErrFull},
	} {
		var policy Policy = first{}
		if c.plans {
			policy = planning{}
		}
		r := Request{Now: start, Model: 7, PromptTokens: 100, OutputTokens: 10, Wait: c.plans}
		views, err := Eligible(policy, limit, &r, c.workers)
		got := ""
		for i := range views {
			if got != "" {
				got += " "
			}
			if got += c.workers[views[i].Index].ID; views[i].Full {
				got += "*"
			}
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, c.want, c.err)
		}
	}
}
