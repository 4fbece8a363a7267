package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/decisions"
	"tierway/engines/chaos"
	"tierway/replay"
	"tierway/routing"
	"tierway/server/admin"
)

// stagesAdminRig is a stagesRig with an admin.
type stagesAdminRig struct {
	*stagesRig
	*adminRig
}

func newStagesAdminRig(t *testing.T, handover string) stagesAdminRig {
	t.Helper()
	s := newStagesRig(t, handover, "admin: { keys: [ { name: ops, sha256: "+digestHex("ops")+" } ] }", nil)
	return stagesAdminRig{s, adminRigOf(s.rig)}
}

// explain explains a request, or a past one by its id, also under a draft if that is not empty.
func (r stagesAdminRig) explain(request, past, draft string) admin.RouteExplanation {
	r.adminRig.t.Helper()
	order := map[string]any{}
	if request != "" {
		order["request"] = json.RawMessage(request)
	}
	if past != "" {
		order["decision"] = past
	}
	if draft != "" {
		order["draft"] = draft
	}
	body, _ := json.Marshal(order)
	return decode[admin.RouteExplanation](r.adminRig.t,
		r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", string(body)))
}

// replayed is the part of a replay's report about hand-overs.
type replayed struct {
	Handovers replay.Handovers `json:"handovers"`
}

// replay replays all records, also under a draft if that is not empty.
func (r stagesAdminRig) replay(draft string) (got replayed) {
	r.adminRig.t.Helper()
	order := map[string]any{}
	if draft != "" {
		order["draft"] = draft
	}
	body, _ := json.Marshal(order)
	return decode[replayed](r.adminRig.t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/replay", string(body)))
}

func workerStepOf(e *decisions.Explanation) (last *decisions.Step) {
	for i := range e.Steps {
		if e.Steps[i].Worker != nil {
			last = &e.Steps[i]
		}
	}
	return last
}

// TestExplainShowsBothStages of a request now, under a draft, and after it was served.
func TestExplainShowsBothStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStagesAdminRig(t, "nixl")
		q := oneRequest(0, 600, true)
		draft := strings.Replace(r.adminRig.text, "uncached_threshold: 1", "uncached_threshold: 0", 1)
		e := r.explain(q.body, "", draft)
		h, st := e.Handover, workerStepOf(&e.Explanation)
		if h == nil || h.Decision != routing.HandoverRemote || h.Why != routing.HandoverThreshold || h.Reason == "" ||
			h.Worker[0] != 'p' || h.Prefill == nil || h.Prefill.Seen != 2 || h.Local <= 0 || h.Remote <= 0 || h.Uncached < 600 {
			t.Fatalf("the hand-over is %+v", h)
		}
		line := fmt.Sprintf("computed by %s, handed to %s: %d uncached tokens reach uncached_threshold", h.Worker, e.Worker,
			h.Uncached)
		if !strings.Contains(e.Summary, line) || !strings.Contains(st.Detail, line) {
			t.Errorf("%q and %q, want %q", e.Summary, st.Detail, line)
		}
		for stage, all := range map[string][]routing.Excluded{"decode": st.Worker.Others, "prefill": st.Worker.Prefill} {
			if len(all) != 2 || all[0].Why != routing.ExcludedRole || all[1].Why != routing.ExcludedRole {
				t.Errorf("excluded from %s: %+v", stage, all)
			}
		}
		if d := e.Draft.Handover; d == nil || d.Decision != routing.HandoverLocal ||
			!strings.Contains(fmt.Sprint(e.Changed), "handover") || !strings.Contains(e.Draft.Summary, "itself") {
			t.Errorf("the draft: %+v, changed %v, %q", d, e.Changed, e.Draft.Summary)
		}

		a := r.stagesRig.post(q.path, q.body)
		wantAnswer(t, q, a)
		id := a.header.Get("X-Request-Id")
		e = r.explain("", id, draft)
		st = workerStepOf(&e.Explanation)
		if got := e.Handover; got == nil || got.Decision != h.Decision || got.Worker != h.Worker || got.Local != h.Local ||
			got.Remote != h.Remote {
			t.Errorf("the past request has %+v, want %+v", got, h)
		}
		recorded := st.Worker.Handover
		if recorded == nil || recorded.Result != "remote" || len(recorded.Prefills) != 1 ||
			recorded.Prefills[0].EndAtMs <= recorded.Prefills[0].AtMs || recorded.DecodeAtMs < recorded.Prefills[0].EndAtMs ||
			!strings.Contains(st.Detail, "handed to") {
			t.Errorf("the record is %+v, %q", recorded, st.Detail)
		}
		if d := e.Draft.Handover; d == nil || d.Decision != routing.HandoverLocal || len(e.Changed) != 1 {
			t.Errorf("the draft of the past request: %+v, changed %v", d, e.Changed)
		}
		for _, worker := range []string{e.Worker, h.Worker} {
			list := r.ops(http.StatusOK, http.MethodGet, "/admin/decisions?worker="+worker, "")
			if !strings.Contains(list.body, id) {
				t.Errorf("the filter for the worker %s lacks the request", worker)
			}
		}
	})
}

// TestReplayCountsHandovers that a draft decides otherwise.
func TestReplayCountsHandovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStagesAdminRig(t, "nixl")
		for i := range 6 {
			q := oneRequest(4*i, 100+200*i, i%2 == 0)
			wantAnswer(t, q, r.stagesRig.post(q.path, q.body))
		}
		under := func(draft string) replay.Handovers { return r.replay(draft).Handovers }
		all := replay.Part{N: 6, Of: 6}
		if got := under(""); got.Reproduced != all || got.Remote != (replay.Totals{Now: 6, Draft: 6}) || got.Changed != 0 {
			t.Errorf("checked: %+v", got)
		}
		draft := strings.Replace(r.adminRig.text, "uncached_threshold: 1", "uncached_threshold: 800", 1)
		if got := under(draft); got.Reproduced != all || got.Remote.Draft >= 6 || got.Remote.Draft == 0 ||
			int64(got.Changed) != got.Local.Draft || got.Local.Draft+got.Remote.Draft != 6 || got.Undecided != 0 {
			t.Errorf("with a threshold: %+v", got)
		}
	})
}

