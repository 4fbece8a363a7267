package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// TestTokenTimesAreMeasuredForTokenStreamsOnly: a whole answer to a request for a stream arrives with
// its last token, and images and audio have no tokens.
func TestTokenTimesAreMeasuredForTokenStreamsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yaml = `
auth: { required: false }
health: { path: "off" }
policy: { name: round_robin }
breaker: { slow: { min_samples: 5, p95_above: 1ms } }
tiers:
  - { name: small, model: fake-7b, serves: [chat, images, audio], workers: [ %s ] }
`
		const usage = `"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}`
		for _, c := range []struct {
			name, path, kind, body string
			timed                  bool
		}{
			{"a whole answer", "/v1/chat/completions", "application/json",
				`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],` + usage + `}`, false},
			{"an image", "/v1/images/generations", "text/event-stream", "data: {\"b64_json\":\"A\"}\n\n", false},
			{"speech", "/v1/audio/speech", "audio/mpeg", "AAAA", false},
			{"a stream of tokens", "/v1/chat/completions", "text/event-stream",
				`data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],` + usage + "}\n\ndata: [DONE]\n\n",
				true},
		} {
			engine := delayedAnswer(10*time.Millisecond, c.kind, c.body)
			r := newRig(t, yaml, engine, engine, engine)
			for range 3 * 6 { // five samples of each worker, and one more
				if a := r.post(c.path,
					`{"model":"small","stream":true,"prompt":"x","input":"x","messages":[{"role":"user","content":"hi"}]}`); a.status !=
					http.StatusOK {
					t.Fatalf("%s: %d %s", c.name, a.status, a.body)
				}
			}
			p, slow := r.control.Snapshot().Pools[0], false
			for _, v := range p.Routing.Snapshot(time.Now()) {
				slow = slow || v.Ref.(*control.Member).Gate.View().State != breaker.Closed
			}
			if slow != c.timed {
				t.Errorf("%s: a worker counts as slow: %v", c.name, slow)
			}
			for line := range strings.SplitSeq(r.scrape(), "\n") {
				switch {
				case strings.HasPrefix(line, "tierway_time_per_output_token_seconds_sum") && strings.Contains(line, " -"):
					t.Errorf("%s: negative time for each token: %s", c.name, line)
				case strings.HasPrefix(line, "tierway_time_per_output_token_seconds_count") &&
					strings.HasSuffix(line, " 0") == c.timed,
					strings.HasPrefix(line, "tierway_time_to_first_token_seconds_count") && strings.HasSuffix(line, " 0") == c.timed:
					t.Errorf("%s: %s", c.name, line)
				}
			}
		}
	})
}
