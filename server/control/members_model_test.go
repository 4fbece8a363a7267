package control

import (
	"log/slog"
	"strings"
	"testing"

	"tierway/workers"
)

// TestAModelThatItsEngineDoesNotListIsLoggedOnce for each list, unless the engine accepts other names.
func TestAModelThatItsEngineDoesNotListIsLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		status workers.Status
		want   int
	}{
		"no list":              {workers.Status{}, 0},
		"listed":               {workers.Status{Models: []string{"other", "m"}}, 0},
		"without its tag":      {workers.Status{Models: []string{"m:latest"}}, 0},
		"llama.cpp":            {workers.Status{Models: []string{"other"}, Engine: "llamacpp"}, 0},
		"another one":          {workers.Status{Models: []string{"other"}}, 1},
		"another one with tag": {workers.Status{Models: []string{"m:7b"}, Engine: "ollama"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := newTestControl(t, small)
			var log strings.Builder
			ctl.Pools.log = slog.New(slog.NewTextHandler(&log, nil))
			w := ctl.Pools.fleet.Get("w0")
			ctl.Pools.observe(w, c.status)
			ctl.Pools.observe(w, c.status)
			if n := strings.Count(log.String(), "model=m"); n != c.want {
				t.Errorf("%d lines: %s", n, log.String())
			}
		})
	}
}
