package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// family describes a metric to the checker.
type family struct {
	counts bool // a counter, which must be read through a function such as rate
	labels []string
}

// value describes the result of an expression: its shape and, for vectors, the labels that all series
// have.
type value struct {
	shape  byte // see shapeName
	counts bool // an unchanged counter
	labels []string
}

// shapeName returns the name of a type of PromQL.
func shapeName(shape byte) string {
	return map[byte]string{'s': "scalar", 't': "string", 'i': "instant vector", 'r': "range vector"}[shape]
}

// promQL checks one expression against the exported metrics. It supports only the functions that the
// project uses.
type promQL struct {
	metrics map[string]family
	tokens  []string
}

// promToken matches one token of PromQL after white space and comments.
var promToken = regexp.MustCompile(`^(?:\s|#[^\n]*)*("(?:[^"\\]|\\.)*"|(?:\d+(?:ms|[smhdwy]))+|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[a-zA-Z_:][\w:]*|=~|!~|!=|==|<=|>=|[-+*/%^(){}\[\],<>=]|$)`)

// functions returns the shapes of the arguments and of the result of each function. An upper-case R is
// a range vector of a counter.
func functions() map[string]string {
	return map[string]string{"rate": "Ri", "increase": "Ri", "changes": "ri", "deriv": "ri", "delta": "ri",
		"max_over_time": "ri", "min_over_time": "ri", "avg_over_time": "ri", "histogram_quantile": "sii",
		"clamp_min": "isi", "clamp_max": "isi", "abs": "ii", "time": "s", "vector": "si", "scalar": "is", "absent": "ii"}
}

// levels returns the binary operators by precedence, lowest first.
func levels() [][]string {
	return [][]string{{"or"}, {"and", "unless"}, {"==", "!=", "<=", "<", ">=", ">"}, {"+", "-"}, {"*", "/", "%"}}
}

// checkPromQL returns the result of an expression, or its first error.
func checkPromQL(metrics map[string]family, text string) (v value, err error) {
	p := &promQL{metrics: metrics}
	defer func() {
		if broken, ok := recover().(error); ok {
			err = fmt.Errorf("%w in %s", broken, text)
		}
	}()
	for rest := text; ; {
		m := promToken.FindStringSubmatch(rest)
		if m == nil {
			p.fail("%.20q is no PromQL", rest)
		}
		p.tokens = append(p.tokens, m[1]) // the last one is empty
		if rest = rest[len(m[0]):]; m[1] == "" {
			break
		}
	}
	if v = p.binary(0); p.tokens[0] != "" {
		p.fail("unexpected %q after the expression", p.tokens[0])
	}
	return v, nil
}

