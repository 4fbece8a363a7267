package breaker

import (
	"cmp"
	"time"
)

// Config is the breaker section of a configuration. A zero field means the default, except
// in Slow, where zero turns a rule off.
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

// Slow is the rule that makes a worker too slow. Package routing applies it.
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

// withDefaults returns c with the default in every zero field that a breaker reads.
func (c Config) withDefaults() Config {
	d := Default()
	c.ConsecutiveFailures = cmp.Or(c.ConsecutiveFailures, d.ConsecutiveFailures)
	c.FailureRatio = cmp.Or(c.FailureRatio, d.FailureRatio)
	c.MinRequests = cmp.Or(c.MinRequests, d.MinRequests)
	c.Window = cmp.Or(c.Window, d.Window)
	c.OpenFor = cmp.Or(c.OpenFor, d.OpenFor)
	c.Probes = cmp.Or(c.Probes, d.Probes)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, d.ProbeTimeout)
	return c
}
