package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// Events of a stream of the Responses dialect. A delta needs its sequence number.
const (
	createdEvent = `event: response.created` + "\n" +
		`data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_s1","object":"response","status":"in_progress"}}` + "\n\n"
	deltaEvent = `event: response.output_text.delta` + "\n" +
		`data: {"type":"response.output_text.delta","sequence_number":%d,"delta":"x"}` + "\n\n"
	completedEvent = `event: response.completed` + "\n" +
		`data: {"type":"response.completed","sequence_number":2,"response":{"id":"resp_s1","object":"response","status":"completed"}}` + "\n\n"
)

// TestAFailureInAResponsesStreamIsAFailedResponse: sequence numbers continue, and the ID is the
// response's. Codex reads no other error.
func TestAFailureInAResponsesStreamIsAFailedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, end := range map[string]string{
			"a cut":   "",
			"a reset": "reset",
			"an engine's error": "event: error\ndata: {\"type\":\"error\",\"sequence_number\":3,\"message\":\"CUDA " +
				"error\",\"code\":null}\n\n",
			"half an event": "data: {\"type\":\n\n",
		} {
			r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				writeNow(t, w, createdEvent+fmt.Sprintf(deltaEvent, 1)+fmt.Sprintf(deltaEvent, 2))
				if end == "reset" {
					panic(http.ErrAbortHandler)
				}
				writeNow(t, w, end)
			}))
			a := r.post("/v1/responses", `{"model":"small","input":"hi","stream":true}`)
			rest, ok := strings.CutPrefix(a.body, createdEvent+fmt.Sprintf(deltaEvent, 1)+fmt.Sprintf(deltaEvent, 2))
			events := strings.Split(strings.TrimSuffix(rest, "\n\n"), "\n\n")
			if !ok || len(events) != 2 {
				t.Errorf("%s: %q", what, a.body)
				continue
			}
			var failed struct {
				Type     string
				Sequence int64 `json:"sequence_number"`
				Error    struct{ Code, Message string }
				Response struct {
					ID, Object, Status string
					Error              struct{ Code, Message string }
				}
			}
			for i, name := range []string{"error", "response.failed"} {
				data, ok := strings.CutPrefix(events[i], "event: "+name+"\ndata: ")
				if err := json.Unmarshal([]byte(data), &failed); !ok || err != nil || failed.Type != name ||
					failed.Sequence != int64(3+i) {
					t.Errorf("%s: event %d is %q: %v", what, i, events[i], err)
				}
			}
			if f := failed.Response; f.ID != "resp_s1" || f.Object != "response" || f.Status != "failed" || f.Error.Code == "" ||
				f.Error.Code != failed.Error.Code || f.Error.Message != failed.Error.Message {
				t.Errorf("%s: %+v", what, failed)
			}
			if m := r.scrape(); !strings.Contains(m, `tierway_stream_end_total{reason="truncated"} 1`) {
				t.Errorf("%s: the stream does not count as cut", what)
			}
		}
	})
}
