package engines

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
)

// conform makes up a JSON text that a JSON schema accepts. It knows what structured
// output uses: types, properties, items, enum, const, $ref, anyOf, oneOf, allOf,
// bounds, formats and patterns. Properties are written in the order of their names.
func conform(schema json.RawMessage, seed uint64) (string, error) {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return "", badRequest("schema", "the JSON schema is not valid JSON: %v", err)
	}
	switch root.(type) {
	case map[string]any, bool:
	default:
		return "", badRequest("schema", "a JSON schema must be an object")
	}
	g := &generator{root: root, dice: dice{seed}, left: mostValues}
	b, err := json.Marshal(g.value(root, 0))
	if err != nil {
		return "", badRequest("schema", "the JSON schema asks for what JSON cannot hold: %v", err)
	}
	return string(b), nil
}

// generator walks a schema and makes values of it.
type generator struct {
	root any
	dice dice
	left int // steps
}

// mostValues bounds the work: schemas that nest lists of themselves grow without end.
const mostValues = 20000

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
		return all[g.dice.roll(len(all))]
	}
	switch g.kind(s, depth) {
	case "object":
		return g.object(s, depth)
	case "array":
		return g.array(s, depth)
	case "integer", "number":
		return g.number(s)
	case "boolean":
		return g.dice.roll(2) == 0
	case "null":
		return nil
	}
	return g.text(s)
}

// resolve follows $ref, merges allOf and takes one branch of anyOf and oneOf, until
// none of them is left.
func (g *generator) resolve(s map[string]any, depth int) map[string]any {
	for range lastHope {
		if g.left--; g.left < 0 || depth > lastHope {
			break
		}
		switch {
		case s["$ref"] != nil:
			ref, _ := s["$ref"].(string)
			s = merge(without(s, "$ref"), g.lookup(ref))
		case s["allOf"] != nil:
			branches, _ := s["allOf"].([]any)
			s = without(s, "allOf")
			for _, branch := range branches {
				m, _ := branch.(map[string]any)
				s = merge(s, g.resolve(m, depth+1))
			}
		case s["anyOf"] != nil:
			s = merge(without(s, "anyOf"), g.branch(s["anyOf"], depth))
		case s["oneOf"] != nil:
			s = merge(without(s, "oneOf"), g.branch(s["oneOf"], depth))
		default:
			return s
		}
	}
	return map[string]any{"type": "null"} // a $ref to itself
}

// branch takes the first alternative near the surface and, deep down, the one that
// is most likely to end: one without structure.
func (g *generator) branch(list any, depth int) map[string]any {
	branches, _ := list.([]any)
	var first map[string]any
	for _, b := range branches {
		m, ok := b.(map[string]any)
		if !ok {
			continue
		}
		if first == nil {
			first = m
		}
		if depth < shallow {
			break
		}
		if t, _ := m["type"].(string); m["enum"] != nil || m["const"] != nil || t != "" && t != "object" && t != "array" {
			return m
		}
	}
	return first
}

// lookup finds what a local JSON pointer points at.
func (g *generator) lookup(ref string) map[string]any {
	at := g.root
	path, _ := strings.CutPrefix(ref, "#")
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
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

// merge adds the keywords of b to those of a: properties and required are joined,
// of the others b's count.
func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = make(map[string]any)
	}
	for k, v := range b {
		switch k {
		case "properties", "$defs":
			old, _ := out[k].(map[string]any)
			add, _ := v.(map[string]any)
			out[k] = merge(old, add)
		case "required":
			old, _ := out[k].([]any)
			add, _ := v.([]any)
			out[k] = slices.Concat(old, add)
		default:
			out[k] = v
		}
	}
	return out
}

// kind is the type to make: the first that is not null of several, the one that the
// other keywords imply where there is none.
func (g *generator) kind(s map[string]any, depth int) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		if depth >= deepest && slices.Contains(t, any("null")) {
			return "null"
		}
		for _, one := range t {
			if name, _ := one.(string); name != "null" {
				return name
			}
		}
		return "null"
	}
	implied := []struct{ keyword, kind string }{
		{"properties", "object"}, {"required", "object"}, {"additionalProperties", "object"},
		{"items", "array"}, {"prefixItems", "array"}, {"minItems", "array"},
		{"minimum", "number"}, {"maximum", "number"}, {"exclusiveMinimum", "number"}, {"multipleOf", "number"},
	}
	for _, i := range implied {
		if s[i.keyword] != nil {
			return i.kind
		}
	}
	return "string"
}

