package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// H1: a hook runs before a kept answer is sent, in every dialect. A rejected request gets none, and a changed body
// decides which one.
func TestH1HooksRunBeforeAKeptAnswer(t *testing.T) {
	for path, base := range cacheBodies {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook, e := newHookService(t, says(sayAllow)), &numberingEngine{}
				r := newRig(t, "hooks: [ "+hook.line("guard", ", transform: true")+" ]\n"+cachingRig, e)
				body := base + "}"
				other := strings.Replace(body, `"hi"`, `"bye"`, 1)
				for i, c := range []struct {
					says, body           string
					status               int
					result, hooks, holds string
					engine               int
				}{
					{sayAllow, body, 200, cacheMiss, "guard", "1", 1},
					{sayAllow, body, 200, exactHit, "guard", "1", 1},
					{sayReject, body, 403, "", "guard:rejected", "it names a patient", 1},
					{"no JSON", body, 503, "", "guard:error", "", 1},
					{transformTo(other), body, 200, cacheMiss, "guard:transformed", "2", 2},
					{sayAllow, other, 200, exactHit, "guard", "2", 2},
					{transformTo(body), other, 200, exactHit, "guard:transformed", "1", 2},
					{transformTo(base + `,"top_p":0.5}`), body, 200, cacheMiss, "guard:transformed", "3", 3},
					{sayAllow, body, 200, exactHit, "guard", "1", 3},
				} {
					hook.answerWith(says(c.says))
					calls := len(hook.calls())
					got, result := r.cached(path, c.body)
					header := got.header.Get("X-Tierway-Hooks")
					if got.status != c.status || result != c.result || header != c.hooks || e.count() != c.engine ||
						!strings.Contains(got.body, c.holds) || len(hook.calls()) != calls+1 {
						t.Errorf("%d: %d %q, hooks %q, %d requests at the engine, %d calls, want %+v: %s", i, got.status, result,
							header, e.count(), len(hook.calls())-calls, c, got.body)
					}
					if kept := got.header.Get("Cache-Status"); c.status != http.StatusOK && kept != "" {
						t.Errorf("%d: a rejected request has Cache-Status %q", i, kept)
					}
				}
			})
		})
	}
}

// The time that hooks and an embedding take is no overhead of the gateway, also if a kept answer is sent.
func TestTheTimeOfOtherServicesIsNoOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(150 * time.Millisecond)
			says(sayAllow)(w, r)
		})
		words := &wordEngine{}
		embedder := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(50 * time.Millisecond)
			words.ServeHTTP(w, r)
		}))
		const section = "{ exact: {}, semantic: { embeddings: embed-1, threshold: 0.9 } }"
		r := newRig(t, "hooks: [ "+hook.line("guard", "")+" ]\n"+fmt.Sprintf(semanticRig, section, embedder),
			&numberingEngine{})
		for _, c := range []struct{ text, want string }{
			{"What is the tallest mountain of Europe?", cacheMiss},
			{"What is the tallest mountain of Europe?", exactHit},
			{"what is the tallest mountain of Europe", semanticHit},
		} {
			_, result := r.cached("/v1/chat/completions", chatWith("s", c.text))
			if d := r.lastDecision(); result != c.want || d.OverheadMs >= 50 {
				t.Errorf("%s, want %s; the overhead is %v ms", result, c.want, d.OverheadMs)
			}
		}
	})
}

// A hook receives a request once: the gateway's own request for an embedding of the same text skips the hooks.
func TestEmbeddingsOfTheGatewaySkipTheHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, e, words := newHookService(t, says(sayAllow)), &numberingEngine{}, &wordEngine{}
		r := newRig(t, "hooks: [ "+hook.line("guard", "")+" ]\n"+
			fmt.Sprintf(semanticRig, "{ semantic: { embeddings: embed-1, threshold: 0.9 } }", startServer(t, words)), e)
		for i, want := range []string{cacheMiss, semanticHit} {
			_, result := r.cached("/v1/chat/completions", chatWith("s", "What is the tallest mountain of Europe?"))
			if calls := hook.calls(); result != want || len(calls) != i+1 || words.n.Load() != int64(i+1) {
				t.Errorf("%s, want %s; calls %q, %d embeddings", result, want, calls, words.n.Load())
			}
		}
	})
}
