package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
)

// TestCommandsAgreeWithTheGateway: on an idle gateway, `tierway explain --live` prints the tier and the worker that the
// same request then gets, and does not count as a request. With --decision, it explains the past request. `tierway
// replay` of the written records and `tierway replay --live` reproduce all decisions.
func TestCommandsAgreeWithTheGateway(t *testing.T) {
	const requests = 12
	r := newRig(t, 3, engines.Config{CacheTokens: 1 << 16}, nil)
	r.Serve(rig.Settings{"policy": "{ name: chwbl }", "decisions": "{ file: decisions.jsonl }"})
	live := []string{"--live", "--api", r.AdminURL, "--json"}
	explain := func(input string, args ...string) (e struct{ Outcome, Tier, Worker, Reason string }) {
		t.Helper()
		out, problem, code := command(t, input, append(append([]string{"explain"}, live...), args...)...)
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 {
			t.Fatalf("explain %v ends with %d (%v): %s%s", args, code, err, out, problem)
		}
		return e
	}
	workers := map[string]int{}
	for n := range requests {
		// each chat is sent twice
		body := rig.Chat("auto", fmt.Sprintf("chat %d: %s", n/2, strings.Repeat(fmt.Sprint("words of ", n, " "), 100*(n%2))))
		e := explain(body, "-f", "-")
		before := r.Sum("tierway_requests_started_total")
		got := r.post(http.StatusOK, "/v1/chat/completions", body)
		if used := got.Header.Get("X-Routed-To"); used != e.Worker || used == "" ||
			got.Header.Get("X-Model-Tier") != e.Tier || got.Header.Get("X-Route-Reason") != e.Reason {
			t.Errorf("explained was %+v, the request went to %s by %s", e, used, got.Header.Get("X-Route-Reason"))
		}
		if before != float64(n) {
			t.Errorf("%v requests have started, %d were sent: an explanation counts as one", before, n)
		}
		workers[e.Worker]++
		rig.Eventually(t, func() error {
			if kept := r.Sum("tierway_decisions_kept"); kept != float64(n+1) {
				return fmt.Errorf("%v records are kept, want %d", kept, n+1)
			}
			return nil
		})
		if past := explain("", "--decision", got.ID); past.Worker != e.Worker {
			t.Errorf("the past request is explained as %+v, before it was %+v", past, e)
		}
	}
	if len(workers) < 2 {
		t.Errorf("all went to one worker: %v", workers)
	}
	fromGateway, _, _ := command(t, "", append([]string{"replay"}, live...)...)
	r.Stop()
	fromFile, _, _ := command(t, "", "replay", "--json", "-c", r.File, "--decisions", r.beside("decisions.jsonl"))
	for _, out := range []string{fromGateway, fromFile} {
		var p struct {
			Records int
			Tiers   struct{ N, Of int } `json:"tiers_reproduced"`
			Workers struct{ N, Of int } `json:"reproduced"`
		}
		if err := json.Unmarshal([]byte(out), &p); err != nil || p.Records != requests || p.Tiers.N != requests ||
			p.Tiers.Of != requests || p.Workers != p.Tiers {
			t.Errorf("the replay reports %s (%v)", out, err)
		}
	}
}
