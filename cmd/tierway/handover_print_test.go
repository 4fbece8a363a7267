package main

import (
	"strings"
	"testing"

	"tierway/decisions"
	"tierway/replay"
	"tierway/routing"
	"tierway/server/admin"
)

// TestExplanationPrintsBothStages: the decision, the costs, the prefill worker and those that could not be it.
func TestExplanationPrintsBothStages(t *testing.T) {
	h := &routing.HandoverChoice{Decision: routing.HandoverRemote, Why: routing.HandoverCost, Uncached: 4000,
		Local: 0.52, Remote: 0.31, Transfer: 0.02, Worker: "p1", Reason: routing.ReasonLowestCost,
		Prefill: &routing.Choice{Policy: "kv_aware", Seen: 1, Candidates: []routing.Candidate{{Worker: "p1", Score: 0.25}}}}
	e := admin.RouteExplanation{Explanation: decisions.Explanation{Outcome: decisions.WouldRoute, Summary: "s",
		Worker: "d2", Reason: "lowest_cost", Handover: h, Steps: []decisions.Step{{Stage: decisions.StageWorker, OK: true, Detail: "d",
			Worker: &decisions.WorkerStep{Choice: &routing.Choice{Policy: "kv_aware", Handover: h,
				Candidates: []routing.Candidate{{Worker: "d2"}}},
				Others:  []routing.Excluded{{Worker: "p1", Why: routing.ExcludedRole}},
				Prefill: []routing.Excluded{{Worker: "d2", Why: routing.ExcludedRole}},
				Handover: &decisions.Handover{Prefills: []decisions.Prefill{{Worker: "p1"}, {Worker: "p2", Reason: "round_robin",
					Choice: &routing.Choice{Policy: "round_robin", Candidates: []routing.Candidate{{Worker: "p2"}, {Worker: "p3"}}}}}},
				Took: "remote: p1 computed the prompt in 310 ms"}}}}}
	var out strings.Builder
	if err := printExplanation(&out, &e); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"other              p1: its role does not serve this stage of the request",
		"hand-over          remote, the lower predicted cost; 4000 uncached tokens; predicted cost 0.31 s if another worker " +
			"computes them, of which 0.02 s for the transfer, and 0.52 s if the decode worker does",
		"prefill            p1 is the best worker for it: lowest_cost: lowest cost, with nothing of the prompt in its cache",
		"prefill candidate  p1, score 0.25 s;", "<- chosen",
		"prefill other      d2: its role does not serve this stage of the request",
		"prefill retry      p2 replaces the failed prefill worker: round_robin: ",
		"retry candidate    p2, score 0;", "retry candidate    p3, ",
		"prompt             remote: p1 computed the prompt in 310 ms",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// TestReplayPrintsHandovers now, under the draft, and those that the records do not decide.
func TestReplayPrintsHandovers(t *testing.T) {
	h := &replay.Handovers{Local: replay.Totals{Now: 40, Draft: 0}, Remote: replay.Totals{Now: 60, Draft: 90}, Changed: 40,
		ChangedWorker: 7, Undecided: 10, Reproduced: replay.Part{N: 99, Of: 100}}
	for drafted, want := range map[bool][]string{
		false: {"hand-overs  60 computed by a prefill worker, 40 by the decode worker; 99 of 100 (99.0 %) reproduced"},
		true: {"hand-overs  60 → 90 computed by a prefill worker, 40 → 0 by the decode worker; 99 of 100 (99.0 %) " +
			"reproduced", "40 would change, 7 would get another prefill worker",
			"10 undecided: the records lack the loads of the prefill workers"},
	} {
		var out strings.Builder
		if err := printReplay(&out, &replay.Report{Records: 100, Handovers: h}, drafted, false); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		for _, line := range want {
			if !strings.Contains(text, strings.Join(strings.Fields(line), " ")) {
				t.Errorf("%q is missing in\n%s", line, out.String())
			}
		}
	}
}
