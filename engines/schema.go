package engines

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// The bounds of a search: how many values it makes, and how many may be inside each
// other. Schemas that hold themselves have no end.
const (
	mostValues = 20_000
	mostDepth  = 32
)

// shallow is the depth from which on answers are only as full as the schema demands.
const shallow = 3

// conform makes up a JSON text that a JSON schema accepts, null if it finds none. It
// knows what structured output uses: types, properties, items, enum, const, $ref, anyOf,
// oneOf, allOf, bounds, formats and patterns. Properties are written in the order of
// their names.
func conform(schema json.RawMessage, seed uint64) (string, error) {
	var root, made any
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber() // constants stay as they are written
	if err := d.Decode(&root); err != nil {
		return "", badRequest("schema", "the JSON schema is not valid JSON: %v", err)
	}
	switch root.(type) {
	case map[string]any, bool:
	default:
		return "", badRequest("schema", "a JSON schema must be an object")
	}
	for depth, found := 4, false; !found && depth <= mostDepth; depth *= 2 {
		g := &generator{root: root, dice: dice{seed}, left: mostValues, deepest: depth}
		made, found = g.value(root, 0)
	}
	b, err := json.Marshal(made)
	if err != nil {
		return "", badRequest("schema", "the JSON schema asks for what JSON cannot hold: %v", err)
	}
	return string(b), nil
}

// generator walks a schema and makes values of it. Where a value cannot be made, it
// tries the next alternative.
type generator struct {
	root    any
	dice    dice
	left    int // steps
	deepest int // values inside each other, at most
}

func (g *generator) value(schema any, depth int) (v any, ok bool) {
	if g.left--; g.left < 0 || depth > g.deepest {
		return nil, false
	}
	s, isMap := schema.(map[string]any)
	if !isMap { // true accepts anything
		return prose(uint64(g.dice.roll(1<<30)), 2), schema != false
	}
	if s["$ref"] != nil {
		ref, _ := s["$ref"].(string)
		return g.value(merge(without(s, "$ref"), g.lookup(ref)), depth)
	}
	for _, key := range [...]string{"anyOf", "oneOf"} {
		if branches, ok := s[key].([]any); ok {
			return g.branch(without(s, key), branches, depth)
		}
	}
	if all, ok := s["allOf"].([]any); ok {
		s = without(s, "allOf")
		for _, branch := range all {
			m, _ := branch.(map[string]any)
			s = merge(s, m)
		}
		if slices.Contains(all, any(false)) {
			return nil, false
		}
		return g.value(s, depth)
	}
	if c, ok := s["const"]; ok {
		return c, admits(s, c)
	}
	if all, ok := s["enum"].([]any); ok {
		fit := slices.DeleteFunc(slices.Clone(all), func(v any) bool { return !admits(s, v) })
		if len(fit) == 0 {
			return nil, false
		}
		return fit[g.dice.roll(len(fit))], true
	}
	for _, kind := range kindsOf(s) {
		if v, ok := g.typed(kind, s, depth); ok {
			return v, true
		}
	}
	return nil, false
}

// branch makes a value of the first alternative that goes with the rest of the schema.
func (g *generator) branch(base map[string]any, branches []any, depth int) (v any, ok bool) {
	for _, branch := range branches {
		m, isMap := branch.(map[string]any)
		if !isMap {
			continue
		}
		if v, ok := g.value(merge(base, m), depth); ok {
			return v, true
		}
	}
	return nil, false
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
		return g.dice.roll(2) == 0, true
	case "null":
		return nil, true
	}
	return g.text(s), true
}

// implied are the keywords that tell the type of a schema that has none; never written.
var implied = [...]struct {
	kind     string
	keywords []string
}{
	{"object", []string{"properties", "required", "additionalProperties", "minProperties"}},
	{"array", []string{"items", "prefixItems", "minItems"}},
	{"number", []string{"minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"}},
}

