package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/engines"
	"tierway/replay"
)

// newShareRig is newTieredRig with an admin plane, for a classifier section.
func newShareRig(t *testing.T, classifier string) *adminRig {
	t.Helper()
	return adminRigOf(newTieredRig(t, fmt.Sprintf(
		"store: { sql: %q }\nadmin: { keys: [ { name: ops, sha256: %s } ] }\nclassifier: { %s }\n", memoryDB, digestHex("ops"),
		classifier)))
}

// TestEveryTierGetsItsShare: with classifier.share, each tier serves its share of the prompts, and explain, the
// record and a replay agree with the header.
func TestEveryTierGetsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShareRig(t, "preset: graded, sticky: { enabled: false }")
		source := rand.New(rand.NewPCG(1, 2))
		const before, n = 200, 1000
		counts := map[string]int{}
		for i := range before + n {
			body := chatBody("auto", strings.Repeat("tea ", 1+source.IntN(300)), "")
			expected := r.explained("/v1/chat/completions", body)
			if text := strings.Join(expected.Notes, "\n"); !strings.Contains(text, "score ") ||
				strings.Contains(text, "; thresholds: large above ") != (i >= before) {
				t.Fatalf("request %d is explained with the notes %q", i, expected.Notes)
			}
			got := r.post("/v1/chat/completions", body, "X-Request-ID", fmt.Sprint("r", i))
			tier, rule := tierOf(got)
			want := map[bool]string{true: "share", false: "default"}[i >= before]
			if got.status != http.StatusOK || rule != want ||
				expected.Tier != tier || expected.Rule != rule || expected.Note != noteOf(got) {
				t.Fatalf("request %d: %d at %s by %s, explained as %s by %s: %s", i, got.status, tier, rule, expected.Tier,
					expected.Rule, expected.Note)
			}
			if i >= before {
				counts[tier]++
			}
		}
		// The seed is fixed; the standard error of 1,000 prompts is up to 16, and that of the thresholds up to 20.
		for tier, want := range map[string]int{"small": 600, "medium": 300, "large": 100} {
			if got := counts[tier]; got < want-40 || got > want+40 {
				t.Errorf("%s got %d of %d prompts, want about %d", tier, got, n, want)
			}
		}
		r.until("all requests are recorded", func() bool { return len(r.recorded().Last(0)) == before+n })
		records := map[string]*decisions.Decision{}
		for _, d := range r.recorded().Last(0) {
			records[d.RequestID] = d
		}
		for i := range before + n {
			d := records[fmt.Sprint("r", i)]
			if d == nil {
				t.Fatalf("request %d has no record", i)
			}
			s := d.Features.Score
			if s == nil || len(s.Thresholds) != map[bool]int{true: 2, false: 0}[i >= before] || s.Value <= 0 {
				t.Fatalf("request %d has the score %+v", i, s)
			}
		}
		a := r.replay(`{"last":1200}`)
		if want := before + n; a.TiersReproduced.N != want || a.TiersReproduced.Of != want {
			t.Errorf("%+v of %d tiers are reproduced", a.TiersReproduced, want)
		}
	})
}

// TestAPastShareIsExplained by its recorded score and thresholds.
func TestAPastShareIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShareRig(t, "preset: none, score: { medium: 4, large: 8.5 }")
		got := r.post("/v1/chat/completions", chatBody("auto", strings.Repeat("x", 31), ""), "X-Request-ID", "why-1")
		if reason := got.header.Get("X-Tier-Reason"); reason != "score; above 4" {
			t.Errorf("the reason is %q", reason)
		}
		r.until("the request is recorded", func() bool { return len(r.recorded().Last(0)) == 1 })
		e := r.explain(http.StatusOK, order{"decision": "why-1"})
		if !slices.Contains(e.Notes, "score 5; thresholds: large above 8.5, medium above 4") || e.Rule != "score" {
			t.Errorf("the explanation is %+v", e)
		}
	})
}

