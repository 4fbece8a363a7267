package server

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tierway/decisions"
	"tierway/routing"
)

// fill draws a value for each field of a record, so that a field which is added to
// it is drawn too.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()))
		return
	case routing.Terms:
		terms := new(routing.Terms)
		if err := json.Unmarshal([]byte(rapid.SampledFrom([]string{`{}`, `{"load":1.5}`, `{"load":1e9,"ring":-0.25,"a":0,"b":1e-9}`}).Draw(t, "terms")), terms); err != nil {
			t.Fatal(err)
		}
		v.Set(reflect.ValueOf(*terms))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(t, "n"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i))
			}
		}
	case reflect.String:
		v.SetString(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "w0", "a<b>&c", "\"\\\n", "\xff", "\u2028"})).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "flag"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint"))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.Float64Range(-1e300, 1e300), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, 0.5, 12.345, 1e-7, 1e21, 1e20, 1 << 53, -3, math.MaxFloat64})).Draw(t, "float"))
	default:
		t.Fatalf("a record has a %s", v.Type())
	}
}

// TestALineOfTheFileIsTheRecordsJSON: byte for byte what encoding/json writes, of
// every field there is.
func TestALineOfTheFileIsTheRecordsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := new(decisions.Decision)
		fill(t, reflect.ValueOf(d).Elem())
		want, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := appendRecord([]byte("before"), d)
		if diff := cmp.Diff("before"+string(want), string(got)); diff != "" || !ok {
			t.Fatalf("%v (-want +got):\n%s", ok, diff)
		}
	})
}

func TestARecordThatJSONCannotHoldIsNoLine(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got, ok := appendRecord([]byte("before"), &decisions.Decision{DurationMs: x}); ok || string(got) != "before" {
			t.Errorf("%v: %s", x, got)
		}
	}
	f, log := fileOf(t, 1<<20, 2)
	f.write(&decisions.Decision{DurationMs: math.NaN()})
	f.write(record("a"))
	f.flush()
	if got, bad := recordsIn(t, f.to.path); len(got) != 1 || bad != 0 || f.dropped.Load() != 1 || f.written.Load() != 1 {
		t.Errorf("%v, %d bad lines, %d dropped: %s", got, bad, f.dropped.Load(), log)
	}
}
