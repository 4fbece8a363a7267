package rig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
)

const (
	// Patience bounds every wait for something that is expected to happen: far more
	// than it takes, on a machine that is busy with other tests.
	Patience = 30 * time.Second
	// Pace is how often a condition is looked at.
	Pace = 5 * time.Millisecond
	// Whole is the TIERWAY_SOAK from which on a load has its full size.
	Whole = time.Minute
)

// Main runs the tests of a package with the binary of [gateway.Main], without the
// OTEL_ variables of the developer. Call it from TestMain and exit with its result.
func Main(m *testing.M) int {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			if err := os.Unsetenv(name); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
	return gateway.Main(m)
}

// Soak is how long a load lasts: TIERWAY_SOAK, but at least short.
func Soak(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv("TIERWAY_SOAK")
	if v == "" {
		return short
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("TIERWAY_SOAK is %q: %v", v, err)
	}
	return max(d, short)
}

// Settings is a configuration: each top-level key with its value in YAML.
type Settings map[string]string

// String is the configuration file.
func (s Settings) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", key, s[key])
	}
	return b.String()
}

// With returns a copy of the settings with others over them.
func (s Settings) With(own Settings) Settings {
	all := maps.Clone(s)
	maps.Copy(all, own)
	return all
}

// Write puts the configuration into a file of the test's own and returns its path.
func (s Settings) Write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Digest is a key as configurations hold it.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Eventually asks again until there is no error. The test fails with the last error
// after [Patience].
func Eventually(t testing.TB, holds func() error) {
	t.Helper()
	Within(t, Patience, holds)
}

// Within is [Eventually] with a bound of its own. It returns how long it took.
func Within(t testing.TB, most time.Duration, holds func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(Pace)
	defer tick.Stop()
	for {
		err := holds()
		took := time.Since(begin)
		if err == nil {
			return took
		}
		if took > most {
			t.Fatalf("waited %v in vain: %v", most, err)
		}
		<-tick.C
	}
}

// Pause waits d; false when ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Scrape reads a page of metrics, without a key.
func Scrape(url string) (gateway.Samples, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d", url, resp.StatusCode)
	}
	return gateway.ReadSamples(resp.Body)
}
