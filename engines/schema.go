package engines

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a search: the number of values and their nesting. Recursive schemas have no end.
const (
	mostValues = 20_000
	mostDepth  = 32
)

// shallow is the depth from which on answers contain only what the schema requires.
const shallow = 3

// conform generates a JSON text that a JSON schema accepts, or null if it finds none. It knows what
// structured output uses: types, properties, items, enum, const, $ref, anyOf, oneOf, allOf of
// objects, bounds, formats and patterns. Properties are written in the order of their names.
func conform(schema json.RawMessage, seed uint64) (string, error) {
	g, err := newGenerator(schema, seed)
	if err != nil {
		return "", err
	}
	return g.write(g.root)
}

// arguments generates the arguments of a call: an object with what the schema requires. Strict schemas
// require every parameter, and null leaves one out.
func arguments(schema json.RawMessage, seed uint64) (string, error) {
	if s := string(schema); s == "" || s == "null" {
		return "{}", nil
	}
	g, err := newGenerator(schema, seed)
	if err != nil {
		return "", err
	}
	g.sparse = true
	text, err := g.write(merge(map[string]any{"type": "object"}, "", g.root))
	if err == nil && !strings.HasPrefix(text, "{") {
		return "{}", nil
	}
	return text, err
}

func newGenerator(schema json.RawMessage, seed uint64) (*generator, error) {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, badRequest("schema", "the JSON schema is not valid JSON: %v", err)
	}
	switch root.(type) {
	case map[string]any, bool:
		return &generator{root: root, rng: rng{seed}, left: mostValues}, nil
	}
	return nil, badRequest("schema", "a JSON schema must be an object")
}

// generator walks a schema and generates values. If a value cannot be generated, it tries the next
// alternative.
type generator struct {
	root   any
	rng    rng
	left   int  // remaining values
	sparse bool // values of a call: nothing optional, and values that tools accept
}

// write generates a value of a schema as JSON.
func (g *generator) write(schema any) (string, error) {
	made, _ := g.value(schema, 0)
	b, err := json.Marshal(made)
	if err != nil {
		return "", badRequest("schema", "the JSON schema requires a value that JSON cannot hold: %v", err)
	}
	return string(b), nil
}

func (g *generator) value(schema any, depth int) (v any, ok bool) {
	if g.left--; g.left < 0 || depth > mostDepth {
		return nil, false
	}
	s, isMap := schema.(map[string]any)
	if !isMap { // true accepts anything
		return prose(uint64(g.rng.roll(1<<30)), 2), schema != false
	}
	if ref, ok := s["$ref"].(string); ok {
		return g.value(merge(s, "$ref", g.lookup(ref)), depth)
	}
	if all, ok := s["allOf"].([]any); ok {
		s = merge(s, "allOf", nil)
		for _, one := range all {
			s = merge(s, "", one)
		}
		return g.value(s, depth)
	}
	for _, key := range [...]string{"anyOf", "oneOf"} {
		if alternatives, ok := s[key].([]any); ok {
			return g.alternative(s, key, alternatives, depth)
		}
	}
	if c, ok := s["const"]; ok {
		return c, true
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		if g.sparse && slices.Contains(list, nil) {
			return nil, true
		}
		return list[g.rng.roll(len(list))], true
	}
	kinds := kindsOf(s)
	if g.sparse && slices.Contains(kinds, "null") {
		return nil, true
	}
	for _, kind := range kinds {
		if v, ok := g.typed(kind, s, depth); ok {
			return v, true
		}
	}
	return nil, false
}

// merge returns the keywords of s without the resolved one, plus those of another schema. If both
// have a keyword, the other's counts; properties and required are combined.
func merge(s map[string]any, resolved string, other any) map[string]any {
	out := maps.Clone(s)
	delete(out, resolved)
	more, _ := other.(map[string]any)
	for key, v := range more {
		switch old := out[key].(type) {
		case map[string]any:
			if added, ok := v.(map[string]any); ok && key == "properties" {
				v = maps.Clone(old)
				maps.Copy(v.(map[string]any), added)
			}
		case []any:
			if added, ok := v.([]any); ok && key == "required" {
				v = slices.Concat(old, added)
			}
		}
		out[key] = v
	}
	return out
}

// alternative generates a value of the first possible alternative. At depth it begins with the last
// one: a recursive schema mostly ends there, with null or a leaf.
func (g *generator) alternative(s map[string]any, key string, alternatives []any, depth int) (v any, ok bool) {
	if depth >= shallow {
		alternatives = slices.Clone(alternatives)
		slices.Reverse(alternatives)
	}
	if g.sparse && slices.ContainsFunc(alternatives, isNull) {
		return nil, true
	}
	for _, one := range alternatives {
		if v, ok := g.value(merge(s, key, one), depth); ok {
			return v, true
		}
	}
	return nil, false
}

func isNull(schema any) bool {
	s, _ := schema.(map[string]any)
	return s["type"] == "null"
}

// lookup returns the target of a local JSON pointer.
func (g *generator) lookup(ref string) any {
	at := g.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#"), "/") {
		if part != "" {
			m, _ := at.(map[string]any)
			at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		}
	}
	return at
}

