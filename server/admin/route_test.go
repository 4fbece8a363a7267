package admin

import (
	"net/http"
	"strings"
	"testing"
)

// TestOneDraftIsExplainedAtATime, because it occupies a core that requests need.
func TestOneDraftIsExplainedAtATime(t *testing.T) {
	r := newPlaneRig(t)
	const plain, drafted = `{"request":{"model":"small"}}`,
		`{"request":{"model":"small"},"draft":"tiers: [ { name: small, model: fake-7b, workers: [ { name: w0, url: \"http://127.0.0.1:9\" } ] } ]"}`
	r.plane.route.drafting.Lock()
	if got := r.ask("ops", http.MethodPost, "/admin/route/explain", drafted); got.Code != http.StatusConflict ||
		!strings.Contains(got.Body.String(), "draft") {
		t.Errorf("a second draft: %d %s", got.Code, got.Body)
	}
	if got := r.ask("ops", http.MethodPost, "/admin/route/explain", plain); got.Code != http.StatusOK {
		t.Errorf("without a draft: %d %s", got.Code, got.Body)
	}
	r.plane.route.drafting.Unlock()
	if got := r.ask("ops", http.MethodPost, "/admin/route/explain",
		`{"request":{"model":"small"},"draft":"nonsense: 1"}`); got.Code != http.StatusUnprocessableEntity {
		t.Errorf("a draft with an unknown key: %d %s", got.Code, got.Body)
	}
	if got := r.ask("ops", http.MethodPost, "/admin/route/explain", drafted); got.Code != http.StatusOK ||
		!strings.Contains(got.Body.String(), `"draft":`) {
		t.Errorf("afterwards: %d %s", got.Code, got.Body)
	}
}

// TestOneReplayRunsAtATime, because it occupies a core that requests need.
func TestOneReplayRunsAtATime(t *testing.T) {
	r := newPlaneRig(t)
	r.plane.route.replaying.Lock()
	if got := r.ask("ops", http.MethodPost, "/admin/route/replay", "{}"); got.Code != http.StatusConflict {
		t.Errorf("a second replay: %d %s", got.Code, got.Body)
	}
	r.plane.route.replaying.Unlock()
	if got := r.ask("ops", http.MethodPost, "/admin/route/replay", "{}"); got.Code != http.StatusOK {
		t.Errorf("afterwards: %d %s", got.Code, got.Body)
	}
}
