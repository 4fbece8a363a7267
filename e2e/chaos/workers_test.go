package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
)

// oneTier returns the setting tiers with one tier of workers w0, w1, … at the URLs.
func oneTier(urls ...string) string {
	var list []string
	for i, url := range urls {
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q }", i, url))
	}
	return "[ { name: small, model: sim, workers: [ " + strings.Join(list, ", ") + " ] } ]"
}

// TestWorkerThatIsTheGatewayItselfIsDetected: a chat causes at most two requests (508). With health
// checks, the worker is down.
func TestWorkerThatIsTheGatewayItselfIsDetected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for health, want := range map[string]struct {
			status int
			code   string
		}{
			`{ path: "off" }`: {http.StatusLoopDetected, "loop_detected"},
			`{ path: auto, interval: 10s, timeout: 10s }`: {http.StatusServiceUnavailable, "no_healthy_worker"},
		} {
			at := rig.Address(t)
			yaml := rig.Settings{"auth": `{ required: false }`, "health": health, "drain": `{ accept_grace: 1ms, timeout: 5s }`,
				"tiers": oneTier("http://" + at)}
			p := rig.EnvironmentOf(t).StartAt(t, at, "127.0.0.1:0", yaml.String())
			r := rigOf(t, p)
			if want.code == "no_healthy_worker" {
				p.WaitFor("the worker to be down", func() bool {
					return strings.Contains(p.Log(), "the url leads back to this gateway")
				})
			}
			before, err := p.Metrics()
			if err != nil {
				t.Fatal(err)
			}
			checkError(t, health, r.post(chat.path, chat.body), want.status, want.code)
			after, err := p.Metrics()
			if err != nil {
				t.Fatal(err)
			}
			if n := after.Sum("tierway_requests_started_total") - before.Sum("tierway_requests_started_total"); n > 2 &&
				want.code == "loop_detected" {
				t.Errorf("one chat became %v requests", n)
			}
		}
	})
}
