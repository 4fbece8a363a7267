package telemetry

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

func (d *definer) buildInfo(version string) {
	const name = "tierway_build_info"
	const help = "Always 1. The labels are the version of the program, the version of Go that built it, and the " +
		"revision of its sources. The revision of a build outside a repository is unknown."
	labels := []string{"version", "goversion", "revision"}
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	g.WithLabelValues(version, runtime.Version(), cmp.Or(sourceRevision(), "unknown")).Set(1)
	define(d, g, name, "gauge", help, labels...)
}

// sourceRevision returns the revision that the Go tool recorded in the binary; "" if there
// is none.
func sourceRevision() (revision string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return revision
}
