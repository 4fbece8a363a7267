package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// MetricName describes one metric that the program can export.
type MetricName struct {
	Subject string   // the heading in docs/metrics.md
	Name    string   // as it is scraped; the series of a histogram add _bucket, _sum and _count
	Type    string   // counter, gauge or histogram
	Help    string   // the help text
	Labels  []string // in the order of their definition
}

// definer creates metrics, registers them and records their names.
type definer struct {
	registry *prometheus.Registry
	subject  string // of the metrics defined next
	names    []MetricName
	observed map[string]*prometheus.Desc // the series that Observe sends, by name
}

func (d *definer) setSubject(subject string) { d.subject = subject }

func (d *definer) addName(name, kind, help string, labels []string) {
	d.names = append(d.names, MetricName{Subject: d.subject, Name: name, Type: kind, Help: help, Labels: labels})
}

func define[C prometheus.Collector](d *definer, c C, name, kind, help string, labels ...string) C {
	d.addName(name, kind, help, labels)
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

// counterSet holds counters of one vector by the value of its last label.
type counterSet map[string]prometheus.Counter

// resolved returns the counters of v with the given labels, one for each value of the last label.
func resolved(v *prometheus.CounterVec, values []string, labels ...string) counterSet {
	c := counterSet{}
	for _, value := range values {
		c[value] = v.WithLabelValues(append(slices.Clip(labels), value)...)
	}
	return c
}

// inc increments the counter of a value. It ignores a value that was not resolved, so that no
// other label value appears.
func (c counterSet) inc(value string) {
	if counter := c[value]; counter != nil {
		counter.Inc()
	}
}

// series records the name of a counter or gauge that another Collector sends.
func (d *definer) series(name, help string, labels ...string) *prometheus.Desc {
	kind := "gauge"
	if valueType(name) == prometheus.CounterValue {
		kind = "counter"
	}
	d.addName(name, kind, help, labels)
	return prometheus.NewDesc(name, help, labels, nil)
}

// valueType returns the type of a series that is not a histogram: counters end in _total.
func valueType(name string) prometheus.ValueType {
	if strings.HasSuffix(name, "_total") {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// Names returns every metric that the program can export, with or without a series now: first
// the metrics of Tierway by subject, then those of the Go runtime and the process, which
// differ between platforms.
func (m *Metrics) Names() []MetricName {
	all := slices.Clone(m.names)
	families, err := m.registry.Gather()
	if err != nil { // a collector failed; the names above do not depend on it
		return all
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			all = append(all, MetricName{Subject: "The Go runtime and the process", Name: f.GetName(),
				Type: strings.ToLower(f.GetType().String()), Help: f.GetHelp(), Labels: labelNames(f)})
		}
	}
	return all
}

const prefix = "tierway_"

// readSeries returns the present values of all series of a metric.
func readSeries(c prometheus.Collector) (all []*dto.Metric) {
	series := make(chan prometheus.Metric)
	go func() { // ends when the loop below has read all series
		defer close(series)
		c.Collect(series)
	}()
	for one := range series {
		if value := new(dto.Metric); one.Write(value) == nil { // only a metric of another type could fail
			all = append(all, value)
		}
	}
	return all
}

// labelOf returns the value of a label; "" if the series has none of that name.
func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func labelNames(f *dto.MetricFamily) (names []string) {
	for _, s := range f.GetMetric() {
		for _, l := range s.GetLabel() {
			if !slices.Contains(names, l.GetName()) {
				names = append(names, l.GetName())
			}
		}
	}
	return names
}
