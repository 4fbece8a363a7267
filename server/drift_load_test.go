package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/routing"
	"tierway/server/admin"
)

// slow is an engine that takes long enough for requests to overlap and to wait.
func slow(tier string, i int) http.Handler {
	return engines.New(engines.Config{Name: fmt.Sprint(tier, i), AnyModel: true, Seed: uint64(i) + 1, CacheTokens: 1 << 20,
		Prefill: 20_000, PerToken: 12 * time.Millisecond, Slots: 6})
}

// TestRecordsExplainWhatWasServedUnderLoad: 300 requests are sent at 100 per second under changing
// loads. For the first second a tier is full, so its requests wait. Each is explained from its record:
// same worker, tier, reasons and scores as in its answer. A replay selects the same tiers.
func TestRecordsExplainWhatWasServedUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, every = 300, 10 * time.Millisecond
		r, d := newDriftRig(t, "", slow), newDriftWorld(1)
		time.AfterFunc(time.Second, r.fill("two").releaseAll)
		var answers sync.Map
		var went, flying atomic.Int64
		var all sync.WaitGroup
		tick := time.NewTicker(every)
		defer tick.Stop()
		for went.Load() < requests { // some are rejected
			for went.Load()+flying.Load() < requests {
				<-tick.C
				w := d.drawRequest()
				if flying.Load()+went.Load() == 0 {
					w.tenant = "acme"
					w.header.Set("X-Model-Tier", "two")
				}
				flying.Add(1)
				all.Go(func() {
					if got := r.sent(w); got.header.Get("X-Routed-To") != "" {
						answers.Store(got.header.Get("X-Request-Id"), got.header)
						went.Add(1)
					}
					flying.Add(-1)
				})
			}
			all.Wait()
		}
		saw := map[string]int{}
		answers.Range(func(id, header any) bool {
			r.checkPastExplanation(t, id.(string), header.(http.Header), saw)
			return true
		})
		t.Log(saw)
		if saw["all"] < requests || saw["waited"] == 0 {
			t.Errorf("of %d requests %d waited for a worker", saw["all"], saw["waited"])
		}
		again := decode[replayShown](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/replay", `{"last":100000}`))
		// Concurrent requests of one chat may be replayed in another order.
		if is := again.TiersReproduced; is.Of < requests || is.Of-is.N > requests/50 {
			t.Errorf("of %d tiers %d are what they were: %+v", is.Of, is.N, again.ChangedTier)
		}
	})
}

// checkPastExplanation explains a finished request from its record and compares the explanation with
// the headers of its answer.
func (r *driftRig) checkPastExplanation(t *testing.T, id string, header http.Header, saw map[string]int) {
	t.Helper()
	kept, known := r.recorded().Get(id)
	if !known || len(kept.Decision.Attempts) == 0 {
		t.Errorf("%s has no record of an attempt: %+v", id, kept.Decision)
		return
	}
	was := kept.Decision.Attempts[len(kept.Decision.Attempts)-1]
	body, err := json.Marshal(map[string]string{"decision": id})
	if err != nil {
		t.Fatal(err)
	}
	e := decode[admin.RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", string(body)))
	saw["all"]++
	saw[e.Policy]++
	if kept.Decision.QueueMs > 0 {
		saw["waited"]++
	}
	rule := e.Rule
	if e.Note != "" {
		rule += "; " + e.Note
	}
	for name, is := range map[string]string{"X-Routed-To": e.Worker, "X-Route-Reason": e.Reason, "X-Model-Tier": e.Tier,
		"X-Tier-Reason": rule} {
		if header.Get(name) != is {
			t.Errorf("%s was answered with %s %s, and is explained as %s: %+v", id, name, header.Get(name), is, was.Choice)
		}
	}
	again := &routing.Choice{RunnerUp: e.RunnerUp, Candidates: e.Candidates}
	if was.Choice == nil {
		t.Errorf("the pick of %s was not recorded", id)
	} else if diff := scoreDiff(was.Choice, again); diff != "" {
		t.Errorf("%s: %s", id, diff)
	}
}
