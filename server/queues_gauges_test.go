package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// twoTiers has two tiers, whose workers are its verbs.
const twoTiers = `
store: { sql: "" }
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
  - { name: large, model: fake-70b, workers: [ %s ] }
`

// TestSeriesGoWithWhatTheyTellOf: a worker that moves leaves none in its old tier, a
// tier that leaves the configuration none at all, its queue's and its rules' among
// them; what stays counts on.
func TestSeriesGoWithWhatTheyTellOf(t *testing.T) {
	stays, moves, home := entryOf("stays", served(t, anyModel()), 1), entryOf("moves", served(t, anyModel()), 1),
		entryOf("home", served(t, anyModel()), 1)
	r, from := reloadable(t, fmt.Sprintf(twoTiers, listOf(stays, moves), home)+"# %s")
	ask := func(tier string) {
		for range 8 { // so that each of two workers gets some
			if got := r.post("/v1/chat/completions", ask(tier, "hi", "")); got.status != http.StatusOK {
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
	ask("small")
	ask("large")
	if len(with(`tier="small"`, `worker="moves"`)) == 0 ||
		len(with(`tierway_queue_wait_seconds_count{`, `tier="large"`)) == 0 {
		t.Fatalf("there are no series to go: %q", with("tier="))
	}
	from.write(fmt.Sprintf(twoTiers, stays, listOf(home, moves)))
	r.reload()
	if left := with(`tier="small"`, `worker="moves"`); len(left) > 0 {
		t.Errorf("a worker that moved left %q", left)
	}
	if len(with(`tier="large"`, `worker="moves"`)) == 0 {
		t.Error("a worker that moved has no series where it is")
	}
	text, _, _ := strings.Cut(fmt.Sprintf(twoTiers, stays, ""), "  - { name: large")
	from.write(text)
	r.reload()
	if left := with(`tier="large"`); len(left) > 0 {
		t.Errorf("a tier that is gone left %q", left)
	}
	ask("small")
	if got := with(`tierway_requests_total{dialect="chat",outcome="ok",tier="small"} 16`); len(got) != 1 {
		t.Errorf("the tier that stays counted %q", with(`tierway_requests_total{dialect="chat"`))
	}
}
