package main

import (
	"math"
	"slices"

	"tierway/tierscore/curve"
)

// routed is one prompt of a set and the tier that it was sent to.
type routed struct {
	tier     int
	gain     float64
	category string
}

// shares are the shares of a set by tier.
type shares [3]float64

func sharesOf(all []routed) (s shares) {
	for _, r := range all {
		s[r.tier] += 1 / float64(len(all))
	}
	return s
}

// value is the quality of routing if the tiers from one on answer like the strong model, and the
// tiers below like the weak one.
type value struct {
	up        float64        // share of prompts that go to the strong tiers
	over      curve.Interval // mean score minus that of a random router with the same share
	within    curve.Interval // mean score minus that of a random router with the same share per category; NaN without any
	recovered float64        // recovered part of the gap between the two models; NaN without a gap
}

// valueOf measures routing and draws resamples of the prompts with replacement for the
// intervals. The same seed draws the same resamples.
func valueOf(all []routed, from, resamples int, seed uint64) value {
	s := newSums(all, from)
	v := s.value(nil)
	intervals := bootstrap(len(all), resamples, seed, func(times []int) []float64 {
		one := s.value(times)
		return []float64{one.over.Value, one.within.Value}
	})
	v.over, v.within = intervals[0], intervals[1]
	return v
}

// sums holds what value adds up.
type sums struct {
	up       []bool
	gains    []float64
	category []int  // by prompt
	named    bool   // the set has categories
	parts    []part // scratch, by category
}

// part is the sums over one category.
type part struct{ n, up, gain, gained float64 }

func newSums(all []routed, from int) *sums {
	s := &sums{}
	var names []string
	for _, r := range all {
		at := slices.Index(names, r.category)
		if at < 0 {
			at, names = len(names), append(names, r.category)
		}
		s.named = s.named || r.category != ""
		s.up, s.gains, s.category = append(s.up, r.tier >= from), append(s.gains, r.gain), append(s.category, at)
	}
	s.parts = make([]part, len(names))
	return s
}

// value measures when each prompt counts as often as times says; nil is once each.
func (s *sums) value(times []int) (v value) {
	clear(s.parts)
	for i, up := range s.up {
		n := 1.0
		if times != nil {
			n = float64(times[i])
		}
		p := &s.parts[s.category[i]]
		p.n, p.gain = p.n+n, p.gain+n*s.gains[i]
		if up {
			p.up, p.gained = p.up+n, p.gained+n*s.gains[i]
		}
	}
	var all part
	for _, p := range s.parts {
		all = part{all.n + p.n, all.up + p.up, all.gain + p.gain, all.gained + p.gained}
		if p.n > 0 {
			v.within.Value += p.gained - p.up/p.n*p.gain
		}
	}
	v.up, v.recovered = all.up/all.n, math.NaN()
	v.over.Value = (all.gained - v.up*all.gain) / all.n
	if v.within.Value /= all.n; !s.named {
		v.within.Value = math.NaN()
	}
	if all.gain > 0 {
		v.recovered = all.gained / all.gain
	}
	return v
}
