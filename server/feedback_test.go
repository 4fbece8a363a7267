package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
	"tierway/server/learning"
)

// TestFeedbackIsALabel: it has the tenant of its key, and the tier that answered this tenant's request.
func TestFeedbackIsALabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, "")
		id := r.as("acme", "/v1/chat/completions", chatBody("auto", "prove it", "")).header.Get("X-Request-Id")
		r.until("the request is recorded", func() bool { return len(r.recorded().Last(0)) == 1 })
		for _, c := range []struct {
			tenant, body string
			want         learning.Label
		}{
			{"acme", `{"id":"` + id + `","ok":false,"weight":0.5}`,
				learning.Label{ID: id, Tenant: "acme", Tier: "large", Weight: 0.5}},
			{"other", `{"id":"` + id + `","ok":true}`, learning.Label{ID: id, Tenant: "other", OK: true, Weight: 1}},
			{"acme", `{"id":"unknown","ok":true}`, learning.Label{ID: "unknown", Tenant: "acme", OK: true, Weight: 1}},
		} {
			got := r.as(c.tenant, "/v1/feedback", c.body)
			if want := `{"object":"feedback","id":"` + c.want.ID + `"}`; got.status != http.StatusAccepted || got.body != want {
				t.Errorf("%s: %d %s", c.body, got.status, got.body)
			}
			_, labels := r.flush()
			last := labels[len(labels)-1]
			if c.want.Time, c.want.Source = last.Time, learning.SourceFeedback; last != c.want || last.Time.IsZero() {
				t.Errorf("%s: the label is %+v, want %+v", c.body, last, c.want)
			}
		}
		if text := r.scrape(); !strings.Contains(text, "tierway_labels_written_total 3") ||
			!strings.Contains(text, "tierway_features_written_total 1") {
			t.Error("the metrics do not count 3 labels and 1 line of features")
		}
	})
}

// TestFeedbackErrorsNameTheField: as OpenAI's errors, under every prefix, and nothing is written.
func TestFeedbackErrorsNameTheField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, "")
		for _, c := range []struct {
			body, code, param string
			status            int
			headers           []string
		}{
			{body: `{"ok":true}`, code: "missing_field", param: "id", status: 400},
			{body: `{"id":"r1"}`, code: "missing_field", param: "ok", status: 400},
			{body: `{"id":"r 1","ok":true}`, code: "invalid_value", param: "id", status: 400},
			{body: `{"id":"","ok":true}`, code: "invalid_value", param: "id", status: 400},
			{body: `{"id":"` + strings.Repeat("x", 129) + `","ok":true}`, code: "invalid_value", param: "id", status: 400},
			{body: `{"id":"r1","ok":true,"weight":1.5}`, code: "invalid_value", param: "weight", status: 400},
			{body: `{"id":"r1","ok":true,"note":"x"}`, code: "invalid_value", param: "note", status: 400},
			{body: "", code: "invalid_json", status: 400},
			{body: `{"id":"` + strings.Repeat("x", 5000) + `","ok":true}`, code: "request_too_large", status: 413},
			{body: `{"id":"r1","ok":true}`, code: "unsupported_media_type", status: 415,
				headers: []string{"Content-Type", "text/plain"}},
		} {
			got := r.as("acme", "/v1/feedback", c.body, c.headers...)
			var is struct {
				Error struct{ Message, Code, Param string }
			}
			if err := json.Unmarshal([]byte(got.body), &is); err != nil || got.status != c.status || is.Error.Code != c.code ||
				is.Error.Param != c.param || is.Error.Message == "" {
				t.Errorf("%.60s: %d %s", c.body, got.status, got.body)
			}
		}
		if got := r.post("/v1/feedback", `{"id":"r1","ok":true}`); got.status != http.StatusUnauthorized {
			t.Errorf("without a key: %d %s", got.status, got.body)
		}
		if got := r.do(http.MethodGet, "/v1/feedback", "", "Authorization", "Bearer acme"); got.status != 405 {
			t.Errorf("GET: %d %s", got.status, got.body)
		}
		if _, labels := r.flush(); len(labels) > 0 {
			t.Errorf("%+v", labels)
		}
		if got := r.as("acme", "/batch/v1/feedback", `{"id":"r1","ok":true}`); got.status != http.StatusAccepted {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// TestFeedbackCountsAsARequest: a tenant cannot fill the disk faster than its limit of requests. Feedback uses no
// tokens and no budget.
func TestFeedbackCountsAsARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, "")
		for i, want := range []int{202, 202, 429} {
			got := r.as("slow", "/v1/feedback", `{"id":"r1","ok":true}`)
			if got.status != want || got.header.Get("X-Ratelimit-Limit-Requests") != "2" {
				t.Errorf("feedback %d: %d %s", i, got.status, got.body)
			}
		}
		if _, labels := r.flush(); len(labels) != 2 {
			t.Errorf("%d labels", len(labels))
		}
	})
}

// TestFullLabelsAreRejected: the client may try again, and what was accepted is kept.
func TestFullLabelsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, "")
		for r.learning.AddLabels(learning.Label{ID: "earlier", Weight: 1, Source: learning.SourceFeedback}) == nil {
		}
		got := r.as("acme", "/v1/feedback", `{"id":"r1","ok":true}`)
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" ||
			!strings.Contains(got.body, `"code":"overloaded"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		if _, labels := r.flush(); len(labels) == 0 || labels[0].ID != "earlier" {
			t.Errorf("%d labels", len(labels))
		}
		if got := r.as("acme", "/v1/feedback", `{"id":"r1","ok":true}`); got.status != http.StatusAccepted {
			t.Errorf("afterwards: %d %s", got.status, got.body)
		}
	})
}

// TestFeedbackNeedsADirectory: the error names the key. A pool that covers the path still gets the request.
func TestFeedbackNeedsADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := newRig(t, plain, fakeEngine()).post("/v1/feedback", `{"id":"r1","ok":true}`)
		if got.status != http.StatusNotFound || !strings.Contains(got.body, `"code":"feedback_disabled"`) ||
			!strings.Contains(got.body, "learning.directory") {
			t.Errorf("%d %s", got.status, got.body)
		}
		engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.URL.Path) })
		other := startServer(t, engine)
		r := newRig(t, plain+fmt.Sprintf(
			"pools: [ { name: own, paths: [ /v1/feedback ], workers: [ { name: o0, url: %q } ] } ]\n", other),
			engines.New(engines.Config{Model: "fake-7b"}))
		if got := r.post("/v1/feedback", `{"id":"r1","ok":true}`); got.status != 200 || got.body != "/v1/feedback" {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}
