package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
		// Four standard errors of 1,000 prompts with thresholds of at least 200 scores, in points of a thousand.
		for tier, want := range map[string]int{"small": 500, "medium": 300, "large": 200} {
			if got := counts[tier]; got < want-100 || got > want+100 {
				t.Errorf("%s got %d of %d prompts, want about %d", tier, got, n, want)
			}
		}
		r.until("all requests are recorded", func() bool { return len(r.decisions.Last(0)) == before+n })
		for i, d := range r.decisions.Last(0) {
			s := d.Features.Score
			if s == nil || len(s.Thresholds) != map[bool]int{true: 2, false: 0}[i >= before] || s.Value <= 0 {
				t.Fatalf("record %d has the score %+v", i, s)
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
		r.until("the request is recorded", func() bool { return len(r.decisions.Last(0)) == 1 })
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
		r.until("all requests are recorded", func() bool { return len(r.decisions.Last(0)) == n })
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
		// Of 600 prompts with thresholds, about 180 leave medium. About 30 of 120 stay at large.
		if medium < 150 || medium > 210 || large < 70 || large > 110 || up > 0 || a.Decided != n {
			t.Errorf("%d leave medium and %d large: %+v", medium, large, a.ChangedTier)
		}
	})
}

// noteOf returns the note of X-Tier-Reason.
func noteOf(got httpAnswer) string {
	_, note, _ := strings.Cut(got.header.Get("X-Tier-Reason"), "; ")
	return note
}
