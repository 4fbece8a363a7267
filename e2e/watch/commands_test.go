package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
)

// TestLiveExplanationMatchesTheDecision: on an idle gateway, `tierway explain --live` prints the tier
// and the worker that the same request then gets. With --decision, it explains a past request.
func TestLiveExplanationMatchesTheDecision(t *testing.T) {
	r := newRig(t, 3, engines.Config{CacheTokens: 1 << 16}, nil)
	r.Serve(rig.Settings{"policy": "{ name: chwbl }"})
	explain := []string{"explain", "--live", "--api", r.AdminURL, "--json"}
	told := map[string]int{}
	for n := range 12 {
		// each chat is sent twice
		body := rig.Chat("auto", fmt.Sprintf("chat %d: %s", n/2, strings.Repeat(fmt.Sprint("words of ", n, " "), 100*(n%2))))
		out, problem, code := command(t, body, append(explain, "-f", "-")...)
		var e struct {
			Outcome, Tier, Worker, Reason string
		}
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 {
			t.Fatalf("explain ends with %d (%v): %s%s", code, err, out, problem)
		}
		before := r.Sum("tierway_requests_started_total")
		got := r.post(http.StatusOK, "/v1/chat/completions", body)
		if used := got.Header.Get("X-Routed-To"); used != e.Worker || used == "" ||
			got.Header.Get("X-Model-Tier") != e.Tier || got.Header.Get("X-Route-Reason") != e.Reason {
			t.Errorf("explained was %+v, the request went to %s by %s", e, used, got.Header.Get("X-Route-Reason"))
		}
		if before != float64(n) {
			t.Errorf("%v requests have started, %d were sent: an explanation counts as one", before, n)
		}
		told[e.Worker]++
		rig.Eventually(r.T, func() error { return r.kept(n + 1) })
		if out, problem, code = command(t, "", append(explain, "--decision", got.ID)...); code != 0 ||
			!strings.Contains(out, `"worker": "`+e.Worker+`"`) && !strings.Contains(out, `"worker":"`+e.Worker+`"`) {
			t.Errorf("the past request is explained (%d) as %s%s", code, out, problem)
		}
	}
	if len(told) < 2 {
		t.Errorf("all went to one worker: %v", told)
	}
	if out, problem, code := command(t, rig.Chat("auto", "hello"), "explain", "--live", "--api", r.AdminURL, "-f",
		"-"); code != 0 || !strings.Contains(out, "small") || !strings.Contains(out, "w0") {
		t.Errorf("explain for people ends with %d: %s%s", code, out, problem)
	}
	if out, problem, code := command(t, rig.Chat("nobody-has-it", "hello"), append(explain, "-f", "-")...); code != 1 ||
		!strings.Contains(out, "model_not_found") {
		t.Errorf("explain of a request that is refused ends with %d: %s%s", code, out, problem)
	}
	for _, wrong := range [][]string{{"explain", "--live", "--api", r.AdminURL},
		{"explain", "--live", "--api", "http://127.0.0.1:1", "-f", "-"},
		{"explain", "--live", "--api", r.AdminURL, "-f", "-", "--tenant", "nobody"},
		{"explain", "--live", "--api", r.AdminURL, "--decision", "no-such-request"}} {
		if out, problem, code := command(t, rig.Chat("auto", "hello"), wrong...); code != 2 || problem == "" || out != "" {
			t.Errorf("tierway %v ends with %d: %s%s", wrong, code, out, problem)
		}
	}
}

// kept returns an error unless n records are kept.
func (r *watchRig) kept(n int) error {
	if got := r.Sum("tierway_decisions_kept"); got != float64(n) {
		return fmt.Errorf("%v records are kept, want %d", got, n)
	}
	return nil
}

// replayed is the part of a replay's report that the tests use.
type replayed struct {
	Records int `json:"records"`
	Tiers   struct {
		N  int `json:"n"`
		Of int `json:"of"`
	} `json:"tiers_reproduced"`
	Workers struct {
		N  int `json:"n"`
		Of int `json:"of"`
	} `json:"reproduced"`
	Moved []struct {
		N int `json:"n"`
	} `json:"changed_tier"`
}

