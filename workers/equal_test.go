package workers

import (
	"reflect"
	"testing"

	"tierway/workers/kvcache"
)

// differ calls f with a copy of a section for each of its fields, in which only that field has another value.
func differ(section any, f func(field string, changed any)) {
	for i := range reflect.TypeOf(section).NumField() {
		changed := reflect.New(reflect.TypeOf(section)).Elem()
		changed.Set(reflect.ValueOf(section))
		field := changed.Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString("other")
		case reflect.Int, reflect.Int64:
			field.SetInt(7)
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 0, 0))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		default:
			continue // the embedded Config
		}
		f(reflect.TypeOf(section).Field(i).Name, changed.Interface())
	}
}

// TestEqualComparesEveryField, also those that are added later.
func TestEqualComparesEveryField(t *testing.T) {
	if a, b := (Spec{Config: Config{KVEvents: &kvcache.Config{Enabled: new(true)}, Weight: new(2)}}), (Spec{
		Config: Config{KVEvents: &kvcache.Config{Enabled: new(true)}, Weight: new(2)}}); !a.Equal(&b) {
		t.Error("two equal Specs differ")
	}
	differ(Config{}, func(field string, changed any) {
		if c := changed.(Config); c.Equal(&Config{}) || !c.Equal(&c) {
			t.Errorf("Config.%s is not compared", field)
		}
	})
	differ(Spec{}, func(field string, changed any) {
		if s := changed.(Spec); s.Equal(&Spec{}) || !s.Equal(&s) {
			t.Errorf("Spec.%s is not compared", field)
		}
	})
	differ(kvcache.Config{}, func(field string, changed any) {
		c := changed.(kvcache.Config)
		if (&Config{KVEvents: &c}).Equal(&Config{KVEvents: &kvcache.Config{}}) {
			t.Errorf("kv_events %s is not compared", field)
		}
	})
}

// TestSyncRepeatsNoCheckForAWeight: Run reads the workers again only if their checks differ.
func TestSyncRepeatsNoCheckForAWeight(t *testing.T) {
	spec := func(change func(*Spec)) []Spec {
		s := Spec{Config: Config{Name: "w", URL: "http://127.0.0.1:9", Weight: new(1), Health: new(DefaultHealth())}}
		change(&s)
		return []Spec{s}
	}
	f := NewFleet(Options{})
	defer f.Close()
	reads := func(specs []Spec) bool {
		f.Sync(specs)
		select {
		case <-f.changed:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   bool
	}{
		{"a new worker", func(*Spec) {}, true},
		{"no change", func(*Spec) {}, false},
		{"a weight", func(s *Spec) { s.Weight = new(5) }, false},
		{"a key", func(s *Spec) { s.Key = "k" }, true},
		{"headers too", func(s *Spec) { s.Key, s.Headers = "k", Headers{"A": "b"} }, true},
		{"health", func(s *Spec) { s.Key, s.Headers, s.Health.DownAfter = "k", Headers{"A": "b"}, 9 }, true},
		{"certificates", func(s *Spec) { s.TLS = &TLS{CA: "ca.pem"} }, true},
		{"another worker", func(s *Spec) { s.TLS, s.Name = &TLS{CA: "ca.pem"}, "v" }, true},
	} {
		if got := reads(spec(c.change)); got != c.want {
			t.Errorf("%s: the workers are read again: %v", c.name, got)
		}
	}
	if w := f.Get("v"); w == nil || *w.Spec().Weight != 1 {
		t.Error("the last spec is not in force")
	}
}
