package engines

import (
	"cmp"
	"encoding/json"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// formats are examples of each format; immutable.
var formats = map[string]string{
	"date": "2024-05-17", "time": "09:30:00Z", "date-time": "2024-05-17T09:30:00Z", "duration": "PT15M",
	"email": "someone@example.com", "hostname": "host.example.com", "uri": "https://example.com/a",
	"uuid": "3f8a1c5e-9b47-4d02-8e6f-0a1b2c3d4e5f", "ipv4": "192.0.2.17", "ipv6": "2001:db8::17",
}

// usualArguments are values that the tools of agents accept, by the parameter's name in lower case;
// immutable. The command changes nothing, and the pattern is a glob and a regular expression.
var usualArguments = map[string]string{
	"command": "ls", "cmd": "ls", "pattern": "[a-z]*", "url": "https://example.com/",
	"path": ".", "directory": ".", "dir": ".", "cwd": ".", "workdir": ".", "file_path": ".", "filepath": ".",
}

// exampleKey is the key of a preferred text in a schema; no schema of a client has it.
const exampleKey = "\x00example"

// text generates a text: the example of its format or name if that fits, else a match of its pattern,
// else some words. A pattern that Go does not support, such as lookahead, is ignored.
func (g *generator) text(s map[string]any) any {
	least, maxLength := count(s, "minLength", 0), count(s, "maxLength", 1<<16)
	pattern, _ := s["pattern"].(string)
	compiled, err := regexp.Compile(pattern)
	fits := func(text string) bool {
		n := utf8.RuneCountInString(text)
		return n >= least && n <= maxLength && (err != nil || compiled.MatchString(text))
	}
	format, _ := s["format"].(string)
	named, _ := s[exampleKey].(string)
	if example := cmp.Or(formats[format], named); example != "" && fits(example) {
		return example
	}
	if tree, err := syntax.Parse(pattern, syntax.Perl); err == nil && pattern != "" {
		p := patterned{rng: &g.rng, left: mostSteps, more: max(least-mostTries/2, 0)}
		for range mostTries {
			p.Reset()
			if p.write(tree); fits(p.String()) {
				return p.String()
			}
			p.more++
		}
	}
	n := max(least, min(maxLength, 24)) // 24 bytes: a few words
	return prose(uint64(g.rng.roll(1<<30)), n/tokenBytes+1)[:n]
}

// The bounds of a search for a match of a pattern.
const (
	mostTries = 64
	mostSteps = 1 << 14
)

// patterned writes a text from the tree of a pattern. All unbounded repetitions have the same
// length.
type patterned struct {
	strings.Builder
	rng  *rng
	more int // repetitions beyond the minimum
	left int // remaining steps
}

func (p *patterned) write(re *syntax.Regexp) {
	if p.left--; p.left < 0 {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		p.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		p.WriteRune(pickRune(re.Rune, p.rng))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		p.WriteByte(byte('a' + p.rng.roll(26)))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			p.write(sub)
		}
	case syntax.OpAlternate:
		p.write(re.Sub[p.rng.roll(len(re.Sub))])
	case syntax.OpStar:
		p.repeat(re.Sub[0], 0, -1)
	case syntax.OpPlus:
		p.repeat(re.Sub[0], 1, -1)
	case syntax.OpQuest:
		p.repeat(re.Sub[0], 0, 1)
	case syntax.OpRepeat:
		p.repeat(re.Sub[0], re.Min, re.Max)
	}
	// The rest are anchors and empty matches, which write nothing.
}

// repeat writes an expression least to maxTimes times; maxTimes is -1 without a bound.
func (p *patterned) repeat(re *syntax.Regexp, least, maxTimes int) {
	n := least + p.more
	if maxTimes >= 0 {
		n = min(n, maxTimes)
	}
	for ; n > 0 && p.left > 0; n-- {
		p.write(re)
	}
}

// pickRune chooses a character of a class, a printable ASCII one if possible: a negated class
// begins with control characters.
func pickRune(ranges []rune, d *rng) rune {
	for i := 0; i+1 < len(ranges); i += 2 {
		low, high := max(ranges[i], '!'), min(ranges[i+1], '~')
		if low <= high {
			return low + rune(d.roll(int(high-low)+1))
		}
	}
	if len(ranges) == 0 {
		return 'x'
	}
	return ranges[0]
}

// described are the keywords that Anthropic's SDKs move to the end of a description, as in
// "{minimum: 1, maximum: 5}", because the API does not support them. The SDKs check the answer
// against the whole schema: a model is expected to read them there.
const described = `(?:^|, )(minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf|minLength|maxLength|pattern|minItems|maxItems|uniqueItems): `

// withDescribed returns a schema with its keywords moved back. A schema that is not valid JSON is
// returned unchanged.
func withDescribed(schema json.RawMessage) json.RawMessage {
	var root any
	if json.Unmarshal(schema, &root) != nil {
		return schema
	}
	liftDescribed(root, regexp.MustCompile(described))
	lifted, _ := json.Marshal(root) // it came from JSON
	return lifted
}

func liftDescribed(v any, keyword *regexp.Regexp) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			liftDescribed(one, keyword)
		}
	case map[string]any:
		text, _ := v["description"].(string)
		text = text[strings.LastIndex(text, "\n")+1:]
		if list, ok := strings.CutSuffix(text, "}"); ok && strings.HasPrefix(list, "{") {
			list = list[1:]
			found := keyword.FindAllStringSubmatchIndex(list, -1)
			for i, at := range found {
				end := len(list)
				if i+1 < len(found) {
					end = found[i+1][0]
				}
				v[list[at[2]:at[3]]] = describedValue(list[at[1]:end])
			}
		}
		for _, one := range v {
			liftDescribed(one, keyword)
		}
	}
}

// describedValue parses a value in JSON or Python notation.
func describedValue(text string) (v any) {
	switch {
	case json.Unmarshal([]byte(text), &v) == nil:
		return v
	case text == "True" || text == "False":
		return text == "True"
	}
	return text
}
