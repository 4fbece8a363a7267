package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tierway/decisions"
	"tierway/engines"
	"tierway/replay"
	"tierway/routing"
)

// replayRig is a gateway with a tier of two workers and a tier of one. It has served 200 chats of many
// lengths, some of them turns of one chat, and rejected one.
func replayRig(t *testing.T, policy string) *adminRig {
	t.Helper()
	big := newServer(t, engineWithModel("large-70b"))
	r := adminRigOf(newRig(t, fmt.Sprintf(`
store: { sql: %q }
admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }
auth: { keys: [ { name: acme, sha256: %s } ] }
health: { path: "off" }
policy: { name: %s }
tiers:
  - { name: small, model: small-7b, price: { input: 1, output: 2 }, workers: [ %%s ] }
  - { name: large, model: large-70b, price: { input: 10, output: 20 }, workers: [ { name: big, url: %q } ] }
classifier: { preset: none, prompt_tokens: { large: 700 }, max_tokens: {}, sticky: { enabled: false } }
`, memoryDB, digestHex("ops"), digestHex("eyes"), digestHex("acme"), policy, big.URL), engineWithModel("small-7b"), engineWithModel("small-7b")))
	for n := range 200 {
		messages := []string{fmt.Sprintf(`{"role":"user","content":"chat %d %s"}`, n/4, strings.Repeat("word ", 4*n))}
		for turn := range n % 4 {
			messages = append(messages, fmt.Sprintf(`{"role":"user","content":"turn %d"}`, turn))
		}
		body := fmt.Sprintf(`{"model":"auto","max_tokens":3,"stream":%v,"messages":[%s]}`, n%2 == 0,
			strings.Join(messages, `,{"role":"assistant","content":"yes"},`))
		if got := r.post("/v1/chat/completions", body, "Authorization", "Bearer acme"); got.status != http.StatusOK {
			t.Fatalf("request %d: %d %s", n, got.status, got.body)
		}
	}
	if got := r.post("/v1/chat/completions", `{"model":"unknown","messages":[{"role":"user","content":"hi"}]}`,
		"Authorization", "Bearer acme"); got.status != http.StatusNotFound {
		t.Fatalf("an unknown model: %d %s", got.status, got.body)
	}
	r.until("all requests are recorded", func() bool { return len(r.recorded().Last(0)) == 201 })
	return r
}

// engineWithModel is an engine that serves one model.
func engineWithModel(model string) http.Handler {
	return engines.New(engines.Config{Name: model, Model: model, Seed: 1, CacheTokens: 100_000})
}

// replay posts a replay and returns its report.
func (r *adminRig) replay(order string) (answer replayShown) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.ops(http.StatusOK, http.MethodPost, "/admin/route/replay", order).body),
		&answer); err != nil {
		r.t.Fatal(err)
	}
	return answer
}

func TestReplayReproducesEveryDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range routing.Names() {
			got := replayRig(t, policy).replay(`{}`)
			if got.Records != 201 || got.Decided != 200 ||
				!slices.Equal(got.Skipped, []replay.Count{{Name: replay.SkippedRefused, N: 1}}) ||
				got.TiersReproduced != (replay.Part{N: 200, Of: 200}) || got.WorkersReproduced != (replay.Part{N: 200, Of: 200}) ||
				got.Redecided != 200 ||
				got.ChangedWorker != 0 || len(got.ChangedTier) != 0 || got.Unknown != (replay.Unknown{}) || got.Hit == nil ||
				got.RealHit == nil {
				t.Errorf("%s: %+v", policy, got.Report)
			}
		}
	})
}

