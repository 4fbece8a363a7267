package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tierway/store"
)

// Text is the text of a configuration file without its secrets. Its lines are those of the file.
type Text struct {
	Text       string
	Hash       string // SHA-256 of the file, in hex
	ModifiedAt time.Time
	Hidden     int // number of places where a secret was hidden or shortened
}

// ReadText reads the text of a configuration file, which need not be valid. Digests are shortened. Passwords
// in URLs, and values of keys that may hold a secret, are replaced by ***.
func ReadText(path string) (Text, error) {
	src, err := readFile(path)
	if err != nil {
		return Text{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(src) > maxFile {
		return Text{}, fmt.Errorf("reading the configuration: %s is longer than %v", path, Size(maxFile))
	}
	info, err := os.Stat(path)
	if err != nil {
		return Text{}, fmt.Errorf("reading the configuration: %w", err)
	}
	text, hidden := redactText(src)
	return Text{Text: text, Hash: hashOf(src), ModifiedAt: info.ModTime(), Hidden: hidden}, nil
}

// span is a part of the text with its replacement. Columns are in characters from 0.
type span struct {
	from, to position // to is exclusive
	text     string
	hidden   bool // the replacement hides something
}

// redactor finds the secrets in the nodes of a text.
type redactor struct {
	lines [][]rune
	order []position // starts of all nodes, sorted
	spans []span
	seen  map[*yaml.Node]bool // scalars with a span, and targets of aliases
}

// redactText returns a text without its secrets, and the number of hidden places. It finds secrets by the
// keys of the nodes, and by their form in comments and elsewhere. In an invalid text it hides more.
func redactText(src []byte) (text string, hidden int) {
	lines := splitLines(strings.ToValidUTF8(string(src), "\uFFFD"))
	r := &redactor{lines: runesOf(lines), seen: map[*yaml.Node]bool{}}
	roots, err := documentsOf(src)
	if err != nil {
		return redactLines(lines)
	}
	for _, root := range roots {
		r.addStarts(root)
	}
	slices.SortFunc(r.order, comparePositions)
	for _, root := range roots {
		r.searchValue(root, key{}, reflect.TypeFor[File]())
	}
	return r.replacedText()
}

func documentsOf(src []byte) (roots []*yaml.Node, err error) {
	documents := yaml.NewDecoder(bytes.NewReader(src))
	for {
		var document yaml.Node
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return roots, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing the text: %w", err)
		}
		roots = append(roots, document.Content...)
	}
}

func runesOf(lines []string) (all [][]rune) {
	for _, line := range lines {
		all = append(all, []rune(line))
	}
	return all
}

func comparePositions(a, b position) int {
	return cmp.Or(a.line-b.line, a.column-b.column)
}

// startOf returns the position of a node with both numbers from 0.
func startOf(n *yaml.Node) position { return position{max(n.Line-1, 0), max(n.Column-1, 0)} }

// addStarts records the positions of a node and of all nodes below it.
func (r *redactor) addStarts(n *yaml.Node) {
	r.order = append(r.order, startOf(n))
	for _, below := range n.Content {
		r.addStarts(below)
	}
}

// searchValue finds the secrets in the value of a key. t is the type of the value; nil: the key is unknown.
func (r *redactor) searchValue(n *yaml.Node, k key, t reflect.Type) {
	if n.Kind == yaml.AliasNode {
		if !r.seen[n.Alias] || k.secret || k.url {
			r.seen[n.Alias] = true
			r.searchValue(n.Alias, k, t)
		}
		return
	}
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && n.Kind != yaml.SequenceNode) {
		t = t.Elem()
	}
	section := t != nil && t.Kind() == reflect.Struct
	switch {
	case n.Kind == yaml.SequenceNode:
		if t != nil && t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		for _, item := range n.Content {
			r.searchValue(item, k, t)
		}
	case n.Kind == yaml.MappingNode && section:
		r.searchSection(n, t)
	case n.Kind == yaml.MappingNode && (t == nil || t.Kind() != reflect.Map):
		r.searchSection(n, nil)
	case n.Kind == yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			r.searchValue(n.Content[i], k, t.Elem())
		}
	case section && holdsSecrets(t): // a key in place of a section with its digest
		r.hideScalars(n)
	default:
		r.redactScalar(n, k)
	}
}

func holdsSecrets(t reflect.Type) bool {
	for _, k := range sections[t].keys {
		if k.secret || k.url {
			return true
		}
	}
	return false
}

// searchSection finds the secrets in a mapping. Without a type, each key may be one of any section.
func (r *redactor) searchSection(n *yaml.Node, t reflect.Type) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		k, known := sections[t].keys[name]
		switch {
		case known:
			r.searchValue(value, k, t.Field(k.field).Type)
		case n.Content[i].Tag == "!!merge":
			r.searchValue(value, key{}, t)
		case namesSecret(name):
			r.hideScalars(value)
		default:
			r.searchValue(n.Content[i], key{}, nil)
			r.searchValue(value, secretKeyNamed(name), nil)
		}
	}
}