func (g *generator) object(s map[string]any, depth int) any {
	out := make(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if depth < shallow || slices.Contains(required, any(name)) {
			out[name] = g.value(properties[name], depth+1)
		}
	}
	for _, r := range required {
		name, _ := r.(string)
		if _, made := out[name]; !made && name != "" {
			out[name] = g.value(extra(s), depth+1)
		}
	}
	for i := 0; len(out) < count(s, "minProperties", 0) && i < lastHope; i++ {
		out[words[i]] = g.value(extra(s), depth+1)
	}
	return out
}

// extra is the schema of properties that are not listed.
func extra(s map[string]any) any {
	if e, ok := s["additionalProperties"].(map[string]any); ok {
		return e
	}
	return map[string]any{"type": "string"}
}

func (g *generator) array(s map[string]any, depth int) any {
	least := count(s, "minItems", 0)
	n := max(least, 2)
	if depth >= shallow {
		n = least
	}
	n = min(n, count(s, "maxItems", n))
	out := make([]any, 0, n)
	prefix, _ := s["prefixItems"].([]any)
	for tries := 0; len(out) < n && tries < 8*n; tries++ { // a set of two booleans takes a few throws
		item := s["items"]
		if len(out) < len(prefix) {
			item = prefix[len(out)]
		}
		if item == nil {
			item = map[string]any{"type": "string"}
		}
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

func contains(list []any, v any) bool {
	b, _ := json.Marshal(v) // v came from JSON or was made for it
	return slices.ContainsFunc(list, func(other any) bool {
		o, _ := json.Marshal(other)
		return string(o) == string(b)
	})
}

// number makes a number within its bounds and on its grid.
func (g *generator) number(s map[string]any) any {
	whole := s["type"] == "integer"
	step, hasStep := s["multipleOf"].(float64)
	if !hasStep || step <= 0 {
		step = 1
	}
	low, hasLow := bound(s, "minimum", "exclusiveMinimum", 1, step, whole)
	high, hasHigh := bound(s, "maximum", "exclusiveMaximum", -1, step, whole)
	switch {
	case !hasLow && !hasHigh:
		low, high = 0, 100*step
	case !hasLow:
		low = high - 100*step
	case !hasHigh:
		high = low + 100*step
	}
	if !whole && !hasStep {
		return low + (high-low)*float64(g.dice.roll(101))/100
	}
	first, last := math.Ceil(low/step), math.Floor(high/step)
	v := (first + float64(g.dice.roll(int(max(min(last-first, 100), 0))+1))) * step
	if whole {
		return int64(v)
	}
	return v
}

// bound reads an inclusive or exclusive bound and returns an inclusive one.
func bound(s map[string]any, inclusive, exclusive string, towards, step float64, whole bool) (float64, bool) {
	if v, ok := s[inclusive].(float64); ok {
		return v, true
	}
	v, ok := s[exclusive].(float64)
	if !ok {
		return 0, false
	}
	if whole {
		return v + towards*step, true
	}
	return v + towards*step/1024, true
}

func count(s map[string]any, key string, otherwise int) int {
	if v, ok := s[key].(float64); ok && v >= 0 {
		return int(min(v, 1<<16))
	}
	return otherwise
}

// formats are examples of each; never written.
var formats = map[string]string{
	"date": "2024-05-17", "time": "09:30:00Z", "date-time": "2024-05-17T09:30:00Z", "duration": "PT15M",
	"email": "someone@example.com", "hostname": "host.example.com", "uri": "https://example.com/a",
	"uuid": "3f8a1c5e-9b47-4d02-8e6f-0a1b2c3d4e5f", "ipv4": "192.0.2.17", "ipv6": "2001:db8::17",
}

func (g *generator) text(s map[string]any) any {
	if pattern, ok := s["pattern"].(string); ok {
		if text, ok := matching(pattern, &g.dice); ok {
			return text
		}
	}
	if format, ok := s["format"].(string); ok && formats[format] != "" {
		return formats[format]
	}
	least := count(s, "minLength", 0)
	most := count(s, "maxLength", max(least, 24)) // 24 bytes: a few words
	text := prose(uint64(g.dice.roll(1<<30)), max(least, 24)/tokenBytes+1)
	if most < len(text) {
		text = text[:most]
	}
	return text
}
