package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// TestCacheHitsAreComparedWithPredictions only for engines that report cached tokens.
func TestCacheHitsAreComparedWithPredictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prompt := strings.Repeat("the quick brown fox jumps over the lazy dog ", 200)
		for details, want := range map[string][]string{
			"": {"0", "0"},
			`,"prompt_tokens_details":{"cached_tokens":0}`:    {"0", "more"},
			`,"prompt_tokens_details":{"cached_tokens":1000}`: {"2000", "more"},
		} {
			r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if _, err := io.Copy(io.Discard, q.Body); err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json")
				writeNow(t, w,
					`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2000,"completion_tokens":1`+details+`}}`)
			}))
			for range 2 {
				if a := r.post("/v1/chat/completions", fmt.Sprintf(`{"model":"small","messages":[{"role":"user","content":%q}]}`,
					prompt)); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			var got []string
			for _, name := range []string{"tierway_prefix_cached_tokens_total", "tierway_prefix_predicted_tokens_total"} {
				for line := range strings.Lines(r.scrape()) {
					if strings.HasPrefix(line, name+"{") {
						v := line[strings.LastIndexByte(line, ' ')+1 : len(line)-1]
						if name == "tierway_prefix_predicted_tokens_total" && v != "0" {
							v = "more"
						}
						got = append(got, v)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", details, diff)
			}
		}
	})
}
