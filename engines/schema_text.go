package engines

import (
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// formats are examples of each; never written.
var formats = map[string]string{
	"date": "2024-05-17", "time": "09:30:00Z", "date-time": "2024-05-17T09:30:00Z", "duration": "PT15M",
	"email": "someone@example.com", "hostname": "host.example.com", "uri": "https://example.com/a",
	"uuid": "3f8a1c5e-9b47-4d02-8e6f-0a1b2c3d4e5f", "ipv4": "192.0.2.17", "ipv6": "2001:db8::17",
}

// textRule is what a schema demands of a text.
type textRule struct {
	least, most int // characters; most is -1 without a bound
	pattern     *regexp.Regexp
	tree        *syntax.Regexp // of the pattern
	size        int            // instructions that the pattern compiles to
}

// newTextRule reads the keywords of texts. A pattern that Go does not know, such as
// one that looks ahead, counts as none.
func newTextRule(s map[string]any) textRule {
	r := textRule{least: count(s, "minLength", 0), most: count(s, "maxLength", -1)}
	pattern, ok := s["pattern"].(string)
	compiled, err := regexp.Compile(pattern)
	if !ok || err != nil {
		return r
	}
	r.pattern = compiled
	r.tree, _ = syntax.Parse(pattern, syntax.Perl) // as it was just compiled
	program, _ := syntax.Compile(r.tree.Simplify())
	r.size = len(program.Inst)
	return r
}

func (r textRule) accepts(text string) bool {
	n := utf8.RuneCountInString(text)
	return n >= r.least && (r.most < 0 || n <= r.most) && (r.pattern == nil || r.pattern.MatchString(text))
}

// text makes a text: the example of its format where that fits, else one of its
// pattern, else some words.
func (g *generator) text(s map[string]any) any {
	rule := newTextRule(s)
	if format, _ := s["format"].(string); formats[format] != "" && rule.accepts(formats[format]) {
		return formats[format]
	}
	if rule.tree != nil {
		if text, ok := matching(rule, &g.dice); ok {
			return text
		}
	}
	most := max(rule.least, 24) // 24 bytes: a few words
	if rule.most >= 0 {
		most = rule.most
	}
	text := prose(uint64(g.dice.roll(1<<30)), max(rule.least, 24)/tokenBytes+1)
	return text[:min(len(text), most)]
}
