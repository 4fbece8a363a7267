package sdk_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"tierway/e2e/gateway"
)

// scriptTime bounds one run of scripts, which takes about 20 s on two busy cores.
const scriptTime = 3 * time.Minute

// python returns the interpreter that has the SDKs.
func python(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("TIERWAY_PYTHON"); p != "" {
		return p
	}
	root, err := gateway.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, ".cache", "python", "bin", "python")
}

// tally counts the tests that ran and those that were skipped.
type tally struct{ ran, skipped int }

// runPython runs modules of python/ against a gateway.
func runPython(t *testing.T, p *gateway.Process, modules ...string) tally {
	t.Helper()
	return runPythonWith(t, p, nil, modules...)
}

// runPythonWith is runPython with further variables of the environment.
func runPythonWith(t *testing.T, p *gateway.Process, env []string, modules ...string) tally {
	t.Helper()
	out := runScript(t, p, env, "python", python(t), append([]string{"-m", "unittest"}, modules...)...)
	return tally{
		ran:     count(out, `(?m)^Ran (\d+) tests? in`),
		skipped: count(out, `(?m)^OK \(.*skipped=(\d+)`),
	}
}

// runNode runs files of node/ against a gateway.
func runNode(t *testing.T, p *gateway.Process, files ...string) tally {
	t.Helper()
	return runNodeWith(t, p, nil, files...)
}

// runNodeWith is runNode with further variables of the environment.
func runNodeWith(t *testing.T, p *gateway.Process, env []string, files ...string) tally {
	t.Helper()
	out := runScript(t, p, env, "node", "node", append([]string{"--test", "--test-reporter=tap"}, files...)...)
	return tally{ran: count(out, `(?m)^# tests (\d+)`), skipped: count(out, `(?m)^# skipped (\d+)`)}
}

// runScript runs a program in a folder of e2e and returns its output. The test fails if the program
// fails.
func runScript(t *testing.T, p *gateway.Process, env []string, folder, program string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTime)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = filepath.Join("..", folder)
	c.Env = append(os.Environ(), "BASE_URL="+p.BaseURL, "API_KEY="+p.APIKey, "PYTHONDONTWRITEBYTECODE=1")
	c.Env = append(c.Env, env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v (make deps fetches the SDKs)\n%s", program, args, err, out)
	}
	return out
}

// count returns the number that a pattern matches; 0 without a match.
func count(out []byte, pattern string) int {
	m := regexp.MustCompile(pattern).FindSubmatch(out)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1])) // the pattern has digits only
	return n
}
