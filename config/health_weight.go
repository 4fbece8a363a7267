package config

import (
	"fmt"

	"tierway/routing"
)

// HealthWeight configures weights that follow success ratios. In a tier or pool, nil fields inherit
// the file's value, key by key.
type HealthWeight struct {
	Enabled  *bool    `yaml:"enabled" doc:"Reduce the weight of workers that fail requests."`
	Healthy  *float64 `yaml:"healthy" above:"0" max:"1" doc:"Recent success ratio from which a worker has its whole weight. Only outcomes that the circuit breaker counts are part of the ratio."`
	Degraded *float64 `yaml:"degraded" above:"0" max:"1" doc:"Recent success ratio at which a worker has its weight times 'factor'. Below 'healthy'. Between both ratios, the weight is interpolated."`
	Factor   *float64 `yaml:"factor" above:"0" max:"1" doc:"Share of its weight that a worker keeps at 'degraded'. At a success ratio of 0 it keeps the square of this share, never nothing."`
}

func defaultHealthWeight() HealthWeight {
	return HealthWeight{
		Enabled: new(false),
		// Over fifty requests, one failure is a ratio of 98 %.
		Healthy: new(0.9),
		// Below one half, breaker.failure_ratio ejects the worker.
		Degraded: new(0.7),
		Factor:   new(0.5),
	}
}

func (h HealthWeight) config() routing.HealthWeight {
	if !valueOf(h.Enabled) {
		return routing.HealthWeight{}
	}
	return routing.HealthWeight{Healthy: valueOf(h.Healthy), Degraded: valueOf(h.Degraded),
		Factor: valueOf(h.Factor)}
}

// checkHealthWeights checks the ratios of the file's section and of those of tiers and pools.
func (d *decoder) checkHealthWeights(f *File) {
	d.checkHealthWeight("health_weight", f.HealthWeight)
	on := false // in some tier or pool
	for _, s := range f.sections() {
		h := overlay(s.HealthWeight, f.HealthWeight)
		d.checkHealthWeight(s.path+".health_weight", h)
		d.checkOff(s.path+".health_weight", valueOf(h.Enabled))
		on = on || valueOf(h.Enabled)
	}
	d.checkOff("health_weight", on)
}

// checkHealthWeight reports ratios in the wrong order.
func (d *decoder) checkHealthWeight(path string, h HealthWeight) {
	healthy, degraded := valueOf(h.Healthy), valueOf(h.Degraded)
	switch {
	case degraded < healthy:
	case d.written(path + ".degraded"):
		d.report(path+".degraded", fmt.Sprintf("%v is not below healthy (%v)", degraded, healthy),
			"lower it, or raise healthy")
	case d.written(path + ".healthy"):
		d.report(path+".healthy", fmt.Sprintf("%v is not above degraded (%v)", healthy, degraded),
			"raise it, or lower degraded")
	}
}

// checkOff warns of a section that nothing turns on or off.
func (d *decoder) checkOff(path string, on bool) {
	if d.written(path) && !on && !d.written(path+".enabled") && !d.written("health_weight.enabled") {
		d.warn(path, "has no effect: enabled is false", "set enabled: true, or remove the section")
	}
}
