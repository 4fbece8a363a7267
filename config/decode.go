package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the values that one file may hold once its aliases are
// written out: a thousand workers need about ten thousand, and a bomb of
// aliases within aliases is over it at once.
const maxNodes = 50_000

// lookup finds a variable of the environment, as os.LookupEnv does.
type lookup func(name string) (value string, ok bool)

// place is where a path of the file stands in its source.
type place struct {
	key, value position
	raw        string // a scalar as written, before ${…} was replaced
	expanded   bool   // the value, or a part of it, came from ${…}
}

type position struct{ line, column int }

// decoder walks YAML nodes and fills a File from them. It never stops at a
// problem: what could not be read keeps its default.
type decoder struct {
	file      string
	env       lookup
	places    map[string]place
	problems  Problems
	told      map[string]bool // paths that a problem is about: one is enough
	nodes     int
	draft     bool              // the source is a draft: nothing outside it is read
	known     map[string]string // values with ${…} that a draft may have, by expansionKey
	expanded  map[string]string // values of this source that had ${…}, by expansionKey
	variables map[string]string // what ${…} was replaced by, unless too short for a secret
	keys      map[string]string // workers' keys by variable
}

// problem notes that something is wrong with the value at path, and returns it.
func (d *decoder) problem(n *yaml.Node, path, message, hint string) *Problem {
	d.told[path] = true
	d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Column: n.Column,
		Path: path, Message: message, Hint: hint})
	return &d.problems[len(d.problems)-1]
}

// value decodes one node into v, which is settable.
func (d *decoder) value(n *yaml.Node, path string, k key, v reflect.Value) {
	if d.nodes > maxNodes {
		return
	}
	if d.nodes++; d.nodes > maxNodes {
		d.problem(n, path, fmt.Sprintf("the file has more than %d values after alias expansion", maxNodes), "reduce the use of aliases")
		return
	}
	if n.Kind == yaml.AliasNode {
		// No section holds itself, so that an alias within what it stands for
		// ends at a value that does not fit.
		d.value(n.Alias, path, k, v)
		return
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.problem(n, path, "YAML tags are not supported", "remove the "+shorten(n.Tag))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if d.absent(n) && v.Type().Elem().Kind() == reflect.Struct {
			return
		}
		// What cannot be read stays unset: 0 is a value.
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
		d.list(n, path, k, v)
	default:
		d.scalar(n, path, k, v)
	}
}

