package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/decisions"
	"tierway/server/control"
	"tierway/store"
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

// draftOf is the JSON of a draft with that many workers in addition to w0.
func draftOf(workers int) string {
	var list strings.Builder
	for i := range workers {
		fmt.Fprintf(&list, `, { name: n%d, url: \"http://127.0.0.1:%d\" }`, i, 1000+i)
	}
	return `"tiers: [ { name: small, model: fake-7b, workers: [ { name: w0, url: \"http://127.0.0.1:9\" }` + list.String() + ` ] } ]"`
}

// TestDraftHasABoundOnWorkers: each rank of a server is a worker.
func TestDraftHasABoundOnWorkers(t *testing.T) {
	r := newPlaneRig(t)
	for name, c := range map[string]struct {
		draft string
		want  int
		shows string
	}{
		"at the bound": {draftOf(maxDraftWorkers - 1), http.StatusOK, ""},
		"beyond it":    {draftOf(maxDraftWorkers), http.StatusUnprocessableEntity, "2001 workers"},
		"ranks of 32 workers": {strings.ReplaceAll(draftOf(31), `\" }`, `\", ranks: 64 }`),
			http.StatusUnprocessableEntity, "2048 workers"},
	} {
		for _, path := range []string{"explain", "replay"} {
			body := `{"request":{"model":"small"},"draft":` + c.draft + `}`
			if path == "replay" {
				body = `{"draft":` + c.draft + `}`
			}
			got := r.ask("eyes", http.MethodPost, "/admin/route/"+path, body)
			if got.Code != c.want || !strings.Contains(got.Body.String(), c.shows) {
				t.Errorf("%s, %s: %d %.500s", name, path, got.Code, got.Body)
			}
			if c.want != http.StatusOK && (!strings.Contains(got.Body.String(), "body.draft") ||
				!strings.Contains(got.Body.String(), "2000") || !strings.Contains(got.Body.String(), "tierway "+path)) {
				t.Errorf("%s, %s: the error lacks the field, the bound or the way out: %.500s", name, path, got.Body)
			}
		}
	}
}

// TestWorkOnADraftEndsWithItsRequest: neither the explanation, the replay nor the check of a text
// begins.
func TestWorkOnADraftEndsWithItsRequest(t *testing.T) {
	r := newPlaneRig(t)
	explained := 0
	r.plane.options.Explain = func(*http.Request, control.Question) (*decisions.Explanation, *uint64) {
		explained++
		return &decisions.Explanation{}, nil
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	draft := strings.ReplaceAll(strings.Trim(draftOf(1), `"`), `\"`, `"`)
	order := &struct{ Body ExplainOrder }{ExplainOrder{Request: []byte(`{"model":"small"}`), Draft: &draft}}
	if got, err := r.plane.route.explainRoute(gone, order); err == nil || explained > 0 {
		t.Errorf("without a client: %d explanations, %+v", explained, got)
	}
	r.decisions.Add(&decisions.Decision{RequestID: "1"})
	replayed := &struct{ Body ReplayOrder }{ReplayOrder{Draft: &draft}}
	if got, err := r.plane.route.replayRoute(gone, replayed); err == nil {
		t.Errorf("without a client: the replay is %+v", got)
	}
	checked := &struct{ Body *configText }{&configText{Text: draft}}
	asAdmin := context.WithValue(gone, operatorKey{}, operator{actor: store.Actor{Role: store.RoleAdmin}})
	if got, err := (&configAPI{gateway: r.plane.route.gateway}).validateConfig(asAdmin, checked); err == nil {
		t.Errorf("without a client: the check is %+v", got)
	}
	if _, err := r.plane.route.explainRoute(t.Context(), order); err != nil || explained != 2 {
		t.Errorf("with a client: %d explanations (%v)", explained, err)
	}
}