func (p *promQL) fail(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

func (p *promQL) take() string {
	t := p.tokens[0]
	if t == "" {
		p.fail("unexpected end of expression")
	}
	p.tokens = p.tokens[1:]
	return t
}

func (p *promQL) accept(t string) bool {
	if p.tokens[0] != t {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *promQL) want(t string) {
	if got := p.take(); got != t {
		p.fail("unexpected %q: want %q", got, t)
	}
}

func (p *promQL) binary(level int) value {
	if level == len(levels()) {
		return p.unary()
	}
	left := p.binary(level + 1)
	for slices.Contains(levels()[level], p.tokens[0]) {
		operator := p.take()
		returned := p.accept("bool")
		matching, names, side := p.matching()
		right := p.binary(level + 1)
		if left.shape == 'r' || right.shape == 'r' || left.shape == 't' || right.shape == 't' {
			p.fail("%s takes no range vector and no string", operator)
		}
		if compares := level == 2; !compares || returned {
			left.counts = false
		}
		if left.shape == 's' || right.shape == 's' {
			if level < 2 {
				p.fail("%s takes no scalar", operator)
			}
			if left.shape == 's' {
				left = value{shape: right.shape, labels: right.labels}
			}
			continue
		}
		left.labels = p.joined(operator, left.labels, right.labels, matching, names, side)
	}
	return left
}

// matching parses on, ignoring and group_left.
func (p *promQL) matching() (matching string, names []string, side bool) {
	if p.tokens[0] != "on" && p.tokens[0] != "ignoring" {
		return "", nil, false
	}
	matching, names = p.take(), p.names()
	if side = p.accept("group_left"); side && p.tokens[0] == "(" {
		p.names()
	}
	return matching, names, side
}

// joined returns the labels of the result of a binary operator. It reports vectors that can never match
// because one lacks a label.
func (p *promQL) joined(operator string, left, right []string, matching string, names []string, side bool) []string {
	by := func(labels []string) (kept []string) {
		for _, l := range labels {
			if matching == "" || slices.Contains(names, l) == (matching == "on") {
				kept = append(kept, l)
			}
		}
		return kept
	}
	if operator == "or" {
		return slices.DeleteFunc(slices.Clone(left), func(l string) bool { return !slices.Contains(right, l) })
	}
	l, r := by(left), by(right)
	if !slices.Equal(l, r) || matching == "on" && len(l) != len(names) {
		p.fail("the sides of %s have the labels %q and %q and never match", operator, l, r)
	}
	if side || matching == "" || operator == "and" || operator == "unless" {
		return left
	}
	return l
}

func (p *promQL) names() (names []string) {
	p.want("(")
	for !p.accept(")") {
		names = append(names, p.take())
		if p.tokens[0] != ")" {
			p.want(",")
		}
	}
	return names
}

func (p *promQL) unary() value {
	if p.accept("-") {
		return value{shape: p.unary().shape}
	}
	v := p.primary()
	if p.accept("[") {
		if v.shape != 'i' || !regexp.MustCompile(`^\d+(ms|[smhdwy])`).MatchString(p.take()) {
			p.fail("a range needs a metric and a duration")
		}
		p.want("]")
		v.shape = 'r'
	}
	if p.accept("offset") {
		p.take()
	}
	return v
}

func (p *promQL) primary() value {
	t := p.take()
	switch {
	case t == "(":
		v := p.binary(0)
		p.want(")")
		return v
	case t[0] == '"':
		return value{shape: 't'}
	case t[0] >= '0' && t[0] <= '9' || t[0] == '.':
		return value{shape: 's'}
	case slices.Contains([]string{"sum", "min", "max", "avg", "count", "topk", "bottomk"}, t):
		return p.aggregate(t)
	case p.tokens[0] == "(":
		return p.call(t)
	}
	return p.selector(t)
}

// aggregate parses aggregations such as sum by (…) (…).
func (p *promQL) aggregate(name string) value {
	by, names := "", []string(nil)
	grouping := func() {
		if by == "" && (p.tokens[0] == "by" || p.tokens[0] == "without") {
			by, names = p.take(), p.names()
		}
	}
	grouping()
	p.want("(")
	if strings.HasSuffix(name, "k") {
		p.shaped(name, p.binary(0), 's')
		p.want(",")
	}
	inner := p.shaped(name, p.binary(0), 'i')
	p.want(")")
	grouping()
	for _, n := range names {
		if !slices.Contains(inner.labels, n) {
			p.fail("%s groups by the label %q, which its series lack", name, n)
		}
	}
	if strings.HasSuffix(name, "k") {
		return inner
	}
	if by == "" {
		return value{shape: 'i', counts: inner.counts}
	}
	kept := slices.DeleteFunc(slices.Clone(inner.labels), func(l string) bool {
		return slices.Contains(names, l) != (by == "by")
	})
	return value{shape: 'i', counts: inner.counts, labels: kept}
}

// shaped returns an argument. It fails if the argument does not have the shape.
func (p *promQL) shaped(name string, v value, shape byte) value {
	if shape == 'R' && v.shape == 'r' && !v.counts {
		p.fail("%s needs a counter", name)
	}
	if want := shape | 0x20; v.shape != want {
		p.fail("%s: got a value of type %s, want %s", name, shapeName(v.shape), shapeName(want))
	}
	return v
}

func (p *promQL) call(name string) value {
	shapes, ok := functions()[name]
	if !ok {
		p.fail("there is no function %q", name)
	}
	p.want("(")
	out := value{shape: shapes[len(shapes)-1]}
	for i, shape := range []byte(shapes[:len(shapes)-1]) {
		if i > 0 {
			p.want(",")
		}
		if v := p.shaped(name, p.binary(0), shape); v.shape != 's' && name != "absent" {
			out.labels = v.labels
		}
	}
	p.want(")")
	if name == "histogram_quantile" {
		if !slices.Contains(out.labels, "le") {
			p.fail("histogram_quantile needs the label le")
		}
		out.labels = slices.DeleteFunc(slices.Clone(out.labels), func(l string) bool { return l == "le" })
	}
	return out
}

func (p *promQL) selector(name string) value {
	f, ok := p.metrics[name]
	if !ok {
		p.fail("there is no metric %q", name)
	}
	if p.accept("{") {
		for !p.accept("}") {
			if label := p.take(); !slices.Contains(f.labels, label) {
				p.fail("%s has no label %q", name, label)
			}
			if sign := p.take(); !slices.Contains([]string{"=", "!=", "=~", "!~"}, sign) {
				p.fail("unexpected %q: want =, !=, =~ or !~", sign)
			}
			if text := p.take(); text[0] != '"' {
				p.fail("unexpected %s: want a string in quotes", text)
			}
			if p.tokens[0] != "}" {
				p.want(",")
			}
		}
	}
	return value{shape: 'i', counts: f.counts, labels: f.labels}
}
