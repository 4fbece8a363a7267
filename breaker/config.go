package breaker

import (
	"cmp"
	"time"
)

// Config is the breaker section of a configuration. A zero field means the default, except
// in Slow, where zero turns a rule off.
type Config struct {
	ConsecutiveFailures int           `yaml:"consecutive_failures" min:"1" max:"1000" doc:"Consecutive failures after which the worker is ejected."`
	FailureRatio        float64       `yaml:"failure_ratio" above:"0" max:"1" doc:"Share of failed requests within 'window' at which the worker is ejected."`
	MinRequests         int           `yaml:"min_requests" min:"1" doc:"Minimum number of requests within 'window' for 'failure_ratio' to apply."`
	Window              time.Duration `yaml:"window" doc:"Period over which 'failure_ratio' is computed."`
	OpenFor             time.Duration `yaml:"open_for" doc:"How long an ejected worker receives no requests, varied at random by up to 10%. A successful health check ends this time early, unless the worker was ejected as slow. After a failed probe or a hang of the engine, health checks count only after 5 s; this delay doubles with each further failure."`
	Probes              int           `yaml:"probes" min:"1" max:"10" doc:"Maximum number of concurrent probes: requests that try the worker after 'open_for'. After this many consecutive successes it returns to rotation; one failure ejects it again."`
	ProbeTimeout        time.Duration `yaml:"probe_timeout" doc:"Maximum time of a probe until its first event, or three times the predicted time if that is longer. A probe that exceeds it has failed."`
	Slow                Slow          `yaml:"slow" doc:"Ejection of slow workers."`
}

// Slow is the rule that makes a worker too slow. Package routing applies it.
type Slow struct {
	Factor     float64       `yaml:"factor" max:"1000" doc:"A worker is slow if the ratio of its time to first token to the predicted time exceeds its peers' ratio by this factor. Only streams of the same period are compared. 0 turns the rule off."`
	MinSamples int           `yaml:"min_samples" min:"5" max:"64" doc:"Minimum number of streams within five minutes for a worker to count as slow."`
	P95Above   time.Duration `yaml:"p95_above" zero:"true" doc:"A worker is also slow if the 95th percentile of its time to first token exceeds this. '0s' turns the rule off."`
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
