package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/routing"
	"tierway/tiers"
	"tierway/tokenizer"
)

// maxNodes limits the values of one file after alias expansion. A thousand workers need about
// ten thousand values; nested aliases that expand exponentially exceed the limit at once.
const maxNodes = 50_000

// maxText limits the characters of all values of one file after alias expansion, in bytes: a problem may contain its
// value, and an alias repeats a long one.
const maxText = maxFile

// lookup returns an environment variable, like os.LookupEnv.
type lookup func(name string) (value string, ok bool)

// place is the position of a path in the source. A file has many, and maxFile bounds the numbers.
type place struct{ keyLine, keyColumn, line, column int32 }

func (p place) key() position   { return position{int(p.keyLine), int(p.keyColumn)} }
func (p place) value() position { return position{int(p.line), int(p.column)} }

type position struct{ line, column int }

// decoder fills a File from YAML nodes. It continues after problems: values that it cannot read
// keep their defaults.
type decoder struct {
	file              string
	env               lookup
	ended             func() error // why the rest is not read; nil while it is
	places            map[string]place
	raw               map[string]string // by path, scalars with an expanded ${…} as written
	problems          Problems
	reported          map[string]bool                 // paths that have a problem, and warnings; each is reported once
	warned            map[string]bool                 // paths of which all problems are warnings
	nodes, text       int                             // values so far, and their bytes
	draft             bool                            // the source is a draft and may read nothing else
	allowedExpansions map[string]string               // values with ${…} that a draft may contain, by expansionKey
	expanded          map[string]string               // expanded values of this source, by expansionKey
	variables         map[string]string               // values of variables, without those too short to be secrets
	keys              map[string]string               // workers' keys by variable
	servers           map[string]canonicalServer      // by URL
	tokens            map[string]*tokenizer.Tokenizer // by path
	live              *File                           // beside which a draft is evaluated; nil: no draft
}

// reportNode adds a problem of the value at path, positioned at n, and returns it.
func (d *decoder) reportNode(n *yaml.Node, path, message, hint string) *Problem {
	d.reported[path] = true
	d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Column: n.Column,
		Path: path, Message: message, Hint: hint})
	return &d.problems[len(d.problems)-1]
}

// value decodes one node into v, which is settable.
func (d *decoder) value(n *yaml.Node, path string, k key, v reflect.Value) {
	if d.nodes > maxNodes {
		return
	}
	if d.ended() != nil {
		d.nodes = maxNodes + 1 // the rest is not read
		return
	}
	if d.nodes++; d.nodes > maxNodes {
		d.reportNode(n, path, fmt.Sprintf("the file has more than %d values after alias expansion", maxNodes),
			"reduce the use of aliases")
		return
	}
	if d.text += len(n.Value); d.text > maxText {
		d.nodes = maxNodes + 1 // the rest is not read
		d.reportNode(n, path, fmt.Sprintf("the file has more than %d bytes of values after alias expansion", maxText),
			"reduce the use of aliases")
		return
	}
	if n.Kind == yaml.AliasNode {
		// No section contains itself, so the recursion of an alias inside its own target ends at
		// a value of the wrong kind.
		d.value(n.Alias, path, k, v)
		return
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.reportNode(n, path, "YAML tags are not supported", "remove the "+shorten(n.Tag))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if d.isNull(n) && v.Type().Elem().Kind() == reflect.Struct {
			return
		}
		// An unreadable value stays unset, because 0 would be a value.
		to, before := reflect.New(v.Type().Elem()), len(d.problems)
		d.value(n, path, k, to.Elem())
		if len(d.problems) == before || to.Elem().Kind() == reflect.Struct {
			v.Set(to)
		}
	case reflect.Struct:
		d.section(n, path, v)
	case reflect.Map:
		d.table(n, path, k, v)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[tiers.Targets]() && n.Kind == yaml.ScalarNode && !d.isNull(n) {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1)) // one target, written without a list
			v = v.Index(0)
			d.scalar(n, path, k, v)
			return
		}
		d.list(n, path, k, v)
	default:
		d.scalar(n, path, k, v)
	}
}

// isNull reports whether a section or list is written without a value, for example because its
// content is commented out.
func (d *decoder) isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func (d *decoder) section(n *yaml.Node, path string, v reflect.Value) {
	fields := sections[v.Type()]
	read := d.eachPair(n, path, func(kn, vn *yaml.Node, sub string) {
		if k, ok := fields.keys[kn.Value]; ok {
			d.value(vn, sub, k, v.Field(k.field))
		} else {
			var hint string
			switch {
			case path == "":
				hint = sectionHints[kn.Value]
			case v.Type() == reflect.TypeFor[routing.Config]():
				hint = policyHints[kn.Value]
			}
			d.reportUnknownKey(kn, vn, path, sub, fields, hint)
		}
	})
	for _, name := range fields.required {
		if at := join(path, name); read && !d.written(at) {
			d.report(at, "missing", "add "+name+": "+asHint(fields.keys[name].doc))
		}
	}
}

func (d *decoder) table(n *yaml.Node, path string, k key, v reflect.Value) {
	if n.Kind == yaml.MappingNode {
		v.Set(reflect.MakeMap(v.Type()))
	}
	d.eachPair(n, path, func(kn, vn *yaml.Node, sub string) {
		item, before := reflect.New(v.Type().Elem()).Elem(), len(d.problems)
		d.value(vn, sub, k, item)
		// An unreadable number is not stored as 0. A string is stored, so that its key is not
		// reported as missing too.
		if len(d.problems) == before || item.Kind() == reflect.String {
			v.SetMapIndex(reflect.ValueOf(kn.Value), item)
		}
	})
}

