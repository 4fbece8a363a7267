package engines

import (
	"maps"
	"slices"
	"strings"
)

// mostSteps bounds how many references and alternatives one schema goes through: a
// $ref to itself has no end.
const mostSteps = 64

// resolve follows $ref, merges allOf and takes one branch of anyOf and oneOf, until
// none of them is left. anyOf comes last: its branch has to go with all the rest.
func (g *generator) resolve(s map[string]any, depth int) map[string]any {
	for range mostSteps {
		if g.left--; g.left < 0 {
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
				s = merge(s, m)
			}
		case s["oneOf"] != nil:
			s = merge(without(s, "oneOf"), map[string]any{"anyOf": s["oneOf"]})
		case s["anyOf"] != nil:
			list := s["anyOf"]
			s = without(s, "anyOf")
			s = merge(s, g.branch(s, list, depth))
		default:
			return s
		}
	}
	return map[string]any{"type": "null"}
}

// branch takes an alternative that goes with the rest of the schema: near the surface
// the first that ends, deep down the one that ends soonest.
func (g *generator) branch(base map[string]any, list any, depth int) map[string]any {
	all, _ := list.([]any)
	var fit []map[string]any
	for _, b := range all {
		if m, ok := b.(map[string]any); ok && g.agrees(base, m) {
			fit = append(fit, m)
		}
	}
	fuels := []int{0, 1, 2, 4, lastHope}
	if depth < shallow {
		fuels = fuels[len(fuels)-1:]
	}
	for _, fuel := range fuels {
		for _, m := range fit {
			if g.ends(m, fuel) {
				return m
			}
		}
	}
	if len(fit) > 0 {
		return fit[0]
	}
	return nil
}

// agrees tells whether an alternative can hold together with the keywords beside it,
// as far as types and listed values tell.
func (g *generator) agrees(base, branch map[string]any) bool {
	for range lastHope {
		ref, ok := branch["$ref"].(string)
		if !ok {
			break
		}
		branch = merge(without(branch, "$ref"), g.lookup(ref))
	}
	both := merge(base, branch)
	if list, ok := both["enum"].([]any); ok {
		return slices.ContainsFunc(list, func(v any) bool { return admits(both, v) })
	}
	if c, ok := both["const"]; ok {
		return admits(both, c)
	}
	types := typesOf(both)
	return types == nil || len(types) > 0
}

// ends tells whether a value can be made with at most so many values inside each
// other. It assumes so when the search takes too long.
func (g *generator) ends(schema any, fuel int) bool {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema != false
	}
	if g.probes--; g.probes < 0 {
		return true
	}
	if fuel < 0 {
		return false
	}
	if ref, ok := s["$ref"].(string); ok && !g.refEnds(ref, fuel-1) {
		return false
	}
	if s["const"] != nil || s["enum"] != nil || slices.Contains(typesOf(s), "null") {
		return true
	}
	alternative := func(b any) bool { return g.ends(b, fuel) }
	for _, key := range [...]string{"anyOf", "oneOf"} {
		if list, ok := s[key].([]any); ok && !slices.ContainsFunc(list, alternative) {
			return false
		}
	}
	all, _ := s["allOf"].([]any)
	for _, b := range all {
		if !g.ends(b, fuel) {
			return false
		}
	}
	required, _ := s["required"].([]any)
	for _, r := range required {
		if name, _ := r.(string); !g.ends(propertyOf(s, name), fuel-1) {
			return false
		}
	}
	for i := range min(count(s, "minItems", 0), lastHope) {
		if !g.ends(itemOf(s, i), fuel-1) {
			return false
		}
	}
	return true
}

// refEnds is ends of what a reference leads to. It remembers the answers: a reference
// that leads to itself is tried again and again.
func (g *generator) refEnds(ref string, fuel int) bool {
	known, ok := g.refs[ref]
	if !ok {
		known = refFuel{enough: lastHope + 1, tooLittle: -1}
		g.refs[ref] = known
	}
	if fuel >= known.enough || fuel <= known.tooLittle {
		return fuel >= known.enough
	}
	ended := g.ends(g.lookup(ref), fuel)
	known = g.refs[ref] // the search may have met the reference again
	if ended {
		known.enough = min(known.enough, fuel)
	} else {
		known.tooLittle = max(known.tooLittle, fuel)
	}
	g.refs[ref] = known
	return ended
}

// refFuel is what is known of a reference: the least fuel with which it was seen to
// end, and the most with which it was seen not to.
type refFuel struct{ enough, tooLittle int }

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
