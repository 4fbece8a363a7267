// Package breaker stops sending to a worker that keeps failing, and finds it
// again when it is well.
package breaker

import "time"

// Config says when a worker gets nothing and for how long. All zero means the
// defaults of Default.
type Config struct {
	ConsecutiveFailures int           `yaml:"consecutive_failures"` // failures in a row that open it
	FailureRatio        float64       `yaml:"failure_ratio"`        // share of failures within Window that opens it
	MinRequests         int           `yaml:"min_requests"`         // verdicts within Window before the share counts
	Window              time.Duration `yaml:"window"`
	OpenFor             time.Duration `yaml:"open_for"`      // how long it stays open, spread by a tenth
	Probes              int           `yaml:"probes"`        // requests at once that try a worker after that, all of which must succeed
	ProbeTimeout        time.Duration `yaml:"probe_timeout"` // a probe without a verdict by then has failed
	Slow                Slow          `yaml:"slow"`
}

// Slow says when a worker counts as too slow to be used.
type Slow struct {
	Factor     float64       `yaml:"factor"`      // times its peers' ratio of observed to predicted time to first token; 0 turns it off
	MinSamples int           `yaml:"min_samples"` // streams before the median says anything
	P95Above   time.Duration `yaml:"p95_above"`   // also slow when 95 of 100 first tokens take longer than this; 0 turns it off
}

// Default returns the configuration of an empty breaker section.
func Default() Config {
	return Config{
		ConsecutiveFailures: 5, FailureRatio: 0.5, MinRequests: 20,
		Window: 30 * time.Second, OpenFor: 60 * time.Second,
		Probes: 1, ProbeTimeout: 10 * time.Second,
		Slow: Slow{Factor: 3, MinSamples: 20},
	}
}
