package decisions

import (
	"math"
	"testing"

	"tierway/routing"
)

func TestHandoverIsOneLine(t *testing.T) {
	for want, h := range map[string]*routing.HandoverChoice{
		"": nil,
		"computed by p1, handed to d2: predicted cost 0.31 s, or 0.52 s on d2 itself": {Decision: "remote", Why: routing.HandoverCost,
			Worker: "p1", Remote: 0.3104, Local: 0.5249},
		"computed by p1, handed to d2: predicted cost 120 s, or 1234 s on d2 itself": {Decision: "remote", Why: routing.HandoverCost,
			Worker: "p1", Remote: 120.2, Local: 1234.4},
		"computed by p1, handed to d2: 4000 uncached tokens reach uncached_threshold": {Decision: "remote",
			Why: routing.HandoverThreshold, Worker: "p1", Uncached: 4000},
		"computed by p1, handed to d2: d2 computes no prompts": {Decision: "remote", Why: routing.HandoverOnlyWay,
			Worker: "p1"},
		"no prefill worker takes the request, and d2 computes no prompts": {Decision: "remote",
			Why: routing.HandoverOnlyWay},
		"computed by p1, handed to d2: predicted cost 1.496 s, or 1.504 s on d2 itself": {Decision: "remote",
			Why: routing.HandoverCost, Worker: "p1", Remote: 1.4962, Local: 1.5041},
		"computed by d2 itself: predicted cost 1.5 s, and the same with p1": {Decision: "local", Why: routing.HandoverCost,
			Worker: "p1", Remote: 1.5, Local: 1.5},
		"computed by d2 itself: predicted cost 0.000015 s, or 1 s with p1": {Decision: "local", Why: routing.HandoverCost,
			Worker: "p1", Remote: 1, Local: 0.0000151},
		"computed by d2 itself: predicted cost 0.052 s, or 0.31 s with p1": {Decision: "local", Why: routing.HandoverCost,
			Worker: "p1", Remote: 0.31, Local: 0.052},
		"computed by d2 itself: 100 uncached tokens, by uncached_threshold": {Decision: "local",
			Why: routing.HandoverThreshold, Uncached: 100},
		"computed by d2 itself: one worker must serve both stages of this request": {Decision: "local",
			Why: routing.HandoverWhole},
		"computed by d2 itself: it takes no computed prompts":        {Decision: "local", Why: routing.HandoverOnlyWay},
		"computed by d2 itself: no prefill worker takes the request": {Decision: "local", Why: routing.HandoverNoPrefill},
	} {
		if got := HandoverText(h, "d2"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRecordedHandoverIsOneLine(t *testing.T) {
	p1 := Prefill{Worker: "p1", AtMs: 10, EndAtMs: 320, Status: 200, Usage: Usage{Prompt: 4000, Cached: 1000}}
	down := Prefill{Worker: "p2", AtMs: 2, EndAtMs: 10, ErrorType: ErrorConnect, Error: "refused"}
	a := &Attempt{Worker: "d2", AtMs: 2, FirstAtMs: 400, EndAtMs: 900}
	for want, h := range map[string]*Handover{
		"local": {Result: "local"},
		"remote: p1 computed the prompt in 310 ms; d2 sent the first part of the answer after 75 ms; p1 had 1000 of " +
			"4000 prompt tokens cached": {Result: "remote", Prefills: []Prefill{p1}, DecodeAtMs: 325},
		"remote: p2 failed (connect) in 8 ms, then p1 computed the prompt in 310 ms; d2 sent the first part of the " +
			"answer after 75 ms; p1 had 1000 of 4000 prompt tokens cached": {Result: "remote",
			Prefills: []Prefill{down, p1}, DecodeAtMs: 325},
		"recomputed: p2 failed (connect) in 8 ms; d2 sent the first part of the answer after 390 ms": {Result: "recomputed",
			Prefills: []Prefill{down}, DecodeAtMs: 10},
		"failed: p2 failed (connect) in 8 ms": {Result: "failed", Prefills: []Prefill{down}},
	} {
		if got := h.Text(a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestDistinctNumbersHaveDistinctTexts with the fewest digits, unless they are equal within six.
func TestDistinctNumbersHaveDistinctTexts(t *testing.T) {
	for _, c := range []struct {
		a, b   float64
		digits int
		want   string
	}{
		{0, 0, 2, "0 0"}, {0, 0.3, 2, "0 0.3"}, {1.5, 1.5, 2, "1.5 1.5"}, {1.49, 1.51, 2, "1.49 1.51"},
		{1234.4, 1234.6, 2, "1234 1235"}, {1234.41, 1234.44, 2, "1234.41 1234.44"}, {1234.4, 1234.2, 4, "1234.4 1234.2"},
		{-2.00004, -2, 4, "-2.00004 -2"}, {1, 1.0000001, 2, "1 1"}, {0.99999, 1, 2, "0.99999 1"},
		{math.Inf(1), 1, 2, "+Inf 1"},
	} {
		if a, b := Distinct(c.a, c.b, c.digits); a+" "+b != c.want {
			t.Errorf("%v and %v are %q and %q, want %q", c.a, c.b, a, b, c.want)
		}
	}
}
