package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// twoTiersYAML has two tiers. Its verbs are their workers.
const twoTiersYAML = `
store: { sql: "" }
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
  - { name: large, model: fake-70b, workers: [ %s ] }
`

// TestSeriesOfRemovedWorkersAndTiersDisappear: a moved worker has no series in its old tier. A removed
// tier has none, including its queue and rules. Other series continue.
func TestSeriesOfRemovedWorkersAndTiersDisappear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stays, moves, home := entryOf("stays", startServer(t, anyModel()), 1),
			entryOf("moves", startServer(t, anyModel()), 1),
			entryOf("home", startServer(t, anyModel()), 1)
		r, from := newReloadRig(t, fmt.Sprintf(twoTiersYAML, listOf(stays, moves), home)+"# %s")
		sendChats := func(tier string) {
			for range 8 { // so that both workers serve some
				if got := r.post("/v1/chat/completions", chatBody(tier, "hi", "")); got.status != http.StatusOK {
					t.Fatalf("%d: %s", got.status, got.body)
				}
			}
		}
		// with returns the series that have all the labels.
		with := func(labels ...string) (found []string) {
			for series := range strings.Lines(r.scrape()) {
				all := true
				for _, l := range labels {
					all = all && strings.Contains(series, l)
				}
				if all {
					found = append(found, strings.TrimSpace(series))
				}
			}
			return found
		}
		sendChats("small")
		sendChats("large")
		if len(with(`tier="small"`, `worker="moves"`)) == 0 ||
			len(with(`tierway_queue_wait_seconds_count{`, `tier="large"`)) == 0 {
			t.Fatalf("there are no series to remove: %q", with("tier="))
		}
		from.write(fmt.Sprintf(twoTiersYAML, stays, listOf(home, moves)))
		r.reload()
		if left := with(`tier="small"`, `worker="moves"`); len(left) > 0 {
			t.Errorf("series of a moved worker remain: %q", left)
		}
		if len(with(`tier="large"`, `worker="moves"`)) == 0 {
			t.Error("a moved worker has no series in its new tier")
		}
		text, _, _ := strings.Cut(fmt.Sprintf(twoTiersYAML, stays, ""), "  - { name: large")
		from.write(text)
		r.reload()
		if left := with(`tier="large"`); len(left) > 0 {
			t.Errorf("series of a removed tier remain: %q", left)
		}
		sendChats("small")
		if got := with(`tierway_requests_total{dialect="chat",outcome="ok",tier="small"} 16`); len(got) != 1 {
			t.Errorf("the remaining tier counted %q", with(`tierway_requests_total{dialect="chat"`))
		}
	})
}
