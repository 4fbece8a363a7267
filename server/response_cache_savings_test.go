package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/store"
	"tierway/tenants"
)

// TestSavingsAreInTheUsage: the usage of a tenant counts the requests that the cache answered, and what they would have
// cost more from an engine. A bypass and a miss save nothing.
func TestSavingsAreInTheUsage(t *testing.T) {
	for _, c := range []struct {
		more  string
		share float64
	}{{"", 0}, {", cached_price: 0.3", 0.3}, {", cached_price: 1", 1}} {
		synctest.Test(t, func(t *testing.T) {
			yaml := strings.Replace(adminYAML(memoryDB), "    serves:",
				"    price: { input: 1000, cached_input: 1, output: 1000 }\n"+
					"    response_cache: { exact: {}"+c.more+" }\n    serves:", 1)
			yaml = strings.Replace(yaml, digestHex("filed")+" }", digestHex("filed")+", response_cache: true }", 1)
			r := adminRigOf(newRig(t, yaml, &numberingEngine{}))
			body, key := cacheBodies["/v1/chat/completions"], []string{"Authorization", "Bearer filed"}
			for i, step := range []struct{ more, want string }{{"}", cacheMiss}, {"}", exactHit}, {`,"stream":true}`, exactHit},
				{`,"n":2}`, bypassed}, {"}", exactHit}} {
				if _, result := r.cached("/v1/chat/completions", body+step.more, key...); result != step.want {
					t.Fatalf("%d: %s", i, result)
				}
			}
			r.proxy.FlushRecords()
			if err := r.control.Stores.Ledger.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			one := tenants.Price{Input: 1000, Output: 1000}.Cost(9, 0, 4)
			paid := one.Share(c.share)
			got := decode[usageShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/filed/usage", "")).Items
			want := store.UsageRow{Day: "2000-01-01", Requests: 5, Prompt: 45, Cached: 27, Output: 20, Money: 2*one + 3*paid,
				CachedRequests: 3, Saved: 3 * (one - paid)}
			if len(got) != 1 || got[0] != want {
				t.Errorf("usage %+v, want %+v", got, want)
			}
			csv := r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/filed/usage", "", "Accept", "text/csv").body
			if line := fmt.Sprintf(",45,27,20,%v,3,%v\n", want.Money, want.Saved); !strings.Contains(csv, line) ||
				!strings.Contains(csv, ",money,cached_requests,saved\n") {
				t.Errorf("%q is not in %q", line, csv)
			}
			r.wantMetrics(`tierway_response_cache_saved_tokens_total{kind="prompt"} 27`,
				`tierway_response_cache_saved_tokens_total{kind="output"} 12`)
		})
	}
}