// TestPoolSaysWhichWorkersOfAStageAreMissing in its workers, the overview and the readiness.
func TestPoolSaysWhichWorkersOfAStageAreMissing(t *testing.T) {
	for handover, tt := range map[string]struct{ severity, message, degraded string }{
		"nixl": {"warning", "No prefill worker is in rotation: decode workers compute the prompts.",
			"large: no prefill worker is in rotation"},
		"sglang": {"error", "No prefill worker is in rotation, and the other workers compute no prompts. Requests wait, " +
			"move to another tier or fail.", "large: no prefill worker is in rotation"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newStagesAdminRig(t, handover)
			workers := decode[struct {
				Workers []struct {
					Name, Role, Stages string
					Open               *int `json:"open_handovers"`
					Distribution       struct{ Expected float64 }
				}
				Pools map[string]struct{ Handover string }
			}](t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers", ""))
			for _, w := range workers.Workers {
				role := map[byte]string{'p': "prefill", 'd': "decode"}[w.Name[0]]
				if w.Role != role || !strings.Contains(w.Stages, role) || (w.Open != nil) != (role == "prefill") ||
					w.Distribution.Expected != 0.5 {
					t.Errorf("%s: %+v", handover, w)
				}
			}
			if workers.Pools["large"].Handover != handover {
				t.Errorf("the pool is %+v", workers.Pools["large"])
			}
			for i, name := range []string{"p0", "p1"} {
				got := decode[struct{ Warnings []string }](t, r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/"+name,
					`{"weight":0}`))
				if (len(got.Warnings) > 0) != (i == 1) {
					t.Errorf("%s: after the weight 0 of %s: warnings %q", handover, name, got.Warnings)
				}
			}
			v := decode[admin.OverviewView](t, r.ops(http.StatusOK, http.MethodGet, "/admin/overview", ""))
			if len(v.Attention) == 0 || v.Attention[0].Severity != tt.severity || v.Attention[0].Message != tt.message {
				t.Errorf("%s: attention %+v", handover, v.Attention)
			}
			ready := r.adminRig.planes.readiness()
			if strings.Join(ready.Degraded, "; ") != tt.degraded || ready.Ready != (handover == "nixl") {
				t.Errorf("%s: %+v", handover, ready)
			}
			q := oneRequest(0, 600, false)
			if a := r.stagesRig.post(q.path, q.body); (a.status == http.StatusOK) != (handover == "nixl") {
				t.Errorf("%s: a request is %d: %.200s", handover, a.status, a.body)
			}
		})
	}
}

// TestSecondPrefillWorkerIsRecordedLikeTheFirst: why it was selected, and among which candidates. Lists of records
// omit these, explain shows them, and replay selects it again.
func TestSecondPrefillWorkerIsRecordedLikeTheFirst(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, handover, "admin: { keys: [ { name: ops, sha256: "+digestHex("ops")+" } ] }\n"+steadyKeys,
				nil, "p0", "p1", "p2", "d0")
			r := stagesAdminRig{s, adminRigOf(s.rig)}
			if err := s.prefills[0].faults.Set(chaos.Fault{Kind: chaos.Status, Status: 500}); err != nil {
				t.Fatal(err)
			}
			retried := 0
			for i := range 6 {
				q := oneRequest(4*i, 600, i%2 == 0)
				a := s.post(q.path, q.body)
				wantAnswer(t, q, a)
				synctest.Wait()
				prefills := s.recorded().Last(1)[0].Attempts[0].Handover.Prefills
				if len(prefills) < 2 {
					continue
				}
				retried++
				c := prefills[1].Choice
				if prefills[0].Choice != nil || c == nil || c.Policy != "round_robin" || c.Seen != 2 || len(c.Candidates) != 2 ||
					c.CandidateOf(prefills[1].Worker) == nil || c.CandidateOf("p0") != nil || prefills[1].Reason == "" {
					t.Fatalf("%s: the stages are %+v with the choice %+v", handover, prefills, c)
				}
				e := r.explain("", a.header.Get("X-Request-Id"), "")
				if got := workerStepOf(&e.Explanation).Worker.Handover.Prefills[1].Choice; got == nil || len(got.Candidates) != 2 {
					t.Errorf("%s: explained with %+v", handover, got)
				}
			}
			if retried == 0 {
				t.Fatalf("%s: no prefill stage was repeated", handover)
			}
			list := r.ops(http.StatusOK, http.MethodGet, "/admin/decisions", "").body
			if strings.Contains(list, `"candidates":[{`) || !strings.Contains(list, `"candidates":[]`) {
				t.Errorf("%s: the list is %s", handover, list)
			}
			all := replay.Part{N: 6 + retried, Of: 6 + retried}
			if got := r.replay("").Handovers; got.Reproduced != all || got.ChangedWorker != 0 {
				t.Errorf("%s: replayed: %+v, want %+v", handover, got, all)
			}
			without := strings.Replace(r.adminRig.text, "name: p2, ", "name: p2, weight: 0, ", 1)
			if got := r.replay(without).Handovers; got.ChangedWorker == 0 || got.Undecided != 0 {
				t.Errorf("%s: without p2: %+v", handover, got)
			}
		})
	}
}