// kindsOf returns the types to try in order, null last. Without a type keyword, other keywords
// imply it.
func kindsOf(s map[string]any) (kinds []string) {
	switch t := s["type"].(type) {
	case string:
		return []string{t}
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok && name != "null" {
				kinds = append(kinds, name)
			}
		}
		return append(kinds, "null")
	}
	switch {
	case s["properties"] != nil, s["required"] != nil, s["additionalProperties"] != nil:
		return []string{"object"}
	case s["items"] != nil, s["prefixItems"] != nil, s["minItems"] != nil:
		return []string{"array"}
	case s["minimum"] != nil, s["maximum"] != nil, s["multipleOf"] != nil:
		return []string{"number"}
	}
	return []string{"string"}
}

func (g *generator) typed(kind string, s map[string]any, depth int) (v any, ok bool) {
	switch kind {
	case "object":
		return g.object(s, depth)
	case "array":
		return g.array(s, depth)
	case "integer", "number":
		return g.number(s, kind == "integer")
	case "boolean":
		return g.rng.roll(2) == 0 && !g.sparse, true
	case "null":
		return nil, true
	}
	return g.text(s), true
}

// object generates the required properties, and at low depth the optional ones that are possible,
// except in a call.
func (g *generator) object(s map[string]any, depth int) (any, bool) {
	out := make(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	add := func(name string) bool {
		schema, listed := properties[name]
		if !listed {
			schema, _ = s["additionalProperties"].(map[string]any)
		}
		if example := usualArguments[strings.ToLower(name)]; g.sparse && example != "" {
			schema = merge(map[string]any{exampleKey: example}, "", schema)
		}
		v, ok := g.value(schema, depth+1)
		if ok {
			out[name] = v
		}
		return ok
	}
	required, _ := s["required"].([]any)
	for _, r := range required {
		if name, ok := r.(string); ok && !add(name) {
			return nil, false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		wanted := depth < shallow && !g.sparse || len(out) < count(s, "minProperties", 0)
		if _, there := out[name]; !there && wanted {
			add(name)
		}
	}
	return out, true
}

// array generates as many items as the schema requires, and at low depth two if it allows them.
func (g *generator) array(s map[string]any, depth int) (any, bool) {
	least := count(s, "minItems", 0)
	n := least
	example, hasExample := s[exampleKey]
	switch {
	case hasExample: // of its items
		n = max(least, 1)
	case depth < shallow:
		n = max(least, 2)
	}
	n = min(n, count(s, "maxItems", n))
	prefix, _ := s["prefixItems"].([]any)
	out := make([]any, 0, n)
	for tries := 0; len(out) < n && tries < 8*n; tries++ { // a set of two booleans takes several tries
		schema, listed := s["items"]
		if len(out) < len(prefix) {
			schema = prefix[len(out)]
		} else if !listed {
			schema = true
		}
		if hasExample {
			schema = merge(map[string]any{exampleKey: example}, "", schema)
		}
		v, ok := g.value(schema, depth+1)
		if !ok {
			break
		}
		same := func(other any) bool { return reflect.DeepEqual(other, v) }
		if s["uniqueItems"] != true || !slices.ContainsFunc(out, same) {
			out = append(out, v)
		}
	}
	return out, len(out) >= least
}

// bound reads a numeric keyword.
func bound(s map[string]any, key string, otherwise float64) float64 {
	if x, ok := s[key].(float64); ok {
		return x
	}
	return otherwise
}

// count reads a keyword that is a count.
func count(s map[string]any, key string, otherwise int) int {
	return int(max(0, min(bound(s, key, float64(otherwise)), 1<<16)))
}

// number generates a number within its bounds and of the required multiple: a whole one if possible,
// else one with as few digits as possible.
func (g *generator) number(s map[string]any, whole bool) (any, bool) {
	above, below := bound(s, "exclusiveMinimum", math.Inf(-1)), bound(s, "exclusiveMaximum", math.Inf(1))
	low, high := max(above, bound(s, "minimum", above)), min(below, bound(s, "maximum", below))
	fits := func(x float64) bool { return x >= low && x <= high && x > above && x < below }
	fitsWhole := func(x float64) bool { return fits(x) && x == math.Trunc(x) }
	step := bound(s, "multipleOf", 0)
	if v, ok := g.multiple(cmp.Or(max(step, 0), 1), low, high, fitsWhole); ok || whole {
		return v, ok
	}
	if step > 0 {
		return g.multiple(step, low, high, fits)
	}
	for step = 0.01; step > math.SmallestNonzeroFloat64; step /= 10 {
		if v, ok := g.multiple(step, low, high, fits); ok {
			return v, true
		}
	}
	return nil, false
}

// multiple generates a multiple of step that fits, mostly within a hundred steps of the number within
// the bounds that is nearest to zero.
func (g *generator) multiple(step, low, high float64, fits func(float64) bool) (any, bool) {
	const usual, maxSteps = 100, 1000
	if high < 0 {
		low = max(low, high-usual*step)
	} else {
		low = max(low, 0)
	}
	first, last := math.Floor(low/step), math.Ceil(min(high, low+maxSteps*step)/step)
	if !(first <= last) {
		return nil, false
	}
	n := int(min(last-first, maxSteps)) + 1
	for start, i := g.rng.roll(min(n, usual+1)), 0; i < n; i++ {
		v := (first + float64((start+i)%n)) * step
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 15, 64), 64) // 3 × 0.1 is 0.3
		if fits(v) {
			return v, true
		}
	}
	return nil, false
}
