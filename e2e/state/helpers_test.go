package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// about returns the lines of a gateway's log that have a word in them, in any
// case, but for those of the access log.
func about(p *gateway.Process, word string) (lines []string) {
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, `"msg":"request"`) || !contains(line, word) {
			continue
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// contains reports whether text has a word in it, in any case.
func contains(text, word string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(word))
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// sorted sorts durations.
func sorted(t times) times {
	slices.Sort(t)
	return t
}

// over is how many durations are above one.
func (t times) over(d time.Duration) (n int) {
	for _, took := range t {
		if took > d {
			n++
		}
	}
	return n
}

// readyz returns a gateway's readiness: the status, and the parts that are
// degraded.
func readyz(p *gateway.Process) (status int, degraded []string) {
	status, body := p.GetData("/readyz")
	var state struct {
		Degraded []string `json:"degraded"`
	}
	if json.Unmarshal([]byte(body), &state) != nil {
		return status, nil
	}
	return status, state.Degraded
}

// lists waits until /readyz, which stays 200, lists a degraded part that has word
// in its name.
func lists(t *testing.T, p *gateway.Process, word string) {
	t.Helper()
	rig.Within(t, rig.Patience, func() error {
		status, degraded := readyz(p)
		if status != http.StatusOK {
			t.Errorf("/readyz is %d: a balancer would take everybody away", status)
		}
		for _, part := range degraded {
			if contains(part, word) {
				return nil
			}
		}
		return errorf("/readyz lists %q and nothing of %s", degraded, word)
	})
}

// commandFile is a configuration for commands that only need the database.
func commandFile(t *testing.T, sql string) string {
	t.Helper()
	// A worker that nobody asks: a configuration without tiers is none.
	return rig.Settings{"store": stores(sql, ""),
		"tiers": `[ { name: small, model: sim, workers: [ { name: w, url: "http://127.0.0.1:1" } ] } ]`}.Write(t)
}
