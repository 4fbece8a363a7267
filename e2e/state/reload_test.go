package state

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// rewrite replaces a gateway's configuration file atomically, like an editor.
func rewrite(t *testing.T, p *gateway.Process, s rig.Settings) {
	t.Helper()
	draft := filepath.Join(filepath.Dir(p.File), "draft.yaml")
	if err := os.WriteFile(draft, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, p.File); err != nil {
		t.Fatal(err)
	}
}

// TestReloadsLoseNothing reloads changed weights and keywords repeatedly under 10 clients with
// chats and 100 with streams. No request is lost or cut, and each reload is one generation.
//
// CF-01.
func TestReloadsLoseNothing(t *testing.T) {
	t.Parallel()
	const clients, streams = 10, 100
	reloads := rounds(t, 10, 100)
	r := newRig(t, 3, engines.Config{PerToken: 30 * time.Millisecond})
	own := rig.Settings{"store": stores(backends.Database(t), backends.Redis(t).URL),
		"auth": auth("app", "rpm: 1000000, tpm: 1000000000, concurrent: 400")}
	tiers := func(weight int) string {
		return fmt.Sprintf("[ %s, %s ]", r.tier("small", "sim", weight, 0, 1), r.tier("large", "big", weight, 2))
	}
	own["tiers"] = tiers(1)
	p := r.serve(own)
	l := r.newLoad(rig.TenantKey, p.BaseURL)
	l.startStreams(streams)
	l.startChats(clients)
	l.waitForMore(streams)

	begin := time.Now()
	var took times
	for i := range reloads {
		rewrite(t, p, r.Settings(own).With(rig.Settings{
			"tiers":      tiers(1 + i%5),
			"classifier": fmt.Sprintf(`{ keywords: [ { tier: large, name: changing, match: ["word%d"] } ] }`, i),
		}))
		asked := time.Now()
		if status, answer := p.Admin(http.MethodPost, "/admin/reload", "", rig.AdminKey); status != http.StatusOK {
			t.Errorf("reload %d is %d: %s", i, status, answer)
		}
		took = append(took, time.Since(asked))
		l.waitForMore(clients)
	}
	end := time.Now()
	l.end()
	r.checkNothingBooked(400, p.BaseURL)
	m, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Sum("tierway_config_generation"); got != float64(1+reloads) {
		t.Errorf("after %d reloads the generation is %v", reloads, got)
	}
	t.Logf("before the reloads: %v", l.times(time.Time{}, begin))
	t.Logf("during %d reloads: %v; %d streams whole; a reload took %v at most", reloads, l.times(begin, end), l.streams,
		sorted(took).at(1))
}

// TestSmokeEveryWayToReload: the API, SIGHUP and a change of the file each create one generation. An
// invalid file creates none.
//
// CF-02, CF-07, CF-08.
func TestSmokeEveryWayToReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	own := rig.Settings{"store": stores("", ""), "watch": "true"}
	p := r.serve(own)
	generation := func(want float64) {
		t.Helper()
		waitForMetric(t, p, "tierway_config_generation", want, rig.Patience)
	}
	edit := func(weight int) {
		rewrite(t, p, r.Settings(own).With(rig.Settings{"tiers": "[ " + r.tier("small", "sim", weight, 0) + " ]"}))
	}
	edit(2)
	generation(2) // by the change of the file
	edit(3)
	if status, answer := p.Admin(http.MethodPost, "/admin/reload", "", rig.AdminKey); status != http.StatusOK {
		t.Errorf("a reload is %d: %s", status, answer)
	}
	generation(3)
	edit(4)
	p.Signal(syscall.SIGHUP)
	generation(4)

	rewrite(t, p, r.Settings(own).With(rig.Settings{"policy": "{ name: rond_robin }", "nonsense": "1"}))
	status, answer := p.Admin(http.MethodPost, "/admin/reload", "", rig.AdminKey)
	if status != http.StatusUnprocessableEntity || !contains(answer, "rond_robin") || !contains(answer, "nonsense") {
		t.Errorf("a file with two mistakes is %d: %s", status, answer)
	}
	p.Signal(syscall.SIGHUP)
	rig.Within(t, rig.Patience, func() error {
		m, err := p.Metrics()
		if err != nil {
			return err
		}
		if n := m.Sum("tierway_config_reloads_total", `result="rejected"`); n < 2 {
			return errorf("%v reloads were rejected", n)
		}
		return nil
	})
	generation(4)
	if got := r.ask(p.BaseURL); got.Status != http.StatusOK {
		t.Errorf("under the old configuration an answer is %d", got.Status)
	}
	edit(5)
	generation(5)

	// All three at once create one generation.
	edit(6)
	p.Signal(syscall.SIGHUP)
	if status, answer := p.Admin(http.MethodPost, "/admin/reload", "", rig.AdminKey); status != http.StatusOK {
		t.Errorf("one of three reloads is %d: %s", status, answer)
	}
	generation(6)
	edit(7)
	rig.Eventually(t, func() error { // the gateway has read the file after all three
		if _, worker := p.Admin(http.MethodGet, "/admin/workers/w0", "", rig.AdminKey); !contains(worker, `"file":7`) {
			return errorf("the worker is %s", worker)
		}
		return nil
	})
	generation(7)

	got, err := r.post(t.Context(), strings.TrimSuffix(p.BaseURL, "/v1"), "/admin/reload", rig.TenantKey, "{}")
	if err != nil || got.Status != http.StatusNotFound {
		t.Errorf("a tenant's reload on the data plane is %d (%v): %s", got.Status, err, got.Body)
	}
}
