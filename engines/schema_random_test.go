package engines

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// drawSchema draws a schema that some value satisfies. Bounds are laid around such a
// value; depth is what is left.
func drawSchema(t *rapid.T, depth int) map[string]any {
	kinds := []string{"integer", "number", "string", "pattern", "boolean", "null", "enum", "const", "$ref"}
	if depth > 0 {
		kinds = append(kinds, "array", "object", "object", "anyOf", "allOf")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "integer", "number":
		s := drawBounds(t, kind == "integer")
		s["type"] = kind
		if rapid.Bool().Draw(t, "or null") {
			s["type"] = []any{"null", kind}
		}
		return s
	case "string":
		s := map[string]any{"type": "string"}
		length := rapid.IntRange(0, 80).Draw(t, "length")
		if rapid.Bool().Draw(t, "has minLength") {
			s["minLength"] = float64(length - rapid.IntRange(0, length).Draw(t, "below"))
		}
		if rapid.Bool().Draw(t, "has maxLength") {
			s["maxLength"] = float64(length + rapid.IntRange(0, 20).Draw(t, "above"))
		}
		return s
	case "pattern":
		return drawPattern(t)
	case "enum":
		list := []any{"a", "b", 3.0, true, nil, "long enough"}
		return map[string]any{"enum": list[rapid.IntRange(0, 4).Draw(t, "from"):]}
	case "const":
		return map[string]any{"const": rapid.SampledFrom([]any{"x", 1.0, -2.5, nil, false}).Draw(t, "value")}
	case "$ref":
		return map[string]any{"$ref": rapid.SampledFrom([]string{"#/$defs/plain", "#/$defs/list", "#/$defs/tree",
			"#/$defs/pair"}).Draw(t, "ref")}
	case "array":
		return drawArray(t, depth)
	case "object":
		return drawObject(t, depth)
	case "anyOf":
		s := map[string]any{"anyOf": drawSchemas(t, depth)}
		if rapid.Bool().Draw(t, "titled") {
			s["title"] = "a choice"
		}
		return s
	}
	return map[string]any{"type": "null"}
}

func drawSchemas(t *rapid.T, depth int) []any {
	list := make([]any, rapid.IntRange(1, 3).Draw(t, "branches"))
	for i := range list {
		list[i] = drawSchema(t, depth-1)
	}
	return list
}

// drawBounds draws a number's keywords around one that satisfies them.
func drawBounds(t *rapid.T, whole bool) map[string]any {
	s := map[string]any{}
	steps := []float64{0.01, 0.1, 0.25, 0.5, 1, 1.5, 3, 7}
	value := float64(rapid.IntRange(-1000, 1000).Draw(t, "thousandths")) / 1000
	if whole {
		value = float64(rapid.IntRange(-60, 60).Draw(t, "value"))
	}
	if rapid.Bool().Draw(t, "has multipleOf") {
		step := rapid.SampledFrom(steps).Draw(t, "multipleOf")
		s["multipleOf"] = step
		value = math.Round(step*float64(rapid.IntRange(-40, 40).Draw(t, "times"))*100) / 100
		if whole {
			value = math.Trunc(step*100) * float64(rapid.IntRange(-3, 3).Draw(t, "hundreds"))
		}
	}
	off := func(name string) float64 {
		return rapid.SampledFrom([]float64{0, 0.001, 0.5, 1, 2.5, 20}).Draw(t, name)
	}
	if o := off("below"); rapid.Bool().Draw(t, "has low") {
		s["minimum"] = value - o
	}
	if o := off("above"); rapid.Bool().Draw(t, "has high") {
		s["maximum"] = value + o
	}
	if o := off("strictly below"); rapid.Bool().Draw(t, "has strict low") && o > 0 {
		s["exclusiveMinimum"] = value - o
	}
	if o := off("strictly above"); rapid.Bool().Draw(t, "has strict high") && o > 0 {
		s["exclusiveMaximum"] = value + o
	}
	if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
		s["allOf"] = []any{map[string]any{"description": "a number"}}
	}
	return s
}