// TestTheShareOfADraftIsReplayed: a draft with other shares makes its own thresholds of the recorded scores.
func TestTheShareOfADraftIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShareRig(t, "preset: graded, sticky: { enabled: false }")
		source := rand.New(rand.NewPCG(5, 6))
		const n = 800
		for range n {
			r.post("/v1/chat/completions", chatBody("auto", strings.Repeat("tea ", 1+source.IntN(300)), ""))
		}
		r.until("all requests are recorded", func() bool { return len(r.recorded().Last(0)) == n })
		a := r.replay(fmt.Sprintf(`{"draft":%q}`, r.edited("classifier: { share: { large: 0.05 } }")))
		var medium, large, up int
		for _, m := range a.ChangedTier {
			switch {
			case m.From == "medium":
				medium += m.N
			case m.From == "large":
				large += m.N
			}
			if m.To == "large" {
				up += m.N
			}
		}
		// Of 600 prompts with thresholds, about 180 leave medium. About 30 of 60 stay at large.
		// The first 200 are left out, because the shares of the draft have not started.
		if medium < 150 || medium > 210 || large < 15 || large > 45 || up > 0 || a.Decided != n-200 ||
			!slices.Equal(a.Skipped, []replay.Count{{Name: replay.SkippedShare, N: 200}}) {
			t.Errorf("%d leave medium and %d large: %+v, %+v", medium, large, a.ChangedTier, a.Skipped)
		}
	})
}

// TestRequestsThatCountTokensAddNoScore, and others that generate no text.
func TestRequestsThatCountTokensAddNoScore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShareRig(t, "preset: graded, sticky: { enabled: false }")
		body := chatBody("auto", "Count these words.", `,"max_tokens":9,"prompt":"Count these words."`)
		for range 250 {
			if got := r.post("/v1/messages/count_tokens", body); got.status != http.StatusOK {
				t.Fatalf("count_tokens: %d %s", got.status, got.body)
			}
			if got := r.post("/tokenize", body); got.status != http.StatusOK {
				t.Fatalf("tokenize: %d %s", got.status, got.body)
			}
		}
		e := r.explained("/v1/chat/completions", chatBody("auto", "Hi", ""))
		if e.Rule != "default" || e.Note != "share starts after 200 prompts" {
			t.Errorf("the first prompt goes by %s: %s", e.Rule, e.Note)
		}
	})
}

// TestRefusedRequestsAddNoScore: only an admitted request adds one, once.
func TestRefusedRequestsAddNoScore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fmt.Sprintf(`
classifier: { preset: graded, sticky: { enabled: false } }
auth: { keys: [ { name: acme, sha256: %s, limits: { rpm: 1, burst: 199 } } ] }
health: { path: "off" }
tiers:
  - { name: small, model: s, workers: [ %%s ] }
  - { name: large, model: l, workers: [ { name: l0, url: "http://127.0.0.1:10" } ] }
`, digestHex("key")), engines.New(engines.Config{Name: "small", AnyModel: true, Seed: 1}))
		send := func() (status int, rule string) {
			got := r.post("/v1/chat/completions", chatBody("auto", "Hi", ""), "Authorization", "Bearer key")
			_, rule = tierOf(got)
			return got.status, rule
		}
		for i := range 299 {
			status, rule := send()
			if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 199]; status != want {
				t.Fatalf("request %d: %d by %s", i, status, rule)
			}
		}
		for i, want := range []string{"default", "share"} { // the 200th admitted request, and the next
			time.Sleep(time.Minute) // the limit admits one more
			if status, rule := send(); status != http.StatusOK || rule != want {
				t.Errorf("admitted request %d: %d by %s, want %s", 200+i, status, rule, want)
			}
		}
	})
}

// noteOf returns the note of X-Tier-Reason.
func noteOf(got httpAnswer) string {
	_, note, _ := strings.Cut(got.header.Get("X-Tier-Reason"), "; ")
	return note
}
