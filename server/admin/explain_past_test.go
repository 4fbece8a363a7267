package admin

import (
	"testing"

	"tierway/decisions"
	"tierway/replay"
	"tierway/routing"
)

// TestADraftWithoutAWorkerForARequestRefusesIt, whoever had it.
func TestADraftWithoutAWorkerForARequestRefusesIt(t *testing.T) {
	e := &decisions.Explanation{Outcome: decisions.WouldRoute}
	st := pastAttempt(e, &decisions.Attempt{Worker: "w0", Reason: "random", Choice: &routing.Choice{}},
		func(*decisions.Attempt) (*decisions.Again, *routing.Choice, error) {
			return nil, nil, replay.ErrNoWorker
		})
	if e.Worker != "" || e.Outcome != decisions.WouldReject || e.Code != "no_healthy_worker" || st.OK {
		t.Errorf("%s, %s, %q; the step is %+v", e.Outcome, e.Code, e.Worker, st)
	}
	if got := e.Summary; got != "was refused at worker: no worker of the draft can take the request" {
		t.Error(got)
	}
}