// kindsOf returns the types to try in their order, null as the last.
func kindsOf(s map[string]any) []string {
	if types := typesOf(s); types != nil {
		kinds := slices.DeleteFunc(slices.Clone(types), func(name string) bool { return name == "null" })
		if len(kinds) < len(types) {
			kinds = append(kinds, "null")
		}
		return kinds
	}
	for _, i := range implied {
		if slices.ContainsFunc(i.keywords, func(key string) bool { return s[key] != nil }) {
			return []string{i.kind}
		}
	}
	return []string{"string"}
}

// typesOf returns the names in the keyword type; nil where there are none.
func typesOf(s map[string]any) []string {
	switch t := s["type"].(type) {
	case string:
		return []string{t}
	case []any:
		names := make([]string, 0, len(t))
		for _, one := range t {
			if name, ok := one.(string); ok {
				names = append(names, name)
			}
		}
		return names
	}
	return nil
}

// object makes the required properties, and near the surface the others that can be made.
func (g *generator) object(s map[string]any, depth int) (any, bool) {
	out := make(map[string]any)
	made := func(name string) bool {
		v, ok := g.value(propertyOf(s, name), depth+1)
		if ok {
			out[name] = v
		}
		return ok
	}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, r := range required {
		if name, ok := r.(string); ok && !made(name) {
			return nil, false
		}
	}
	least, most := count(s, "minProperties", 0), count(s, "maxProperties", len(properties)+len(required))
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if _, there := out[name]; !there && (len(out) < least || depth < shallow && len(out) < most) {
			made(name)
		}
	}
	for i := 0; len(out) < least && i < len(words) && s["additionalProperties"] != false; i++ {
		if _, taken := properties[words[i]]; !taken && !made(words[i]) {
			return nil, false
		}
	}
	return out, true
}

// propertyOf is the schema of a property, listed or not.
func propertyOf(s map[string]any, name string) any {
	properties, _ := s["properties"].(map[string]any)
	if schema, ok := properties[name]; ok {
		return schema
	}
	if e, ok := s["additionalProperties"].(map[string]any); ok {
		return e
	}
	return map[string]any{"type": "string"}
}

func (g *generator) array(s map[string]any, depth int) (any, bool) {
	least := count(s, "minItems", 0)
	n := least
	if depth < shallow {
		n = max(least, 2)
	}
	n = min(n, count(s, "maxItems", n))
	out := make([]any, 0, n)
	for tries := 0; len(out) < n && tries < 8*n; tries++ { // a set of two booleans takes a few throws
		v, ok := g.value(itemOf(s, len(out)), depth+1)
		if !ok {
			break
		}
		if s["uniqueItems"] != true || !contains(out, v) {
			out = append(out, v)
		}
	}
	return out, len(out) >= least
}

// itemOf is the schema of an array's i-th item.
func itemOf(s map[string]any, i int) any {
	if prefix, _ := s["prefixItems"].([]any); i < len(prefix) {
		return prefix[i]
	}
	if s["items"] == nil {
		return map[string]any{"type": "string"}
	}
	return s["items"]
}

func contains(list []any, v any) bool {
	b, _ := json.Marshal(v) // v came from JSON or was made for it
	return slices.ContainsFunc(list, func(other any) bool {
		o, _ := json.Marshal(other)
		return bytes.Equal(o, b)
	})
}

// count reads a keyword that counts something.
func count(s map[string]any, key string, otherwise int) int {
	x, ok := numberOf(s[key])
	if !ok || x < 0 {
		return otherwise
	}
	return int(min(x, 1<<16))
}

// lookup finds what a local JSON pointer points at.
func (g *generator) lookup(ref string) map[string]any {
	at := g.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#"), "/") {
		if part == "" {
			continue
		}
		m, _ := at.(map[string]any)
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	m, _ := at.(map[string]any)
	return m
}

func without(s map[string]any, key string) map[string]any {
	s = maps.Clone(s)
	delete(s, key)
	return s
}
