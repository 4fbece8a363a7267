package engines

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
)

// bounds are the keywords that hold a bound: 1 where the larger of two is the narrower,
// -1 where the smaller is; never written.
var bounds = map[string]float64{
	"minimum": 1, "exclusiveMinimum": 1, "minLength": 1, "minItems": 1, "minProperties": 1,
	"maximum": -1, "exclusiveMaximum": -1, "maxLength": -1, "maxItems": -1, "maxProperties": -1,
}

// merge adds the keywords of b to those of a, so that a value of the result is one of
// both: of two bounds the narrower counts, of two lists what stands in both. What
// cannot be joined stays apart under allOf; of the rest b's counts.
func merge(a, b map[string]any) map[string]any {
	out := make(map[string]any, len(a)+len(b))
	maps.Copy(out, a)
	for k, v := range b {
		old, both := out[k]
		if !both {
			out[k] = v
			continue
		}
		switch k {
		case "$ref", "anyOf", "oneOf":
			all, _ := out["allOf"].([]any)
			out["allOf"] = slices.Concat(all, []any{map[string]any{k: v}})
		case "allOf", "required":
			x, _ := old.([]any)
			y, _ := v.([]any)
			out[k] = slices.Concat(x, y)
		case "enum":
			x, _ := old.([]any)
			y, _ := v.([]any)
			out[k] = slices.DeleteFunc(slices.Clone(x), func(one any) bool { return !contains(y, one) })
		case "type":
			out[k] = commonTypes(typesOf(a), typesOf(b))
		case "properties":
			x, _ := old.(map[string]any)
			y, _ := v.(map[string]any)
			joined := make(map[string]any, len(x)+len(y))
			maps.Copy(joined, x)
			for name, schema := range y {
				if old, both := x[name]; both {
					schema = map[string]any{"allOf": []any{old, schema}}
				}
				joined[name] = schema
			}
			out[k] = joined
		case "items", "additionalProperties":
			out[k] = map[string]any{"allOf": []any{old, v}}
		default:
			x, known := numberOf(old)
			y, ok := numberOf(v)
			if sign := bounds[k]; sign == 0 || !known || ok && y*sign > x*sign {
				out[k] = v
			}
		}
	}
	return out
}

// commonTypes returns the types that two schemas have in common; integers are numbers.
func commonTypes(a, b []string) any {
	common := []any{}
	for _, name := range a {
		switch {
		case slices.Contains(b, name), name == "integer" && slices.Contains(b, "number"):
			common = append(common, name)
		case name == "number" && slices.Contains(b, "integer"):
			common = append(common, "integer")
		}
	}
	return common
}

// admits tells whether a listed value has the schema's type and keeps its bounds.
func admits(s map[string]any, v any) bool {
	types := typesOf(s)
	is := func(name string) bool { return types == nil || slices.Contains(types, name) }
	switch x := v.(type) {
	case nil:
		return is("null")
	case bool:
		return is("boolean")
	case string:
		return is("string") && newTextRule(s).accepts(x)
	case json.Number:
		n, ok := numberOf(x)
		return ok && (is("number") || is("integer") && n == math.Trunc(n)) && newInterval(s).holds(n)
	case []any:
		return is("array")
	}
	return is("object")
}
