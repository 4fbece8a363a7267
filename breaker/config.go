// Package breaker stops sending to a worker that keeps failing, and finds it
// again when it is well. The breakers of one pool form a Group, because how
// many workers may be kept out, and which of them is slow, can only be said of
// all of them together. What counts and when it is enough is gobreaker's work;
// this package adds what gobreaker leaves to its callers: probes that always
// end, news outside all locks, a state that moves without traffic, and a time
// to wait that is not the same for all.
package breaker

import "time"

// Config says when a worker gets nothing and for how long. All zero means the
// defaults of Default, as does each single value that is not above zero and
// whose zero turns nothing off.
type Config struct {
	ConsecutiveFailures int           `yaml:"consecutive_failures"` // failures in a row that open it, however far apart
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
	Factor     float64       `yaml:"factor"`      // times its peers' ratio of observed to predicted time to first token in the same time; 0 turns it off
	MinSamples int           `yaml:"min_samples"` // streams in five minutes before a worker can be slow; at most 64
	P95Above   time.Duration `yaml:"p95_above"`   // also slow when 5 of 100 first tokens take longer than this; 0 turns it off
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

// whole returns the configuration with a meaning in every value.
func (c Config) whole() Config {
	d := Default()
	if c == (Config{}) {
		return d
	}
	c.ConsecutiveFailures = positive(c.ConsecutiveFailures, d.ConsecutiveFailures)
	c.FailureRatio = positive(c.FailureRatio, d.FailureRatio)
	c.MinRequests = positive(c.MinRequests, d.MinRequests)
	c.Window = positive(c.Window, d.Window)
	c.OpenFor = positive(c.OpenFor, d.OpenFor)
	c.Probes = positive(c.Probes, d.Probes)
	c.ProbeTimeout = positive(c.ProbeTimeout, d.ProbeTimeout)
	c.Slow.MinSamples = min(positive(c.Slow.MinSamples, d.Slow.MinSamples), maxSamples)
	return c
}

// positive returns v, or its default when it is not above zero.
func positive[T int | float64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
