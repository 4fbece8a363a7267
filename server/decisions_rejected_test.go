package server

import (
	"net/http"
	"testing"
	"testing/synctest"

	"tierway/decisions"
)

// TestRecordOfARejectedRequestHasItsLastPick with all candidates that the policy saw. The list omits
// candidates.
func TestRecordOfARejectedRequestHasItsLastPick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
admin: { keys: [ { name: ops, sha256: `+digestHex("ops")+` }, { name: eyes, sha256: `+digestHex("eyes")+`, role: viewer } ] }
auth: { required: false }
health: { path: "off" }
queue: { max_wait: { interactive: 20ms } }
tiers: # chwbl considers full workers too
  - { name: small, model: m, policy: { name: chwbl }, workers: [ { name: w0, url: "http://127.0.0.1:9", max_inflight: 1 }, { name: w1, url: "http://127.0.0.1:10", max_inflight: 1 } ] }
# %s`)
		defer r.occupyWorkers()()
		a := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`)
		if a.status != http.StatusServiceUnavailable {
			t.Fatalf("%d %s", a.status, a.body)
		}
		r.until("the request is recorded", func() bool { return len(r.recorded().Last(1)) == 1 })
		d := r.recorded().Last(1)[0]
		c := d.Refused
		if c == nil || !c.WorkerFull || len(c.Candidates) != len(r.control.Snapshot().Pools[0].Workers) ||
			!c.Candidates[0].Full || len(d.Attempts) != 0 || d.Shed != "wait" {
			t.Fatalf("the record has %+v of %+v", c, d)
		}
		admin := adminRigOf(r)
		page, _ := admin.listDecisions("")
		row := page.Items[0]
		if row.Refused == nil || len(row.Refused.Candidates) != 0 || len(d.Refused.Candidates) == 0 {
			t.Errorf("the list has %+v of %+v", row.Refused, d.Refused)
		}
		if past := admin.explain(http.StatusOK, order{"decision": d.RequestID}); past.Outcome != decisions.WouldReject ||
			len(past.Candidates) != len(c.Candidates) {
			t.Errorf("explained as %+v", past)
		}
	})
}
