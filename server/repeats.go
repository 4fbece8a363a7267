package server

import (
	"tierway/pairing"
	"tierway/server/repeats"
)

// newSamples returns the memory of the requests that are to be repeated, or nil if no labels are written.
func (s *Server) newSamples() *pairing.Samples {
	if s.learning == nil {
		return nil
	}
	return new(pairing.Samples)
}

// addRepeater lets the samples be repeated, unless they are nil.
func (s *Server) addRepeater(samples *pairing.Samples, o Options) {
	if samples == nil {
		return
	}
	s.repeats = repeats.New(repeats.Options{
		Control: s.control,
		Samples: samples,
		Send:    s.proxy.Repeat,
		Labels:  s.learning,
		Log:     o.Log,
		Metrics: o.Metrics,
		Rand:    o.Rand,
	})
}
