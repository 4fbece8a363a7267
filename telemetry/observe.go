package telemetry

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Observe registers read, which every scrape calls. T is one of the types of this package
// with the tags below, or a slice of it. read must return quickly and be safe for
// concurrent use. Register each type once in a process.
//
//	metric  the name of a series
//	help    its help text
//	with    one more label with a fixed value, such as result=ok; the fields of one name differ
//	        in this value, and the first of them has the help
//	label   the field is the value of that label for all fields after it
//
// A field without a tag holds further fields; a nil pointer has no series. A duration is
// exported in seconds, a time as its age in seconds, true as 1 and false as 0.
func Observe[T any](m *Metrics, read func() T) {
	value := func() reflect.Value { return reflect.ValueOf(read()) }
	m.registry.MustRegister(observer{m.definer, reflect.TypeFor[T](), value})
}

// observer is the prometheus.Collector of the series of one type.
type observer struct {
	d    *definer
	of   reflect.Type
	read func() reflect.Value
}

func (o observer) Describe(ch chan<- *prometheus.Desc) {
	forEachSeries(o.of, nil, func(name, _ string, _ []string) { ch <- o.d.observed[name] })
}

func (o observer) Collect(ch chan<- prometheus.Metric) { o.d.send(ch, o.read(), nil) }

func describe[T any](d *definer) {
	forEachSeries(reflect.TypeFor[T](), nil, func(name, help string, labels []string) {
		d.observed[name] = d.series(name, help, labels...)
	})
}

// forEachSeries calls f once for each series of a type.
func forEachSeries(t reflect.Type, labels []string, f func(name, help string, labels []string)) {
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
			forEachSeries(t.Field(i).Type, labels, f)
		case fixed && help != "":
			f(name, help, append(slices.Clip(labels), label))
		case help != "":
			f(name, help, labels)
		}
	}
}

// send sends the series of a value with the given label values.
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
			values := labels
			if _, value, fixed := strings.Cut(tag.Get("with"), "="); fixed {
				values = append(slices.Clip(labels), value)
			}
			number := seriesValue(v.Field(i))
			ch <- prometheus.MustNewConstMetric(d.observed[name], valueType(name), number, values...)
		}
	}
}

func seriesValue(v reflect.Value) float64 {
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
