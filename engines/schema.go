package engines

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// conform makes up a JSON text that a JSON schema accepts. It knows what structured
// output uses: types, properties, items, enum, const, $ref, anyOf, oneOf, allOf,
// bounds, formats and patterns. Properties are written in the order of their names.
func conform(schema json.RawMessage, seed uint64) (string, error) {
	var root any
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber() // bounds and constants stay exact
	if err := d.Decode(&root); err != nil {
		return "", badRequest("schema", "the JSON schema is not valid JSON: %v", err)
	}
	switch root.(type) {
	case map[string]any, bool:
	default:
		return "", badRequest("schema", "a JSON schema must be an object")
	}
	g := &generator{root: root, dice: dice{seed}, left: mostValues, probes: mostProbes, refs: make(map[string]refFuel)}
	b, err := json.Marshal(g.value(root, 0))
	if err != nil {
		return "", badRequest("schema", "the JSON schema asks for what JSON cannot hold: %v", err)
	}
	return string(b), nil
}

// generator walks a schema and makes values of it.
type generator struct {
	root   any
	dice   dice
	left   int // steps
	probes int // steps of ends
	refs   map[string]refFuel
}

// The bounds of the work: schemas that nest lists of themselves grow without end.
const (
	mostValues = 20_000
	mostProbes = 100_000
)

// Below shallow depth answers are as full as the schema allows, below the deepest
// only as full as it demands; at the last one a schema that demands itself for ever
// gets null.
const (
	shallow  = 3
	deepest  = 8
	lastHope = 24
)

func (g *generator) value(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	g.left--
	if !ok || depth > lastHope || g.left < 0 {
		if ok || schema == false {
			return nil
		}
		return prose(uint64(g.dice.roll(1<<30)), 2) // true accepts anything
	}
	s = g.resolve(s, depth)
	if c, ok := s["const"]; ok {
		return c
	}
	if all, ok := s["enum"].([]any); ok && len(all) > 0 {
		fit := slices.DeleteFunc(slices.Clone(all), func(v any) bool { return !admits(s, v) })
		if len(fit) > 0 {
			all = fit
		}
		return all[g.dice.roll(len(all))]
	}
	switch kind := kindOf(s, depth); kind {
	case "object":
		return g.object(s, depth)
	case "array":
		return g.array(s, depth)
	case "integer", "number":
		return g.number(s, kind == "integer")
	case "boolean":
		return g.dice.roll(2) == 0
	case "null":
		return nil
	}
	return g.text(s)
}

// kindOf is the type to make: the first that is not null of several, the one that the
// other keywords imply where there is none.
func kindOf(s map[string]any, depth int) string {
	if types := typesOf(s); types != nil {
		if depth >= deepest && slices.Contains(types, "null") {
			return "null"
		}
		for _, name := range types {
			if name != "null" {
				return name
			}
		}
		return "null"
	}
	implied := []struct{ keyword, kind string }{
		{"properties", "object"}, {"required", "object"},
		{"additionalProperties", "object"}, {"minProperties", "object"},
		{"items", "array"}, {"prefixItems", "array"}, {"minItems", "array"},
		{"minimum", "number"}, {"maximum", "number"}, {"multipleOf", "number"},
		{"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},
	}
	for _, i := range implied {
		if s[i.keyword] != nil {
			return i.kind
		}
	}
	return "string"
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

// object makes the required properties, and near the surface the others that end.
func (g *generator) object(s map[string]any, depth int) any {
	out := make(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, r := range required {
		if name, ok := r.(string); ok && out[name] == nil {
			out[name] = g.value(propertyOf(s, name), depth+1)
		}
	}
	least, most := count(s, "minProperties", 0), count(s, "maxProperties", len(properties)+len(required))
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		wanted := len(out) < least || depth < shallow && len(out) < most
		if _, made := out[name]; !made && wanted && g.ends(properties[name], lastHope) {
			out[name] = g.value(properties[name], depth+1)
		}
	}
	for i := 0; len(out) < least && i < len(words) && s["additionalProperties"] != false; i++ {
		if _, taken := properties[words[i]]; !taken {
			out[words[i]] = g.value(propertyOf(s, words[i]), depth+1)
		}
	}
	return out
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

func (g *generator) array(s map[string]any, depth int) any {
	least := count(s, "minItems", 0)
	n := max(least, 2)
	if depth >= shallow || !g.ends(itemOf(s, least), lastHope) {
		n = least
	}
	n = min(n, count(s, "maxItems", n))
	out := make([]any, 0, n)
	for tries := 0; len(out) < n && tries < 8*n; tries++ { // a set of two booleans takes a few throws
		item := itemOf(s, len(out))
		if item == false {
			break
		}
		v := g.value(item, depth+1)
		if s["uniqueItems"] == true && contains(out, v) {
			continue
		}
		out = append(out, v)
	}
	return out
}

// itemOf is the schema of an array's i-th item.
func itemOf(s map[string]any, i int) any {
	item := s["items"]
	if prefix, _ := s["prefixItems"].([]any); i < len(prefix) {
		item = prefix[i]
	}
	if item == nil {
		item = map[string]any{"type": "string"}
	}
	return item
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
	r := rational(s[key])
	if r == nil || r.Sign() < 0 {
		return otherwise
	}
	f, _ := r.Float64()
	return int(min(f, 1<<16))
}
