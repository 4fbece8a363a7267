package watch

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
)

// TestSmokeARequestIsInMetricsRecordsAndLog: one stream is counted once, has one record and one access line, and all
// name the worker that served it.
func TestSmokeARequestIsInMetricsRecordsAndLog(t *testing.T) {
	r := newRig(t, 1, engines.Config{}, nil)
	r.Serve(rig.Settings{"decisions": "{ file: decisions.jsonl }"})
	r.WaitUntilReady()
	got := r.post(http.StatusOK, "/v1/chat/completions", rig.Chat("auto", "a question", `"stream":true`))
	line := r.AccessLine(got.ID)
	if worker := fmt.Sprint(line["worker"]); worker != "w0" || got.Header.Get("X-Routed-To") != worker {
		t.Errorf("the access line has the worker %s, the response %s", worker, got.Header.Get("X-Routed-To"))
	}
	rig.Eventually(t, func() error {
		m, err := r.Metrics()
		if err != nil {
			return err
		}
		if m.Sum("tierway_decisions_written_total") != 1 {
			return errors.New("the record is not written")
		}
		for name, pairs := range map[string][]string{
			"tierway_requests_started_total": nil,
			"tierway_requests_total":         {`outcome="ok"`, `tier="small"`},
			"tierway_attempts_total":         {`tier="small"`},
			"tierway_tenant_requests_total":  {`tenant="acme"`},
		} {
			if n := m.Sum(name, pairs...); n != 1 {
				return fmt.Errorf("%s is %v, want 1", name, n)
			}
		}
		return nil
	})
	r.Stop()
	all, _ := r.readRecordFiles("decisions.jsonl")
	if len(all) != 1 || all[0].RequestID != got.ID || all[0].Worker != "w0" || all[0].Usage.Output == 0 {
		t.Errorf("the records are %+v", all)
	}
}
