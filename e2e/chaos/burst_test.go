package chaos

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestBurstEjectsNoWorker sends bursts of cached prompts to two healthy engines. The bursts have
// more streams than the engines have slots, so that streams wait inside the engines.
func TestBurstEjectsNoWorker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		prompts, bursts := int64(60), 2
		if soakTime(t) >= rig.FullSoak {
			prompts, bursts = 200, 5
		}
		r := newRig(t, 2, nil, engines.Config{Prefill: 4_000, PerToken: 5 * time.Millisecond, Slots: 16,
			CacheTokens: 1 << 20})
		var refused atomic.Int64
		burst := func(from, count int64) {
			var clients sync.WaitGroup
			for n := from; n < from+count; n++ {
				req := r.Request(t.Context(), http.MethodPost, chat.path, prompt(n, true))
				clients.Go(func() {
					if got, err := r.try(req); err != nil || got.Status != http.StatusOK || !strings.Contains(got.Body, "[DONE]") {
						refused.Add(1)
					}
				})
			}
			clients.Wait()
		}
		for range 2 { // fills the caches of both engines and lets the gateway learn the unloaded latency
			for n := int64(0); n < prompts; n += 5 {
				burst(n, 5)
			}
		}
		for range bursts {
			burst(0, prompts)
		}
		if n := r.breakerOpenings(""); n != 0 {
			t.Errorf("breakers opened %v times", n)
		}
		burst(0, prompts)
		if n := refused.Load(); n != 0 {
			t.Errorf("%d streams were refused or cut", n)
		}
	})
}
