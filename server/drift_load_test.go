package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"tierway/engines"
	"tierway/routing"
)

// slow is an engine that takes its time, so that requests meet and wait.
func slow(tier string, i int) http.Handler {
	return engines.New(engines.Config{Name: fmt.Sprint(tier, i), AnyModel: true, Seed: uint64(i) + 1, CacheTokens: 1 << 20,
		Prefill: 20_000, PerToken: 12 * time.Millisecond, Slots: 6, Speed: 1})
}

// TestWhatWasDoneIsExplainedAsItWas: under 100 requests a second, whose loads nobody
// could hold still, each request that has ended is explained from its record: as
// going where it went, for the same reason and with the same scores, wait or not.
func TestWhatWasDoneIsExplainedAsItWas(t *testing.T) {
	const requests, every = 500, 10 * time.Millisecond
	r := newDriftRig(t, "", slow)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := newDriftWorld(seed)
	var ids sync.Map
	var all sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range requests {
		<-tick.C
		w := d.wish()
		all.Go(func() {
			if got := r.sent(w); got.header.Get("X-Routed-To") != "" {
				ids.Store(got.header.Get("X-Request-Id"), got.header.Get("X-Routed-To"))
			}
		})
	}
	all.Wait()
	saw := map[string]int{}
	ids.Range(func(id, worker any) bool {
		r.explainsPast(t, id.(string), worker.(string), saw)
		return true
	})
	t.Log(saw)
	if saw["all"] < requests/2 || saw["waited"] == 0 {
		t.Errorf("of %d requests %d went to a worker and %d waited for one", requests, saw["all"], saw["waited"])
	}
}

// explainsPast explains a request that has ended and went to that worker.
func (r *driftRig) explainsPast(t *testing.T, id, worker string, saw map[string]int) {
	t.Helper()
	kept, known := r.decisions.get(id)
	if !known || len(kept.d.Attempts) == 0 {
		t.Errorf("%s has no record of an attempt: %+v", id, kept.d)
		return
	}
	was := kept.d.Attempts[len(kept.d.Attempts)-1]
	body, err := json.Marshal(map[string]string{"decision": id})
	if err != nil {
		t.Fatal(err)
	}
	e := decoded[RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", string(body)))
	saw["all"]++
	saw[e.Policy]++
	if kept.d.QueueMs > 0 {
		saw["waited"]++
	}
	if e.Worker != worker || e.Reason != was.Reason || e.Tier != kept.d.Tier || e.Rule != kept.d.Rule {
		t.Errorf("%s went to %s by %s, and is explained as going to %s by %s: %+v", id, worker, was.Reason, e.Worker, e.Reason, was.Choice)
	}
	again := &routing.Choice{RunnerUp: e.RunnerUp, Candidates: e.Candidates}
	if was.Choice == nil {
		t.Errorf("the pick of %s was not recorded", id)
	} else if diff := sameScores(was.Choice, again); diff != "" {
		t.Errorf("%s: %s", id, diff)
	}
}