// absent reports whether a section or list was written without a value, which
// is what remains of one whose content is commented out.
func (d *decoder) absent(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func (d *decoder) section(n *yaml.Node, path string, v reflect.Value) {
	fields := sections[v.Type()]
	read := d.pairs(n, path, func(kn, vn *yaml.Node, sub string) {
		if k, ok := fields.keys[kn.Value]; ok {
			d.value(vn, sub, k, v.Field(k.field))
		} else {
			d.unknown(kn, vn, path, sub, fields)
		}
	})
	for k := range members(v) {
		if read && k.required && !d.written(join(path, k.name)) {
			d.fault(join(path, k.name), "missing", "add "+k.name+": "+asHint(k.doc))
		}
	}
}

func (d *decoder) table(n *yaml.Node, path string, k key, v reflect.Value) {
	if n.Kind == yaml.MappingNode {
		v.Set(reflect.MakeMap(v.Type()))
	}
	d.pairs(n, path, func(kn, vn *yaml.Node, sub string) {
		item, before := reflect.New(v.Type().Elem()).Elem(), len(d.problems)
		d.value(vn, sub, k, item)
		// A number that cannot be read is not 0. A text stays, so that its key is
		// not missed as well.
		if len(d.problems) == before || item.Kind() == reflect.String {
			v.SetMapIndex(reflect.ValueOf(kn.Value), item)
		}
	})
}

func (d *decoder) list(n *yaml.Node, path string, k key, v reflect.Value) {
	if k.required && (d.absent(n) || n.Kind == yaml.SequenceNode && len(n.Content) == 0) {
		d.problem(n, path, "the list is empty", asHint(k.doc))
		return
	}
	if d.absent(n) && v.Type().Elem().Kind() == reflect.Struct {
		return
	}
	// Of texts, no list and an empty one differ: all models, or none.
	if d.absent(n) {
		d.problem(n, path, "the list has no value", "remove the key, or write [] for an empty list")
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(n, path, "want a list, got "+kindOf(n), "write [ … ], or one item per line after a hyphen")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		sub := path + "[" + strconv.Itoa(i) + "]"
		d.mark(sub, item, item)
		d.value(item, sub, k, v.Index(i))
	}
}

// pairs calls f for every key of a mapping that is a plain name and stands in
// it once, with the path that the key makes. It reports whether n is a mapping.
func (d *decoder) pairs(n *yaml.Node, path string, f func(kn, vn *yaml.Node, sub string)) bool {
	if n.Kind != yaml.MappingNode {
		if !d.absent(n) {
			d.problem(n, path, "want a section of keys, got "+kindOf(n), "")
		}
		return false
	}
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn, vn := n.Content[i], n.Content[i+1]
		sub := join(path, kn.Value)
		switch first, twice := lines[kn.Value]; {
		case kn.Tag == "!!merge":
			d.problem(kn, path, "merge keys (<<) are not supported", "write the keys out; an alias may replace only a whole value")
			continue
		case kn.Kind != yaml.ScalarNode || d.absent(kn):
			d.problem(kn, path, "want a plain name as the key, got "+kindOf(kn), "")
			continue
		case strings.Contains(kn.Value, "${"):
			d.problem(kn, sub, "variables are expanded in values, not in keys", "write the key without ${…}")
			continue
		case twice:
			d.problem(kn, sub, fmt.Sprintf("the key appears twice, first in line %d", first), "remove one of them")
			continue
		}
		lines[kn.Value] = kn.Line
		d.mark(sub, kn, vn)
		f(kn, vn, sub)
	}
	return true
}

// mark remembers where path stands.
func (d *decoder) mark(path string, kn, vn *yaml.Node) {
	d.places[path] = place{key: position{kn.Line, kn.Column}, value: position{vn.Line, vn.Column}}
}

// secretWords are keys under which someone would write a secret into the file.
var secretWords = map[string]bool{
	"api_key": true, "apikey": true, "key": true, "token": true, "password": true, "secret": true,
	"authorization": true, "bearer": true, "bearer_token": true, "auth_token": true,
}

// secretHint says where a secret of a section goes instead.
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

// unknown notes a key that its section does not have.
func (d *decoder) unknown(kn, vn *yaml.Node, path, sub string, section fields) {
	if secretWords[kn.Value] {
		p := d.problem(kn, sub, "the file must not contain secrets", secretHint(section.keys))
		p.hide = true // the key, and all that follows it
		if vn.Line > 0 && kn.Line == vn.Line {
			p.Column = vn.Column
		}
		return
	}
	d.problem(kn, sub, "unknown key", DidYouMean(kn.Value, section.names))
	// The mistyped key is the problem, not that the right one is missing.
	if near := nearest(kn.Value, section.names); near != "" && !d.written(join(path, near)) {
		d.mark(join(path, near), kn, vn)
		d.told[join(path, near)] = true
	}
}

// join adds a key to a path; a key that is no plain word is quoted.
func join(path, name string) string {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return path + "[" + quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// asHint turns the doc of a key into a hint: its first sentence, without the
// capital and the full stop.
func asHint(doc string) string {
	doc, _, _ = strings.Cut(doc, ". ")
	doc = strings.TrimSuffix(doc, ".")
	if len(doc) > 1 && 'A' <= doc[1] && doc[1] <= 'Z' { // a name such as SHA-256
		return doc
	}
	return strings.ToLower(doc[:1]) + doc[1:]
}

// kindOf names what a node holds, without its value.
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

// quote writes a value of the file for a message: in quotes, without control
// characters, cut after 64 characters.
func quote(s string) string { return strconv.Quote(shorten(s)) }

// shorten cuts a value after 64 characters.
func shorten(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}
