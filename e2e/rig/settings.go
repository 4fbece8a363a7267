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
	// Patience bounds every wait for an expected event. It is far longer than any event takes,
	// even on a machine that is busy with other tests.
	Patience = 30 * time.Second
	// Pace is the interval at which a condition is checked.
	Pace = 5 * time.Millisecond
	// FullSoak is the smallest TIERWAY_SOAK at which a load has its full size.
	FullSoak = time.Minute
)

// Main runs the tests of a package with the binary of [gateway.Main]. It unsets the OTEL_*
// variables, so that no test exports traces by accident. Call it from TestMain and exit with
// its result.
func Main(m *testing.M) int {
	if err := UnsetTelemetry(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return gateway.Main(m)
}

// UnsetTelemetry unsets the OTEL_* variables.
func UnsetTelemetry() error {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Soak returns how long a load lasts: TIERWAY_SOAK, but at least short.
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

// Settings is a configuration: top-level keys with their values in YAML.
type Settings map[string]string

// String returns the text of the configuration file.
func (s Settings) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", key, s[key])
	}
	return b.String()
}

// With returns a copy of the settings with overrides.
func (s Settings) With(overrides Settings) Settings {
	all := maps.Clone(s)
	maps.Copy(all, overrides)
	return all
}

// Write writes the configuration to a temporary file of the test and returns its path.
func (s Settings) Write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Digest returns the SHA-256 of a key in hexadecimal, as configurations store it.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Eventually calls holds until it returns nil. After [Patience], the test fails with the last
// error.
func Eventually(t testing.TB, holds func() error) {
	t.Helper()
	Within(t, Patience, holds)
}

// slowestPace is the largest interval between checks in virtual time. There a check costs more than a wait, so the
// interval grows.
const slowestPace = 50 * Pace

// Within is [Eventually] with the bound limit. It returns the time that the wait took.
func Within(t testing.TB, limit time.Duration, holds func() error) time.Duration {
	t.Helper()
	begin, pace, virtual := time.Now(), Pace, EnvironmentOf(t).Virtual
	for {
		err := holds()
		took := time.Since(begin)
		if err == nil {
			return took
		}
		if took > limit {
			t.Fatalf("timeout after %v: %v", limit, err)
		}
		time.Sleep(pace)
		if virtual {
			pace = min(pace+pace/4, slowestPace)
		}
	}
}

// Pause waits for d. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Scrape reads the metrics at url, without a key.
func Scrape(url string) (gateway.Samples, error) { return scrape(nil, url) }

// scrape reads the metrics at url with a client; nil: http.DefaultClient.
func scrape(c *http.Client, url string) (gateway.Samples, error) {
	if c == nil {
		c = http.DefaultClient
	}
	resp, err := c.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d", url, resp.StatusCode)
	}
	return gateway.ReadSamples(resp.Body)
}
