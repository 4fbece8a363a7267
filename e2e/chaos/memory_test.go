package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestBodyMemoryIsBounded: stalled uploads use up max_buffered_bytes until client_stall ends them.
// Meanwhile other requests get 503 with Retry-After; afterwards they are served.
func TestBodyMemoryIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, rig.Settings{"max_body_bytes": "1MiB", "max_buffered_bytes": "6MiB",
			"timeouts": "{ client_stall: 10s }"}, engines.Config{})
		r.WaitUntilReady()
		const length = 1 << 20
		held := func() float64 {
			m, err := r.Metrics()
			if err != nil {
				t.Fatal(err)
			}
			return m.Sum("tierway_request_body_bytes")
		}
		first, second := r.dial(), r.dial()
		for n, c := range []*raw{first, second} {
			c.send(head + fmt.Sprintf("Content-Length: %d\r\n\r\n", length) + strings.Repeat(" ", length*3/4))
			rig.Eventually(t, func() error {
				if have := held(); have < float64((n+1)*length) {
					return fmt.Errorf("%d uploads hold %v bytes", n+1, have)
				}
				return nil
			})
		}
		third := r.dial()
		third.send(head + fmt.Sprintf("Content-Length: %d\r\n\r\n", length) + strings.Repeat(" ", length*3/8))
		refused := third.answer()
		checkError(t, "beyond the budget", refused, http.StatusServiceUnavailable, "overloaded")
		if refused.Header.Get("Retry-After") == "" || !strings.Contains(refused.Body, "max_buffered_bytes") {
			t.Errorf("the refusal is %v %s", refused.Header, refused.Body)
		}
		checkError(t, "a pause", first.answer(), http.StatusRequestTimeout, "request_timeout")
		checkError(t, "another pause", second.answer(), http.StatusRequestTimeout, "request_timeout")
		r.checkNoHits()
		if got := r.post(chat.path, chat.body); got.Status != http.StatusOK {
			t.Errorf("afterwards: %d %s", got.Status, got.Body)
		}
		if n := held(); n != 0 {
			t.Errorf("%v bytes are still held", n)
		}
	})
}
