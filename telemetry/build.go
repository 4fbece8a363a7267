package telemetry

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// build makes the metric that says which program runs.
func (d *definer) build(version string) {
	const name, help = "tierway_build_info", "Always 1; the labels are the program's version, the version of Go that built it and the revision of its sources, unknown where it was built without one."
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"version", "goversion", "revision"})
	g.WithLabelValues(version, runtime.Version(), cmp.Or(revision(), "unknown")).Set(1)
	define(d, g, name, "gauge", help, "version", "goversion", "revision")
}

// revision is that of the sources, as the Go tool has noted it; empty without one.
func revision() (revision string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return revision
}