func TestReplayOfADraftMovesOnlyAffectedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := replayRig(t, "chwbl")
		const lower = 200
		var above, left []string
		for _, d := range r.recorded().Last(0) {
			tokens := d.Features.Counted
			if tokens == 0 {
				tokens = d.Features.Estimate
			}
			if d.Tier == "small" && tokens > lower {
				above = append(above, d.RequestID)
			}
			if d.Tier == "small" && d.Worker == "w0" && tokens <= lower {
				left = append(left, d.RequestID)
			}
		}
		got := r.replay(fmt.Sprintf(`{"draft":%q}`, r.edited("classifier: { prompt_tokens: { large: 200 } }\ntiers: [ { "+
			"name: small, workers: [ { name: w0, weight: 0 } ] } ]")))
		if len(above) == 0 || len(got.ChangedTier) != 1 || got.ChangedTier[0].N != len(above) ||
			!slices.Equal(got.ChangedTier[0].Examples, above[:5]) {
			t.Errorf("%d prompts are over %d tokens; the replay moves %+v", len(above), lower, got.ChangedTier)
		}
		if len(left) == 0 || got.ChangedWorker != len(left) || len(got.WorkerMoves) != 1 || got.WorkerMoves[0].From != "w0" ||
			got.WorkerMoves[0].To != "w1" {
			t.Errorf("%d requests have to leave w0; the replay moves %+v", len(left), got.WorkerMoves)
		}
		if len(got.Changes) != 2 || got.Cost == nil || got.Cost.Draft <= got.Cost.Now {
			t.Errorf("changes %+v, cost %+v", got.Changes, got.Cost)
		}
		if again := r.replay(`{}`); again.ChangedWorker != 0 || again.WorkersReproduced.N != 200 {
			t.Errorf("a draft is in force after its replay: %+v", again.Report)
		}
	})
}

func TestExportedDecisionsReplayLikeTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range routing.Names() {
			r := replayRig(t, policy)
			replay, err := replay.New(replay.Config{Now: r.control.Snapshot().ReplaySetup(1)})
			if err != nil {
				t.Fatal(err)
			}
			lines := json.NewDecoder(strings.NewReader(r.ops(http.StatusOK, http.MethodGet, "/admin/decisions", "", "Accept",
				"application/x-ndjson").body))
			for lines.More() {
				d := &decisions.Decision{}
				if err := lines.Decode(d); err != nil {
					t.Fatal(err)
				}
				replay.Add(d)
			}
			if diff := cmp.Diff(r.replay(`{}`).Report, *replay.Report()); diff != "" {
				t.Errorf("%s: %s", policy, diff)
			}
		}
	})
}

func TestReplayTakesTheNewestMatchingRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := replayRig(t, "least_load")
		all := r.recorded().Last(0)
		if got := r.replay(`{"last":7}`); got.Records != 7 || !got.From.Equal(all[194].Time) {
			t.Errorf("the last seven: %d from %s", got.Records, got.From)
		}
		if got := r.replay(`{"filter":{"tier":"large"}}`); got.Records == 0 || len(got.ByTier) != 1 ||
			got.ByTier[0].Tier != "large" {
			t.Errorf("of one tier: %+v", got.ByTier)
		}
	})
}

func TestInvalidReplayNamesTheField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, adminYAML(memoryDB), fakeEngine()))
		for order, want := range map[string]string{
			`{"last":0}`:              "body.last",
			`{"last":1000000}`:        "body.last",
			`{"lost":1}`:              "body.lost",
			`{"draft":{}}`:            "body.draft",
			`{"filter":{"status":7}}`: "body.filter.status",
			`{"filter":{"since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}}`: "body.filter.until",
			`{"draft":"tiers: [ { name: small, polisy: x } ]"}`:                          "polisy",
			`{"draft":"admin: { keys: [ { name: x, sha256: \"${HOME}\" } ] }"}`:          "admin",
		} {
			if got := r.callAdmin("ops", http.MethodPost, "/admin/route/replay",
				order); got.status != http.StatusUnprocessableEntity ||
				!strings.Contains(got.body, want) {
				t.Errorf("%s: %d %s", order, got.status, got.body)
			}
		}
		if got := r.callAdmin("eyes", http.MethodPost, "/admin/route/replay", `{}`); got.status != http.StatusOK {
			t.Errorf("a viewer: %d %s", got.status, got.body)
		}
	})
}
