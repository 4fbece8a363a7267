package browser_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

const (
	// specTime bounds the run of one file, which has up to 15 test cases of a second or two each.
	specTime = 5 * time.Minute
	// specsAtOnce is the number of files that run at once. A browser, its test and its gateway use
	// about one core together.
	specsAtOnce = 2
	// stopTime is the time in which Playwright closes its browser after an interrupt.
	stopTime = 30 * time.Second
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// TestSmokeJourney runs one file, which uses the pages that matter most.
func TestSmokeJourney(t *testing.T) {
	gateway.DependOn(t, ".", "tests")
	newFixture(t).runSpec("tests/journey.spec.ts", "journey")
}

// TestBrowser runs each file of tests/ against a gateway of its own.
func TestBrowser(t *testing.T) {
	specs, err := filepath.Glob("tests/*.spec.ts")
	if err != nil || len(specs) == 0 {
		t.Fatalf("tests/ has no file *.spec.ts: %v", err)
	}
	slots := make(chan struct{}, specsAtOnce)
	for _, spec := range specs {
		name := strings.TrimSuffix(filepath.Base(spec), ".spec.ts")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			newFixture(t).runSpec(filepath.ToSlash(spec), name)
		})
	}
}

// runSpec runs a file with Playwright and meanwhile executes the commands of its test cases. The
// test fails unless all test cases pass.
func (f *fixture) runSpec(spec, name string) {
	f.t.Helper()
	results := resultsFolder(f.t, name)
	ctx, cancel := context.WithTimeout(f.t.Context(), specTime)
	c := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "playwright"), "test", spec)
	c.Env = append(os.Environ(), "FORCE_COLOR=0", "RESULTS_DIR="+results)
	c.Env = append(c.Env, f.variables()...)
	c.SysProcAttr = gateway.EndWithParent()
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = stopTime
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- c.Run()
	}()
	reported := false
	defer func() {
		cancel()
		<-done
		if !reported { // a command has ended the test
			f.t.Logf("playwright:\n%s", out.String())
		}
	}()
	for {
		select {
		case command := <-f.commands:
			command()
		case err := <-ended:
			f.report(out.String(), results, err)
			reported = true
			return
		}
	}
}

// report fails the test unless Playwright passed at least one test case and skipped none.
func (f *fixture) report(out, results string, err error) {
	f.t.Helper()
	passed := count(out, "passed")
	switch skipped := count(out, "skipped") + count(out, "did not run"); {
	case errors.Is(err, os.ErrNotExist):
		f.t.Errorf("starting Playwright: %v (make deps fetches it)", err)
	case err != nil:
		f.t.Errorf("playwright: %v; screenshots are in %s\n%s", err, results, out)
	case passed == 0 || skipped > 0:
		f.t.Errorf("%d test cases passed and %d were skipped\n%s", passed, skipped, out)
	default:
		f.t.Logf("%d test cases passed", passed)
	}
}

// count returns the number that Playwright's list reporter prints before what; 0 if it prints none.
func count(out, what string) int {
	m := regexp.MustCompile(`(?m)^ +(\d+) ` + what + `\b`).FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // the pattern has digits only
	return n
}

// resultsFolder returns the folder of the screenshots of failed test cases, which is kept.
func resultsFolder(t *testing.T, name string) string {
	t.Helper()
	root, err := gateway.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, ".cache", "browser", name)
}
