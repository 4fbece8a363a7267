package server

import (
	"math"
	"net/http"
	"testing"
	"testing/synctest"
)

// TestWorkersShowTheirOwnStage: a prefill worker shows the duration of its stage and the tokens of the prompts, and a
// decode worker whole requests without the prompts that others have computed.
func TestWorkersShowTheirOwnStage(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newStagesAdminRig(t, handover)
				for i := range 4 {
					q := oneRequest(4*i, 3000, stream)
					wantAnswer(t, q, r.stagesRig.post(q.path, q.body))
				}
				var prompts, computed, output, requests int64
				for _, w := range decode[struct {
					Workers []struct {
						Name   string
						Totals struct {
							Tokens struct{ Prompt, Cached, Output int64 }
						}
						Latency struct {
							Count int64
							Mean  float64 `json:"mean_ms"`
						}
					}
				}](t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers", "")).Workers {
					of, least := w.Totals.Tokens, map[byte]float64{'p': 376, 'd': 524}[w.Name[0]]
					if most := least + 9; w.Latency.Count == 0 || w.Latency.Mean < least || w.Latency.Mean > most {
						t.Errorf("%s, streamed %v: %s: the latency is %+v, want %v ms", handover, stream, w.Name, w.Latency, least)
					}
					if w.Name[0] == 'd' {
						output, requests = output+of.Output, requests+w.Latency.Count
						prompts += of.Prompt + of.Cached
					} else {
						computed += of.Prompt - of.Cached
					}
				}
				if sum := r.stagesRig.metric(`tierway_prefill_seconds_sum{tier="large"}`); sum < 4*0.376 || sum > 4*0.385 {
					t.Errorf("%s, streamed %v: the prefill stages took %v s", handover, stream, sum)
				}
				if want := int64(4 * 3762); requests != 4 || output != 32 || prompts != 0 || math.Abs(float64(computed-want)) > 80 {
					t.Errorf("%s, streamed %v: %d requests, %d output and %d prompt tokens of decode workers, %d computed ones",
						handover, stream, requests, output, prompts, computed)
				}
			})
		}
	}
}
