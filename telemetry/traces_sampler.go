package telemetry

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// sampler decides which requests are exported. It is immutable.
type sampler struct {
	parent bool   // a caller that is known decides for the whole trace
	below  uint64 // of the 63 random bits of the trace's id, who is exported
}

// all is a bound that no trace's id reaches.
const all = 1 << 63

// ratio returns the bound under which the given share of all traces lies: that of
// the SDK's TraceIDRatioBased, so that services with one share choose alike.
func ratio(p float64) uint64 {
	switch {
	case p >= 1:
		return all
	case !(p > 0):
		return 0
	}
	return uint64(p * all)
}

// sampled decides by the id alone.
func (s *sampler) sampled(trace [16]byte) bool {
	return binary.BigEndian.Uint64(trace[8:])>>1 < s.below
}

// sampler returns the sampler that the environment names, or the one that leaves
// the decision to a caller and else exports the given share.
func (e *environment) sampler(share float64) *sampler {
	usual := &sampler{parent: true, below: ratio(share)}
	name := strings.ToLower(e.get(envSampler))
	kind, parent := strings.CutPrefix(name, "parentbased_")
	switch {
	case name == "":
		return usual
	case kind == "always_on":
		return &sampler{parent: parent, below: all}
	case kind == "always_off":
		return &sampler{parent: parent}
	case kind == "traceidratio":
		return &sampler{parent: parent, below: ratio(e.samplerArg())}
	}
	e.warn("%s=%q: the samplers are always_on, always_off, traceidratio, and each with parentbased_ before it; parentbased_traceidratio is used with telemetry.sample", envSampler, name)
	return usual
}

// samplerArg is the share of OTEL_TRACES_SAMPLER_ARG, 1 without one.
func (e *environment) samplerArg() float64 {
	v := e.get(envSamplerArg)
	if v == "" {
		return 1
	}
	p, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(p) || p < 0 || p > 1 {
		e.warn("%s=%q: it must be a number from 0 to 1; 1 is used", envSamplerArg, v)
		return 1
	}
	return p
}