func (d *decoder) list(n *yaml.Node, path string, k key, v reflect.Value) {
	if k.required && (d.isNull(n) || n.Kind == yaml.SequenceNode && len(n.Content) == 0) {
		d.reportNode(n, path, "the list is empty", asHint(k.doc))
		return
	}
	if d.isNull(n) && v.Type().Elem().Kind() == reflect.Struct {
		return
	}
	// An absent and an empty list of strings differ: all models, or none.
	if d.isNull(n) {
		d.reportNode(n, path, "the list has no value", "remove the key, or write [] for an empty list")
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.reportNode(n, path, "want a list, got "+kindOf(n), "write [ … ], or one item per line after a hyphen")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		sub := itemPath(path, i)
		d.setPlace(sub, item, item)
		d.value(item, sub, k, v.Index(i))
	}
}

// eachPair calls f for every valid key of a mapping, with the path of the key. Duplicate keys
// and keys that are not plain names are reported. It returns whether n is a mapping.
func (d *decoder) eachPair(n *yaml.Node, path string, f func(kn, vn *yaml.Node, sub string)) bool {
	if n.Kind != yaml.MappingNode {
		if !d.isNull(n) {
			hint := ""
			if n.Kind == yaml.ScalarNode && (path == "policy" || strings.HasSuffix(path, ".policy") ||
				strings.HasSuffix(path, ".prefill_policy")) {
				hint = fmt.Sprintf("write { name: %s }", n.Value)
			}
			d.reportNode(n, path, "want a section of keys, got "+kindOf(n), hint)
		}
		return false
	}
	lines := map[string]int{} // without a size, which would allocate the memory of few keys too
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn, vn := n.Content[i], n.Content[i+1]
		sub := join(path, kn.Value)
		switch first, twice := lines[kn.Value]; {
		case kn.Tag == "!!merge":
			d.reportNode(kn, path, "merge keys (<<) are not supported",
				"write the keys out; an alias may replace only a whole value")
			continue
		case kn.Kind != yaml.ScalarNode || d.isNull(kn):
			d.reportNode(kn, path, "want a plain name as the key, got "+kindOf(kn), "")
			continue
		case strings.Contains(kn.Value, "${"):
			d.reportNode(kn, sub, "variables are expanded in values, not in keys", "write the key without ${…}")
			continue
		case twice:
			d.reportNode(kn, sub, fmt.Sprintf("the key appears twice, first in line %d", first), "remove one of them")
			continue
		}
		lines[kn.Value] = kn.Line
		d.setPlace(sub, kn, vn)
		f(kn, vn, sub)
	}
	return true
}

func (d *decoder) setPlace(path string, kn, vn *yaml.Node) {
	d.places[path] = place{int32(kn.Line), int32(kn.Column), int32(vn.Line), int32(vn.Column)}
}

// secretWords are keys under which users might write a secret into the file.
var secretWords = map[string]bool{
	"api_key": true, "apikey": true, "key": true, "token": true, "password": true, "secret": true,
	"authorization": true, "bearer": true, "bearer_token": true, "auth_token": true,
}

// secretHint returns where a secret of a section belongs instead.
func secretHint(keys map[string]key) string {
	switch {
	case keys["sql"].url:
		return "set it in an environment variable and use that in the URL: postgres://user:${PASSWORD}@host/database"
	case keys["api_key_env"].secret:
		return "set it in an environment variable and name the variable in api_key_env"
	case keys["sha256"].secret:
		return `set sha256 to its digest, from ` + makeDigest
	}
	return "name the variable of a worker's key in api_key_env; write a tenant's key as sha256"
}

// reportUnknownKey reports a key that its section does not have. hint is what to write instead; empty if it
// is not known.
func (d *decoder) reportUnknownKey(kn, vn *yaml.Node, path, sub string, section fields, hint string) {
	if secretWords[kn.Value] {
		p := d.reportNode(kn, sub, "the file must not contain secrets", secretHint(section.keys))
		p.hide = true // hides the key and everything after it
		if vn.Line > 0 && kn.Line == vn.Line {
			p.Column = vn.Column
		}
		return
	}
	d.reportNode(kn, sub, "unknown key", cmp.Or(hint, DidYouMean(kn.Value, section.names)))
	// The mistyped key is the problem; do not report the correct one as missing.
	if near := nearest(kn.Value, section.names); near != "" && !d.written(join(path, near)) {
		d.setPlace(join(path, near), kn, vn)
		d.reported[join(path, near)] = true
	}
}

// join adds a key to a path. A key that is not a plain word is quoted.
func join(path, name string) string {
	if !isPlain(name) {
		return path + "[" + quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// isPlain reports whether a key is a plain word.
func isPlain(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// asHint returns the first sentence of a key's doc as a hint, without the initial capital and
// the full stop.
func asHint(doc string) string {
	doc, _, _ = strings.Cut(doc, ". ")
	doc = strings.TrimSuffix(doc, ".")
	if len(doc) > 1 && 'A' <= doc[1] && doc[1] <= 'Z' { // a name such as SHA-256
		return doc
	}
	return strings.ToLower(doc[:1]) + doc[1:]
}

// kindOf returns the kind of a node, without its value.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section of keys"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return "a single value"
}

// quote returns a value of the file for a message: quoted, without control characters, and cut
// after 64 characters.
func quote(s string) string { return strconv.Quote(shorten(s)) }

// shorten cuts a value after 64 characters.
func shorten(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}
