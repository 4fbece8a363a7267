package bubble

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"testing/synctest"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/fixedseed"
	"tierway/memnet"
)

// Main runs the tests of a package. With TIERWAY_SOAK, it is [rig.Main]. Call it from TestMain and exit with its
// result.
func Main(m *testing.M) int {
	if rig.Soaking() {
		return rig.Main(m)
	}
	if err := rig.UnsetTelemetry(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// With a random seed, as in make soak, all processors are used, so that goroutines interleave.
	Prepare(fixedseed.IsUsual())
	return m.Run()
}

// Test runs f in a bubble. With TIERWAY_SOAK it runs f against the binary, in parallel with other tests.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if rig.Soaking() {
		t.Parallel()
	}
	TestAlone(t, f)
}

// TestAlone is Test without other tests at the same time.
func TestAlone(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if rig.Soaking() {
		f(t)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		transport := &http.Transport{DialContext: network.Dial}
		t.Cleanup(transport.CloseIdleConnections)
		rig.UseEnvironment(t, &rig.Environment{Listen: network.Listen, Dial: network.Dial,
			Launcher: gateway.Launcher{Launch: launcher(network), Client: &http.Client{Transport: transport}, Virtual: true}})
		f(t)
	})
}

// Run runs f as a subtest with Test. The test itself must not be in a bubble.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Test(t, f) })
}
