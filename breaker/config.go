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
	ConsecutiveFailures int           `yaml:"consecutive_failures" min:"1" max:"1000" doc:"Failures in a row that take the worker out."`
	FailureRatio        float64       `yaml:"failure_ratio" above:"0" max:"1" doc:"Share of failures within 'window' that takes the worker out."`
	MinRequests         int           `yaml:"min_requests" min:"1" doc:"Requests within 'window' before the share counts."`
	Window              time.Duration `yaml:"window" doc:"How far back failures count."`
	OpenFor             time.Duration `yaml:"open_for" doc:"How long a worker that was taken out gets nothing, spread by a tenth. A good health check ends it early, unless the worker was too slow or a probe has just failed all the same or its engine has just hung."`
	Probes              int           `yaml:"probes" min:"1" max:"10" doc:"Requests at once that try it after that, all of which must succeed."`
	ProbeTimeout        time.Duration `yaml:"probe_timeout" doc:"How long a probe may take to its first event. A longer one has failed."`
	Slow                Slow          `yaml:"slow" doc:"When a worker counts as too slow to be used."`
}

// Slow says when a worker counts as too slow to be used.
type Slow struct {
	Factor     float64       `yaml:"factor" max:"1000" doc:"A worker is slow if it is more than this many times slower than its peers. Speed is the measured time to first token divided by the predicted one, over streams of the same time. 0 turns it off."`
	MinSamples int           `yaml:"min_samples" min:"5" max:"64" doc:"Streams in five minutes that a worker needs before it can count as slow."`
	P95Above   time.Duration `yaml:"p95_above" zero:"true" doc:"Also slow when 5 of 100 first tokens take longer than this. 0s turns it off."`
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