func drawPattern(t *rapid.T) map[string]any {
	s := map[string]any{"type": "string"}
	s["pattern"] = rapid.SampledFrom([]string{`^[A-Z]{2}-\d{3,5}$`, `^(red|green)[^x]+\.txt$`, `\d+`,
		`^[^@]+@[a-z]+\.(com|org)$`, `^[a-z]+$`}).Draw(t, "pattern")
	if s["pattern"] == `^[a-z]+$` {
		length := rapid.IntRange(1, 60).Draw(t, "length")
		s["minLength"], s["maxLength"] = float64(length), float64(length+rapid.IntRange(0, 3).Draw(t, "above"))
	}
	return s
}

func drawArray(t *rapid.T, depth int) map[string]any {
	s := map[string]any{"type": "array"}
	if rapid.Bool().Draw(t, "has items") {
		s["items"] = drawSchema(t, depth-1)
	}
	least := rapid.IntRange(0, 3).Draw(t, "minItems")
	if least > 0 || rapid.Bool().Draw(t, "has minItems") {
		s["minItems"] = float64(least)
	}
	if rapid.Bool().Draw(t, "has maxItems") {
		s["maxItems"] = float64(least + rapid.IntRange(0, 2).Draw(t, "more"))
	}
	return s
}

func drawObject(t *rapid.T, depth int) map[string]any {
	properties, required := map[string]any{}, []any{}
	for i := range rapid.IntRange(0, 4).Draw(t, "properties") {
		name := fmt.Sprintf("p%d", i)
		properties[name] = drawSchema(t, depth-1)
		if rapid.Bool().Draw(t, "required") {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "required": required}
	switch rapid.IntRange(0, 2).Draw(t, "additional") {
	case 0:
		s["additionalProperties"] = false
	case 1:
		s["additionalProperties"] = drawSchema(t, depth-1)
		s["required"] = append(required, "unlisted")
	}
	return s
}

// drawRoot adds the definitions that references lead to, two of which hold themselves.
func drawRoot(t *rapid.T) map[string]any {
	root := drawSchema(t, 3)
	if ref, ok := root["$ref"]; ok {
		root = map[string]any{"allOf": []any{map[string]any{"$ref": ref}}}
	}
	root["$defs"] = map[string]any{
		"plain": drawBounds(t, true),
		"list": map[string]any{"type": "object", "required": []any{"value", "next"}, "additionalProperties": false,
			"properties": map[string]any{
				"value": map[string]any{"type": "integer"},
				"next":  map[string]any{"anyOf": []any{map[string]any{"$ref": "#/$defs/list"}, map[string]any{"type": "null"}}}}},
		"tree": map[string]any{"type": "object", "required": []any{"children"}, "properties": map[string]any{
			"children": map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/tree"}}}},
		// The first branch holds another pair, the second one ends.
		"pair": map[string]any{"anyOf": []any{
			map[string]any{"type": "object", "required": []any{"left", "right"}, "properties": map[string]any{
				"left": map[string]any{"$ref": "#/$defs/pair"}, "right": map[string]any{"$ref": "#/$defs/pair"}}},
			map[string]any{"$ref": "#/$defs/leaf"}}},
		"leaf": map[string]any{"type": "object", "required": []any{"name"},
			"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": 1.0}}},
	}
	return root
}

func TestStructuredAnswersConformToRandomSchemas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(drawRoot(t))
		if err != nil {
			t.Fatal(err)
		}
		var schema, v any
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		out, err := conform(raw, rapid.Uint64().Draw(t, "seed"))
		if err != nil || json.Unmarshal([]byte(out), &v) != nil {
			t.Fatalf("%s: %q, %v", raw, out, err)
		}
		if bad := violation(schema, schema, v); bad != "" {
			t.Fatalf("%s\n got %s: %s", raw, out, bad)
		}
	})
}