// secretKeyNamed returns the key of any section that has this name and holds a secret; otherwise an empty
// key.
func secretKeyNamed(name string) key {
	for _, section := range sections {
		if k, ok := section.keys[strings.ToLower(name)]; ok && (k.secret || k.url) {
			return k
		}
	}
	return key{}
}

func (r *redactor) hideScalars(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		if !r.seen[n] {
			r.seen[n] = true
			r.hideScalars(n.Alias)
		}
	case n.Kind == yaml.ScalarNode:
		r.addSpan(n, "***", true)
	}
	for _, below := range n.Content {
		r.hideScalars(below)
	}
}

// onlyVariable matches a value that is one variable without a default.
var onlyVariable = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// redactScalar replaces the value of a key if it is, or may contain, a secret.
func (r *redactor) redactScalar(n *yaml.Node, k key) {
	shown := n.Value
	switch {
	case onlyVariable.MatchString(shown) || shown == "":
	case k.url:
		shown = store.RedactURL(shown)
	case k.secret && k.form == "digest" && isForm(k.form, shown):
		shown = shortDigest(shown)
	case k.secret && k.form == "" && quoteOf(n) == "":
		shown = `"` + hiddenText + `"` // so that the text stays valid
	case k.secret && (k.form != "variable" || !isForm(k.form, shown)):
		shown = "***"
	case forms[k.form].hide && forms[k.form].check != nil:
		if message, _ := forms[k.form].check(shown); message != "" {
			shown = "***"
		}
	}
	if _, found := redactForms(shown); found > 0 && k.secret { // such as a key in place of the name of its variable
		shown = "***"
	}
	if k.secret || k.url || shown != n.Value {
		r.addSpan(n, shown, shown != n.Value)
	}
}

// addSpan adds the span of a scalar. If the end of the scalar is not certain, the span reaches to the next node.
func (r *redactor) addSpan(n *yaml.Node, text string, hidden bool) {
	from := startOf(n)
	if from.line >= len(r.lines) {
		return
	}
	if start, to, found := literalOf(n, r.lines); found {
		quote := quoteOf(n)
		r.spans = append(r.spans, span{start, to, quote + text + quote, hidden})
		return
	}
	if !hidden { // nothing to hide; replacedText still hides secrets by their form
		return
	}
	to, after := position{len(r.lines), 0}, position{from.line, from.column + 1}
	if at, _ := slices.BinarySearchFunc(r.order, after, comparePositions); at < len(r.order) {
		to = r.order[at]
	}
	r.spans = append(r.spans, span{from, to, "***", true})
}

// quoteOf returns the quotation mark of a scalar; "" without one.
func quoteOf(n *yaml.Node) string {
	return map[yaml.Style]string{yaml.DoubleQuotedStyle: `"`, yaml.SingleQuotedStyle: `'`}[n.Style]
}

// literalOf returns the place of a scalar, with its quotes, that is written as its value on one line.
func literalOf(n *yaml.Node, lines [][]rune) (from, to position, found bool) {
	from = startOf(n)
	if from.line >= len(lines) || n.Value == "" || n.Style != 0 && quoteOf(n) == "" {
		return from, to, false
	}
	rest := string(lines[from.line][min(from.column, len(lines[from.line])):])
	literal := quoteOf(n) + n.Value + quoteOf(n)
	return from, position{from.line, from.column + len([]rune(literal))}, strings.HasPrefix(rest, literal)
}

// replacedText returns the text with all spans replaced, and the secrets between them hidden by their form.
func (r *redactor) replacedText() (text string, hidden int) {
	slices.SortStableFunc(r.spans, func(a, b span) int {
		return cmp.Or(comparePositions(a.from, b.from), comparePositions(b.to, a.to)) // the longest first
	})
	var out strings.Builder
	at := position{}
	for _, s := range r.spans {
		if comparePositions(s.from, at) < 0 { // inside the span before, or an alias of the same scalar
			continue
		}
		r.writeBetween(&out, at, s.from, &hidden)
		out.WriteString(s.text)
		out.WriteString(strings.Repeat("\n***", max(0, s.to.line-s.from.line-1)))
		if s.to.line > s.from.line && s.to.line < len(r.lines) {
			out.WriteString("\n" + strings.Repeat(" ", s.to.column))
		}
		if s.hidden {
			hidden++
		}
		at = s.to
	}
	r.writeBetween(&out, at, position{len(r.lines), 0}, &hidden)
	return out.String(), hidden
}