// replay runs `tierway replay`, which must succeed, and returns its report.
func replay(t *testing.T, args ...string) (p replayed) {
	t.Helper()
	out, problem, code := command(t, "", append([]string{"replay", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 {
		t.Fatalf("replay %v ends with %d (%v): %s%s", args, code, err, out, problem)
	}
	return p
}

// TestReplayReproducesDecisions: under the same configuration, a replay of the written records
// reproduces all decisions; under a draft, only the affected requests move.
func TestReplayReproducesDecisions(t *testing.T) {
	const requests = 60
	r := newRig(t, 4, engines.Config{AnyModel: true, CacheTokens: 1 << 16}, nil)
	small, large := r.Workers[:3], r.Workers[3]
	r.Workers = small
	r.Serve(rig.Settings{
		"tiers": strings.TrimSuffix(r.Tiers("", ""), " ]") +
			fmt.Sprintf(", { name: large, model: large, workers: [ { name: w3, url: %q } ] } ]", large.Server.URL),
		"classifier": "{ preset: none, prompt_tokens: { large: 1000 }, max_tokens: {}, sticky: { enabled: false } }",
		"decisions":  "{ file: decisions.jsonl }",
	})
	for n := range requests {
		r.post(http.StatusOK, "/v1/chat/completions",
			rig.Chat("auto", fmt.Sprintf("chat %d: %s", n, strings.Repeat("word ", 100*(n%6)))))
	}
	r.post(http.StatusNotFound, "/v1/chat/completions", rig.Chat("nobody-has-it", "hello"))
	rig.Eventually(r.T, func() error { return r.kept(requests + 1) })
	draft := r.beside("draft.yaml")
	const classifier = "{ preset: none, prompt_tokens: { large: 300 }, max_tokens: {}, sticky: { enabled: false } }"
	r.write(draft, r.Config.With(rig.Settings{"classifier": classifier}).String())
	live := replay(t, "--live", "--api", r.AdminURL, "--draft", draft)
	r.Stop()
	file := []string{"-c", r.File, "--decisions", r.beside("decisions.jsonl")}
	if now := replay(t, file...); now.Records != requests+1 || now.Tiers.N != requests || now.Tiers.Of != requests ||
		now.Workers.N != requests || len(now.Moved) != 0 {
		t.Errorf("the same configuration does not reproduce the decisions: %+v", now)
	}
	drafted := replay(t, append(file, "--draft", draft)...)
	if len(drafted.Moved) != 1 || drafted.Moved[0].N < requests/6 || drafted.Moved[0].N > requests*5/6 {
		t.Errorf("under a draft: %+v", drafted)
	}
	if fmt.Sprint(drafted) != fmt.Sprint(live) {
		t.Errorf("the gateway replays its decisions as %+v, the program its file as %+v", live, drafted)
	}
	r.checkReplayText(append([]string{"replay"}, file...), draft, requests+1)
}

// checkReplayText checks the text output and the exit status of `tierway replay`.
func (r *watchRig) checkReplayText(file []string, draft string, records int) {
	r.T.Helper()
	out, problem, code := command(r.T, "", append(file, "--draft", draft, "--changes")...)
	if code != 0 || !strings.Contains(out, "records") || !strings.Contains(out, fmt.Sprint(records)) ||
		!strings.Contains(out, "small") || !strings.Contains(out, "large") {
		r.T.Errorf("replay for people ends with %d: %s%s", code, out, problem)
	}
	r.write(draft, r.Config.With(rig.Settings{"classifier": "{ prompt_tokens: { lurge: 300 } }"}).String())
	if out, problem, code = command(r.T, "", append(file, "--draft", draft)...); code != 1 ||
		!strings.Contains(problem, "lurge") {
		r.T.Errorf("replay under a draft with a mistake ends with %d: %s%s", code, out, problem)
	}
	for _, wrong := range [][]string{{"replay"}, {"replay", "-c", r.File, "--decisions", r.beside("none.jsonl")},
		append(file, "--last", "-1")} {
		if out, problem, code = command(r.T, "", wrong...); code != 2 || problem == "" || out != "" {
			r.T.Errorf("tierway %v ends with %d: %s%s", wrong, code, out, problem)
		}
	}
}

// write writes a file.
func (r *watchRig) write(path, text string) {
	r.T.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.T.Fatal(err)
	}
}
