package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// MetricName describes one metric that the program can export.
type MetricName struct {
	Subject string   // what it is about, as docs/metrics.md groups them
	Name    string   // as it is scraped; a histogram's series add _bucket, _sum and _count
	Type    string   // counter, gauge or histogram
	Help    string   // what it says
	Labels  []string // in the order in which they are defined
}

// definer makes metrics, registers them and writes down what it has made.
type definer struct {
	registry *prometheus.Registry
	subject  string // of those that come next
	names    []MetricName
	observed map[string]*prometheus.Desc // of the series that Observe sends, by name
}

// about says what the metrics that come next are about.
func (d *definer) about(subject string) { d.subject = subject }

func (d *definer) note(name, kind, help string, labels []string) {
	d.names = append(d.names, MetricName{Subject: d.subject, Name: name, Type: kind, Help: help, Labels: labels})
}

func define[C prometheus.Collector](d *definer, c C, name, kind, help string, labels ...string) C {
	d.note(name, kind, help, labels)
	d.registry.MustRegister(c)
	return c
}

func (d *definer) counter(name, help string) prometheus.Counter {
	return define(d, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}), name, "counter", help)
}

func (d *definer) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	return define(d, c, name, "counter", help, labels...)
}

func (d *definer) gauge(name, help string) prometheus.Gauge {
	return define(d, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}), name, "gauge", help)
}

func (d *definer) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	return define(d, h, name, "histogram", help)
}

func (d *definer) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	return define(d, h, name, "histogram", help, labels...)
}

// counterSet is the counters of one vector by the values of its last label.
type counterSet map[string]prometheus.Counter

// resolved returns the counters of v that have these labels and one of the last values.
func resolved(v *prometheus.CounterVec, last []string, labels ...string) counterSet {
	c := counterSet{}
	for _, value := range last {
		c[value] = v.WithLabelValues(append(slices.Clip(labels), value)...)
	}
	return c
}

// inc counts one. A value that was not resolved counts nothing, so that no other label ever
// comes to be.
func (c counterSet) inc(value string) {
	if one := c[value]; one != nil {
		one.Inc()
	}
}

// series writes down a counter or gauge whose values a Collector of its own sends.
func (d *definer) series(name, help string, labels ...string) *prometheus.Desc {
	kind := "gauge"
	if kindOf(name) == prometheus.CounterValue {
		kind = "counter"
	}
	d.note(name, kind, help, labels)
	return prometheus.NewDesc(name, help, labels, nil)
}

// kindOf returns the type of a series that is no histogram: counters end with _total.
func kindOf(name string) prometheus.ValueType {
	if strings.HasSuffix(name, "_total") {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// Names returns every metric that the program can export, whether or not it has
// a series now: those of Tierway by subject, then those of the Go runtime and of
// the process, which differ from platform to platform.
func (m *Metrics) Names() []MetricName {
	all := slices.Clone(m.names)
	families, err := m.registry.Gather()
	if err != nil { // a collector's own: the names above do not depend on it
		return all
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			all = append(all, MetricName{Subject: "The Go runtime and the process", Name: f.GetName(),
				Type: strings.ToLower(f.GetType().String()), Help: f.GetHelp(), Labels: labelsOf(f)})
		}
	}
	return all
}

// prefix begins the name of every metric that is Tierway's own.
const prefix = "tierway_"

// labelsOf returns the names of the labels that a family's series have.
func labelsOf(f *dto.MetricFamily) (labels []string) {
	for _, s := range f.GetMetric() {
		for _, l := range s.GetLabel() {
			if !slices.Contains(labels, l.GetName()) {
				labels = append(labels, l.GetName())
			}
		}
	}
	return labels
}
