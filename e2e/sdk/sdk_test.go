package sdk_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"tierway/e2e/gateway"
)

func TestMain(m *testing.M) {
	if err := plainEnvironment(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(gateway.Main(m))
}

// plainEnvironment unsets the variables that SDKs read, so that a developer's own keys, headers and
// proxies have no effect.
func plainEnvironment() error {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "OPENAI_") && !strings.HasPrefix(name, "ANTHROPIC_") &&
			!strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return fmt.Errorf("taking %s out of the environment: %w", name, err)
		}
	}
	return nil
}

// TestOfficialSDKs runs the test cases of all SDKs: on the demo, with only its base URL and key, and
// with faulty engines. The runs are parallel, each with its own gateway and engines.
func TestOfficialSDKs(t *testing.T) {
	t.Parallel()
	runs := []struct {
		name string
		do   func(t *testing.T) tally
	}{
		{"Python on the demo", func(t *testing.T) tally {
			return runPython(t, gateway.Demo(t), "test_openai", "test_openai_async", "test_anthropic")
		}},
		{"Python agents on the demo", func(t *testing.T) tally { return runPython(t, gateway.Demo(t), "test_agents") }},
		{"Python on faults", func(t *testing.T) tally { return runPython(t, startFaulty(t).Process, "test_faults") }},
		{"Node on the demo", func(t *testing.T) tally {
			return runNode(t, gateway.Demo(t), "openai.test.js", "anthropic.test.js", "agents.test.js")
		}},
		{"Node on faults", func(t *testing.T) tally { return runNode(t, startFaulty(t).Process, "faults.test.js") }},
		{"Go on the demo", goOnDemo},
		{"Go on faults", goOnFaults},
	}
	results := make([]tally, len(runs))
	t.Run("all", func(t *testing.T) {
		for i, r := range runs {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				results[i] = r.do(t)
			})
		}
	})
	sum, parts := 0, make([]string, len(runs))
	for i, r := range runs {
		if n := results[i]; n.ran == 0 || n.skipped > 0 {
			t.Errorf("%s: %d tests ran, %d were skipped", r.name, n.ran, n.skipped)
		}
		sum += results[i].ran
		parts[i] = fmt.Sprintf("%s %d", r.name, results[i].ran)
	}
	t.Logf("SDK tests: %d (%s)", sum, strings.Join(parts, ", "))
}
