package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRequestsLimitTheAgeOfAnswers: an answer is not sent if it is older than max-age, and the new one replaces it.
func TestRequestsLimitTheAgeOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cachingRig, &numberingEngine{})
		const path = "/v1/chat/completions"
		for i, s := range []struct {
			control string
			pause   time.Duration
			want    string
			answer  string // number in the text
		}{
			{"", 0, cacheMiss, "1"},
			{"max-age=10", 10 * time.Second, exactHit, "1"},
			{"max-age=10", time.Millisecond, cacheMiss, "2"},
			{"", 5 * time.Second, exactHit, "2"},
			{`no-transform, Max-Age = "5"`, 0, exactHit, "2"},
			{"max-age=4", 0, cacheMiss, "3"},
			{"max-age=99999999999999999999", time.Second, exactHit, "3"},
			{"max-age=9223372037", 0, exactHit, "3"},
			{"max-age=9, max-age=0", 0, bypassed, "4"},
			{"max-age = 0", 0, bypassed, "5"},
			{`max-age="0"`, 0, bypassed, "6"},
			{"max-age=soon", 0, bypassed, "7"},
			{"max-age=-1", 0, bypassed, "8"},
			{"max-age", 0, bypassed, "9"},
			{`no-cache="x"`, 0, bypassed, "10"},
			{"max-age=1, no-store", 2 * time.Second, cacheMiss, "11"},
			{"", 0, exactHit, "10"},
		} {
			time.Sleep(s.pause)
			got, result := r.cached(path, cacheBodies[path]+"}", "Cache-Control", s.control)
			if result != s.want || !strings.Contains(got.body, `\"`+s.answer+`\"`) {
				t.Errorf("%d, %s: %s %s, want %s %s", i, s.control, result, got.body, s.want, s.answer)
			}
		}
	})
}

// TestTheAgeOfSimilarAnswersIsLimitedToo, as of equal ones.
func TestTheAgeOfSimilarAnswersIsLimitedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := newSemanticRig(t, "{ semantic: { embeddings: embed-1 } }")
		body := chatWith("s", "What is the tallest mountain of Europe?")
		r.cached("/v1/chat/completions", body)
		time.Sleep(10 * time.Second)
		for _, s := range []struct{ control, want string }{{"max-age=11", semanticHit}, {"max-age=9", cacheMiss},
			{"max-age=1", semanticHit}} {
			if _, result := r.cached("/v1/chat/completions", body, "Cache-Control", s.control); result != s.want {
				t.Errorf("%s: %s, want %s", s.control, result, s.want)
			}
		}
	})
}

// TestALowerTTLAppliesToKeptAnswers: the ttl in force limits the age of an answer, not that of the time when it was
// kept.
func TestALowerTTLAppliesToKeptAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, section := range map[string]string{exactHit: "{ exact: { ttl: 5m } }",
			semanticHit: "{ semantic: { embeddings: embed-1, ttl: 5m } }"} {
			r, _, _ := newSemanticRig(t, section)
			from := &editableFile{}
			r.source = from.read
			body := chatWith("s", "What is the tallest mountain of Europe?")
			ask := func(want string) {
				t.Helper()
				if _, result := r.cached("/v1/chat/completions", body); result != want {
					t.Errorf("%s, want %s", result, want)
				}
			}
			ask(cacheMiss)
			time.Sleep(time.Minute)
			ask(kind)
			from.write(strings.Replace(r.text, "ttl: 5m", "ttl: 30s", 1))
			r.reload()
			if e := r.explained("/v1/chat/completions", body); e.Cache.Result != cacheMiss {
				t.Errorf("explain says %s", e.Cache.Result)
			}
			ask(cacheMiss)
			time.Sleep(29 * time.Second)
			ask(kind)
		}
	})
}

// TestTwoTemperaturesBypassTheCache: parsers differ in which one they use.
func TestTwoTemperaturesBypassTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cachingRig, &numberingEngine{})
		const path = "/v1/chat/completions"
		for _, more := range []string{`"temperature":1`, `"temperature":0`, `"temperature":null`, `"temper\u0061ture":1`} {
			for _, body := range []string{cacheBodies[path] + "," + more + "}", "{" + more + "," + cacheBodies[path][1:] + "}"} {
				if _, result := r.cached(path, body); result != bypassed || r.lastDecision().Cache.Reason != "temperature" {
					t.Errorf("%s: %s %+v", body, result, r.lastDecision().Cache)
				}
			}
		}
	})
}
