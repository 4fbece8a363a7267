package engines

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
)

// merge adds the keywords of b to those of a, so that a value of the result is one of
// both: of two bounds the narrower counts, of two lists what stands in both. What
// cannot be joined stays apart under allOf; of the rest b's counts.
func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = make(map[string]any)
	}
	for k, v := range b {
		old, both := out[k]
		if !both {
			out[k] = v
			continue
		}
		switch k {
		case "anyOf":
			out[k] = pairs(old, v)
		case "$ref", "oneOf":
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
			out[k] = commonTypes(a, b)
		default:
			out[k] = narrower(k, old, v)
		}
	}
	return out
}

// mostPairs bounds the alternatives that two lists of them have together.
const mostPairs = 64

// pairs are the alternatives of two lists taken together, but for those whose types
// exclude each other.
func pairs(a, b any) []any {
	x, _ := a.([]any)
	y, _ := b.([]any)
	both := []any{}
	for _, one := range x {
		for _, other := range y {
			m, isMap := one.(map[string]any)
			n, alsoMap := other.(map[string]any)
			if len(both) == mostPairs {
				return both
			}
			if !isMap || !alsoMap {
				continue
			}
			if pair := merge(m, n); pair["type"] == nil || len(typesOf(pair)) > 0 {
				both = append(both, pair)
			}
		}
	}
	return both
}

// narrower joins two values of a keyword that holds a bound or schemas.
func narrower(key string, a, b any) any {
	switch key {
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return larger(a, b, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return larger(a, b, -1)
	case "multipleOf":
		return commonMultiple(a, b)
	case "properties", "$defs":
		x, _ := a.(map[string]any)
		y, _ := b.(map[string]any)
		out := maps.Clone(x)
		for name, schema := range y {
			if old, both := out[name]; both {
				schema = bothSchemas(old, schema)
			}
			if out == nil {
				out = make(map[string]any)
			}
			out[name] = schema
		}
		return out
	case "items", "additionalProperties":
		return bothSchemas(a, b)
	}
	return b
}

// bothSchemas is a schema of the values that two schemas accept.
func bothSchemas(a, b any) any {
	switch {
	case a == false || b == false:
		return false
	case a == true:
		return b
	case b == true:
		return a
	}
	return map[string]any{"allOf": []any{a, b}}
}

// larger returns the larger of two numbers, with sign -1 the smaller one.
func larger(a, b any, sign int) any {
	x, y := rational(a), rational(b)
	if x == nil || y != nil && y.Cmp(x) == sign {
		return b
	}
	return a
}

// commonMultiple returns the smallest number that both of two are factors of: of
// fractions in lowest terms, the common multiple of the numerators over the common
// divisor of the denominators.
func commonMultiple(a, b any) any {
	x, y := rational(a), rational(b)
	if x == nil || y == nil || x.Sign() <= 0 || y.Sign() <= 0 {
		return b
	}
	over := new(big.Int).Mul(x.Num(), y.Num())
	over.Quo(over, new(big.Int).GCD(nil, nil, x.Num(), y.Num()))
	under := new(big.Int).GCD(nil, nil, x.Denom(), y.Denom())
	return decimal(new(big.Rat).SetFrac(over, under))
}

// commonTypes returns the types that two schemas have in common; integers are numbers.
func commonTypes(a, b map[string]any) any {
	common := []any{}
	theirs := typesOf(b)
	for _, name := range typesOf(a) {
		switch {
		case slices.Contains(theirs, name), name == "integer" && slices.Contains(theirs, "number"):
			common = append(common, name)
		case name == "number" && slices.Contains(theirs, "integer"):
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
		r := rational(x)
		return r != nil && (is("number") || is("integer") && r.IsInt()) && newInterval(s).holds(r)
	case []any:
		return is("array")
	}
	return is("object")
}
