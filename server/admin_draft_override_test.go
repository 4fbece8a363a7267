package server

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tierway/server/control"
)

// TestDraftNamesTheOverridesThatHideItsWeights: under an override, another weight of the draft changes no decision, so
// that a replay reports no difference.
func TestDraftNamesTheOverridesThatHideItsWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.askAbout(0)
		r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":7}`)
		r.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", `{}`)
		edited := r.edited("tiers: [ { name: small, workers: [ { name: w0, weight: 0 }, { name: w1, weight: 9 } ] } ]")
		same := r.edited("tiers: [ { name: small, policy: { name: random } } ]")
		weight := func(n int) *int { return &n }
		want := []control.OverrideImpact{{Worker: "w0", Effect: "shadows", Weight: 7, FileWeight: weight(0)},
			{Worker: "w1", Effect: "shadows", Drain: true, FileWeight: weight(9)}}
		for path, body := range map[string]string{"/admin/route/replay": `{"draft":%q}`,
			"/admin/route/explain": `{"draft":%q,"request":{"model":"small","messages":[{"role":"user","content":"hi"}]}}`} {
			got := decode[struct{ Overrides []control.OverrideImpact }](t, r.ops(http.StatusOK, http.MethodPost, path,
				fmt.Sprintf(body, edited)))
			if diff := cmp.Diff(want, got.Overrides); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
			got = decode[struct{ Overrides []control.OverrideImpact }](t, r.ops(http.StatusOK, http.MethodPost, path,
				fmt.Sprintf(body, same)))
			if len(got.Overrides) != 0 {
				t.Errorf("%s names %+v for a draft with the same weights", path, got.Overrides)
			}
		}
	})
}
