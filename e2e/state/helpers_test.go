package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// linesWith returns the lines of a gateway's log that contain a word, ignoring case. It skips the
// access log.
func linesWith(p *gateway.Process, word string) (lines []string) {
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, `"msg":"request"`) || !contains(line, word) {
			continue
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// contains reports whether text contains a word, ignoring case.
func contains(text, word string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(word))
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// sorted sorts durations.
func sorted(t times) times {
	slices.Sort(t)
	return t
}

// readyz returns the status of /readyz and the degraded parts that it lists.
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

// waitForDegraded waits until /readyz, which must stay 200, lists a degraded part with word in its
// name.
func waitForDegraded(t *testing.T, p *gateway.Process, word string) {
	t.Helper()
	rig.Within(t, rig.Patience, func() error {
		status, degraded := readyz(p)
		if status != http.StatusOK {
			t.Errorf("/readyz is %d: a balancer would remove the gateway", status)
		}
		for _, part := range degraded {
			if contains(part, word) {
				return nil
			}
		}
		return errorf("/readyz lists %q, which does not include %s", degraded, word)
	})
}

// commandFile writes a configuration for commands that only need the database, and returns its path.
func commandFile(t *testing.T, sql string) string {
	t.Helper()
	// A configuration needs a tier. Its worker receives no requests.
	return rig.Settings{"store": stores(sql, ""),
		"tiers": `[ { name: small, model: sim, workers: [ { name: w, url: "http://127.0.0.1:1" } ] } ]`}.Write(t)
}