// writeBetween writes the text between two positions, with secrets hidden by their form.
func (r *redactor) writeBetween(out *strings.Builder, from, to position, hidden *int) {
	for line := from.line; line <= to.line && line < len(r.lines); line++ {
		runes := r.lines[line]
		begin, end := 0, len(runes)
		if line == from.line {
			begin = min(from.column, end)
		} else {
			out.WriteByte('\n')
		}
		if line == to.line {
			end = min(to.column, end)
		}
		text, n := redactForms(string(runes[begin:max(begin, end)]))
		out.WriteString(text)
		*hidden += n
	}
}

// secretForms match secrets by their form. The text of the first group, if there is one, is kept.
var secretForms = []struct {
	match       *regexp.Regexp
	replacement string
}{
	// a password may contain any delimiter, so the URL ends with its line
	{regexp.MustCompile(`((?:postgres(?:ql)?|rediss?(?:\+[a-z]+)?|mysql|mongodb)://)[^@?]*[@?].*`), "${1}***"},
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`), "${1}***@"},
	{regexp.MustCompile(`([0-9a-fA-F]{8})[0-9a-fA-F]{56,}`), "${1}…"},
	{regexp.MustCompile(`\b(tw-|sk-)[A-Za-z0-9_-]{16,}`), "${1}***"},
	{regexp.MustCompile(`(?i)\b(bearer\s+)[^\s"']+`), "${1}***"},
	{regexp.MustCompile(`(?i)((?:^|\s)#.*?(?:` + secretNames + `)["']?\s*[:=]\s*).+`), "${1}***"},
	// Without a colon, a comment such as "the key of the worker" is prose. Only one word is hidden, and only if it
	// has six characters or more and a digit, as few words of prose have.
	{regexp.MustCompile(`(?i)((?:^|\s)#.*?(?:` + secretNames + `)["']?(?:\s+is)?\s+)(?:` + longWithDigit + `)`),
		"${1}***"},
}

// secretNames are the names of keys with secrets, as alternatives of an expression. Any prefix belongs to a
// name, such as db_ in db_password. The plain plural keys is the name of sections.
const secretNames = `[\w-]*(?:sha256|api_?key|key|token|password|secret|authorization|bearer)|` +
	`[\w-]*(?:token|password|secret|header)s|[\w-]+keys|encrypt\w*`

// longWithDigit matches a word of at least six characters with a digit.
const longWithDigit = `\d\S{5,}|\S\d\S{4,}|\S{2}\d\S{3,}|\S{3}\d\S{2,}|\S{4}\d\S+|\S{5,}\d\S*`

// secretName matches a name of secretNames.
var secretName = regexp.MustCompile(`(?i)^(?:` + secretNames + `)$`)

// namesSecret reports whether the value of a key with this name may be a secret. Keys of the file that have no
// secret, such as max_tokens, are exempt, except for one-word names, which may be misplaced.
func namesSecret(name string) bool {
	name = strings.ToLower(name)
	return secretName.MatchString(name) && (secretWords[name] || !plainKeys[name])
}

// plainKeys are the names that no section has for a key with a secret.
var plainKeys = func() map[string]bool {
	plain := map[string]bool{}
	for _, section := range sections {
		for name := range section.keys {
			plain[name] = secretKeyNamed(name).name == ""
		}
	}
	return plain
}()

// redactForms hides the secrets of a text by their form, and returns their number.
func redactForms(text string) (out string, hidden int) {
	for _, f := range secretForms {
		out = f.match.ReplaceAllString(text, f.replacement)
		if out != text {
			hidden++
		}
		text = out
	}
	return text, hidden
}

// assignment matches a key that may have a secret, up to the end of its colon. The first group is its name.
var assignment = regexp.MustCompile(`(?i)(` + secretNames + `|\b(?:sql|redis|api_key_env))["']?\s*[:=]`)

// upToSecret returns a line up to the end of its first key with a secret; "" without one.
func upToSecret(line string) string {
	for _, m := range assignment.FindAllStringSubmatchIndex(line, -1) {
		if name := line[m[2]:m[3]]; namesSecret(name) || !secretName.MatchString(name) {
			return line[:m[1]]
		}
	}
	return ""
}

// redactLines hides the secrets of a text that is not valid YAML: everything after a key with a secret, up
// to the next key that is not indented further.
func redactLines(lines []string) (text string, hidden int) {
	out := make([]string, len(lines))
	masking, indent := false, 0
	for i, line := range lines {
		own := len(line) - len(strings.TrimLeft(line, " \t"))
		if masking && looksLikeKey(line) && own <= indent {
			masking = false
		}
		match := upToSecret(line)
		switch {
		case masking:
			out[i] = "***"
		case match != "":
			masking, indent = true, own
			out[i], _ = redactForms(match)
			out[i] += " ***"
			hidden++
		default:
			n := 0
			out[i], n = redactForms(line)
			hidden += n
		}
	}
	return strings.Join(out, "\n"), hidden
}
