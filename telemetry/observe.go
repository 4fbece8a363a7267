package telemetry

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Observe makes every scrape call read and show what it returns: one of the types of this
// package whose fields have the tags below, or a slice of it. read must be safe for
// concurrent use and quick. Each type is observed once in a process.
//
//	metric  the name of a series
//	help    what the series says
//	with    the series has one more label with a fixed value, such as result=ok; the
//	        fields of one name differ in the value, and the first has the help
//	label   the field is the value of that label, for all fields after it
//
// A field without a tag holds further fields; a nil pointer has no series. A duration is
// shown in seconds, a time as its age, and true as 1.
func Observe[T any](m *Metrics, read func() T) {
	m.registry.MustRegister(observer{m.definer, reflect.TypeFor[T](), func() reflect.Value { return reflect.ValueOf(read()) }})
}

// observer is the prometheus.Collector of the series of one type.
type observer struct {
	d    *definer
	of   reflect.Type
	read func() reflect.Value
}

func (o observer) Describe(ch chan<- *prometheus.Desc) {
	each(o.of, nil, func(name, _ string, _ []string) { ch <- o.d.observed[name] })
}

func (o observer) Collect(ch chan<- prometheus.Metric) { o.d.send(ch, o.read(), nil) }

// describe writes down the series of a type.
func describe[T any](d *definer) {
	each(reflect.TypeFor[T](), nil, func(name, help string, labels []string) {
		d.observed[name] = d.series(name, help, labels...)
	})
}

// each calls f for all series of a type, once each.
func each(t reflect.Type, labels []string, f func(name, help string, labels []string)) {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, help := tag.Get("metric"), tag.Get("help")
		label, _, fixed := strings.Cut(tag.Get("with"), "=")
		switch {
		case tag.Get("label") != "":
			labels = append(slices.Clip(labels), tag.Get("label"))
		case name == "":
			each(t.Field(i).Type, labels, f)
		case fixed && help != "":
			f(name, help, append(slices.Clip(labels), label))
		case help != "":
			f(name, help, labels)
		}
	}
}

// send sends the series of a value under the values of its labels.
func (d *definer) send(ch chan<- prometheus.Metric, v reflect.Value, labels []string) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			d.send(ch, v.Index(i), labels)
		}
		return
	case reflect.Pointer:
		if !v.IsNil() {
			d.send(ch, v.Elem(), labels)
		}
		return
	}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("metric")
		switch {
		case tag.Get("label") != "":
			labels = append(slices.Clip(labels), v.Field(i).String())
		case name == "":
			d.send(ch, v.Field(i), labels)
		default:
			of := labels
			if _, value, fixed := strings.Cut(tag.Get("with"), "="); fixed {
				of = append(slices.Clip(labels), value)
			}
			ch <- prometheus.MustNewConstMetric(d.observed[name], kindOf(name), valueOf(v.Field(i)), of...)
		}
	}
}

// valueOf returns the value of a series.
func valueOf(v reflect.Value) float64 {
	switch of := v.Interface().(type) {
	case bool:
		if of {
			return 1
		}
		return 0
	case time.Duration:
		return of.Seconds()
	case time.Time:
		return time.Since(of).Seconds()
	case float64:
		return of
	}
	return float64(v.Int())
}
