package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/e2e/rig"
)

// check compares the reply to the only request of a rig, its access line and the metrics with w.
// It stops the gateway, so that all lines are written.
func (r *chaosRig) check(t *testing.T, d dialect, stream bool, got rig.Reply, w want) {
	t.Helper()
	if got.Status != w.status {
		t.Errorf("the status is %d, want %d: %s", got.Status, w.status, got.Body)
	}
	if got.Err != nil {
		t.Errorf("reading the answer: %v", got.Err)
	}
	switch {
	case w.frame:
		checkCut(t, d, got, w)
	case w.status == http.StatusOK:
		checkWhole(t, d, stream, got)
		if name := fmt.Sprintf("w%d", w.attempts-1); got.Header.Get("X-Routed-To") != name {
			t.Errorf("%s sent the answer, want %s", got.Header.Get("X-Routed-To"), name)
		}
	default:
		checkRefusal(t, d, got, w)
	}
	r.checkCounts(t, w)
	r.WaitUntilIdle()
	r.Stop()
	r.checkLine(t, got, w)
}

// checkWhole checks that the answer has the whole text and the proper end of its dialect.
func checkWhole(t *testing.T, d dialect, stream bool, got rig.Reply) {
	t.Helper()
	if !stream {
		if !strings.Contains(got.Body, answerText) {
			t.Errorf("the answer is %s", got.Body)
		}
		return
	}
	h := transcriptOfStream(got.Body)
	if h.text != answerText || !d.complete(h) || len(h.errors) > 0 {
		t.Errorf("the client read %+v from %s", h, got.Body)
	}
	if kind := got.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("the type is %q", kind)
	}
}

// checkCut checks that the stream has a part of the text and then one error frame, but no proper
// end. In the Responses dialect, response.failed follows the error.
func checkCut(t *testing.T, d dialect, got rig.Reply, w want) {
	t.Helper()
	h := transcriptOfStream(got.Body)
	if len(h.errors) != 1 {
		t.Fatalf("there are %d error frames, want 1: %s", len(h.errors), got.Body)
	}
	if w.code != "*" && d.name != "messages" && h.errors[0].Code != w.code {
		t.Errorf("the frame's code is %v, want %s", h.errors[0].Code, w.code)
	}
	all := events(got.Body)
	if d.name == "responses" {
		failed := all[len(all)-1]
		if failed.name != "response.failed" || !strings.Contains(failed.data, fmt.Sprintf(`"code":%q`, h.errors[0].Code)) ||
			!strings.Contains(failed.data, `"id":"resp_`) {
			t.Errorf("the last event is %+v", failed)
		}
		all = all[:len(all)-1]
	}
	if last := transcriptOfEvent(all[len(all)-1]); len(last.errors) != 1 {
		t.Errorf("the error frame is not the last: %s", got.Body)
	}
	if h.done > 0 || h.ends > 0 {
		t.Errorf("a cut stream has a clean end: %s", got.Body)
	}
	if h.text == answerText {
		t.Error("the cut stream was whole")
	}
}

func transcriptOfEvent(e event) (t transcript) {
	t.event(e)
	return t
}

// checkRefusal checks that the reply is an error in the format of its dialect.
func checkRefusal(t *testing.T, d dialect, got rig.Reply, w want) {
	t.Helper()
	e, ok := bodyError(got.Body)
	if !ok || e.Message == "" {
		t.Fatalf("the body has no error: %s", got.Body)
	}
	if w.code != "*" && d.name != "messages" && e.Code != w.code {
		t.Errorf("the code is %v, want %s", e.Code, w.code)
	}
	if d.name == "messages" && (!strings.Contains(got.Body, `"type":"error"`) || e.Type == "") {
		t.Errorf("the error is not in the format of the dialect: %s", got.Body)
	}
	if kind := got.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		t.Errorf("the type is %q", kind)
	}
	if after := got.Header.Get("Retry-After"); (after != "") != w.after || after == "0" {
		t.Errorf("Retry-After is %q", after)
	}
	if never := got.Header.Get("X-Should-Retry") == "false"; never != w.never && w.never {
		t.Error("x-should-retry: false is missing: the SDK would multiply the attempts")
	}
}

// checkLine compares the request's access line with w.
func (r *chaosRig) checkLine(t *testing.T, got rig.Reply, w want) {
	t.Helper()
	line := r.AccessLine(got.ID)
	for key, value := range map[string]any{"status": float64(w.status), "outcome": w.outcome,
		"attempts": float64(w.attempts), "worker": fmt.Sprintf("w%d", w.attempts-1)} {
		if line[key] != value {
			t.Errorf("the log's %s is %v, want %v", key, line[key], value)
		}
	}
	if w.code != "*" && w.code != "" && line["code"] != w.code {
		t.Errorf("the log's code is %v, want %s", line["code"], w.code)
	}
	if w.code == "" && line["code"] != nil {
		t.Errorf("a successful request has the code %v in the log", line["code"])
	}
	if w.outcome == "truncated" && line["cause"] == nil {
		t.Error("the access line of a cut stream has no cause")
	}
}

// checkCounts compares the requests that workers received and the metrics with w. Metrics may be
// updated shortly after the answer, so checkCounts retries.
func (r *chaosRig) checkCounts(t *testing.T, w want) {
	t.Helper()
	hits := w.hits
	if hits == 0 {
		hits = int64(w.attempts)
	}
	if n := r.hits(); n != hits {
		t.Errorf("the workers saw %d requests, want %d", n, hits)
	}
	rig.Eventually(t, func() error {
		m, err := r.Metrics()
		if err != nil {
			return err
		}
		count := func(result string) float64 { return m.Sum("tierway_attempts_total", `result="`+result+`"`) }
		results := fmt.Sprintf("%v/%v/%v", count("ok"), count("error"), count("excluded"))
		switch {
		case w.results != "" && results != w.results:
			return fmt.Errorf("the attempts are %s (ok/error/excluded), want %s", results, w.results)
		case m.Sum("tierway_retries_total") != float64(w.attempts-1):
			return fmt.Errorf("there were %v retries, want %d", m.Sum("tierway_retries_total"), w.attempts-1)
		case m.Sum("tierway_requests_total", `outcome="`+w.outcome+`"`) != 1:
			return fmt.Errorf("no request is counted as %s", w.outcome)
		case w.end != "" && m.Sum("tierway_stream_end_total", `reason="`+w.end+`"`) != 1:
			return fmt.Errorf("no stream is counted as ended by %s", w.end)
		}
		return nil
	})
}
