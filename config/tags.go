package config

import (
	"iter"
	"maps"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// key is one key of the file, as the tags of its field describe it. The decoder
// checks by it; the printed form, the list of changes and the effects of a reload are
// made from it, and a test writes docs/config.md and docs/config.schema.json. The tags,
// of which only yaml and doc must be there:
//
//	yaml      its name
//	doc       its meaning, for the references and hints; 'x' stands for `x`
//	absent    what holds without the key, where that is not the default of Default
//	required  "true": its section is nothing without it
//	enum      its only values, with commas between them
//	form      the form of a text, one of forms
//	min, max  the bounds of a number; 0 and none where they are not given
//	above     in place of min, what a number must be more than
//	below     in place of max, what a number must be less than
//	zero      "true": a duration or size may be 0; it is printed though it is 0 or empty
//	secret    "true": the value is never shown; "url": it is shown without its password
//	reload    "restart": a change of it, or of anything below it, waits for a restart;
//	          "drain": on a change, or on the removal of an item, a worker drains
//	ordered   "true": the order of a list of sections means something
//	policy    the only routing policy that reads it
//	way       the way out of a text that does not have its form
//
// A tag tier_x replaces x in a section of tiers, and tier_yaml:"-" removes the key.
type key struct {
	name, doc, absent  string
	field              int
	form               string
	required           bool
	words              []string
	min, max           float64
	above, below, zero bool
	secret, url        bool
	reload             string
	ordered            bool
	policy, way        string
}

// noBound marks a number without an upper bound.
const noBound = math.MaxInt32

// fields are the keys of a section.
type fields struct {
	names []string // in their order
	keys  map[string]key
}

// sections holds the keys of every section of the file by its type.
var sections = sectionsOf(reflect.TypeFor[File]()) //nolint:gochecknoglobals // a table

// sectionsOf reads the tags of a section and of all below it.
func sectionsOf(t reflect.Type) map[reflect.Type]fields {
	found, f := map[reflect.Type]fields{}, fields{keys: map[string]key{}}
	for i := range t.NumField() {
		k := keyOfTag(t.Field(i).Tag, t == reflect.TypeFor[Tier]())
		if k.name == "" || k.name == "-" {
			continue
		}
		k.field = i
		f.names, f.keys[k.name] = append(f.names, k.name), k
		if below := itemOf(t.Field(i).Type); below.Kind() == reflect.Struct {
			maps.Copy(found, sectionsOf(below))
		}
	}
	found[t] = f
	return found
}

// itemOf returns what a list holds and a pointer points at, and any other type itself.
func itemOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// inCode finds the code in a tag's text. An apostrophe follows a letter.
var inCode = regexp.MustCompile(`(^|[ (])'([^' ][^']*)'`)

func keyOfTag(tag reflect.StructTag, tier bool) key {
	get := func(name string) string {
		if own, ok := tag.Lookup("tier_" + name); ok && tier {
			return own
		}
		return tag.Get(name)
	}
	text := func(name string) string {
		text := inCode.ReplaceAllString(get(name), "$1`$2`")
		if tier {
			text = strings.ReplaceAll(text, "pool's", "tier's")
		}
		return text
	}
	bound := func(name, exclusive string, otherwise float64) (number float64, beyond bool) {
		for _, n := range [...]string{name, exclusive} {
			if number, err := strconv.ParseFloat(get(n), 64); err == nil {
				return number, n == exclusive
			}
		}
		return otherwise, false
	}
	k := key{doc: text("doc"), absent: text("absent"), form: get("form"), required: get("required") == "true", zero: get("zero") == "true",
		secret: get("secret") == "true", url: get("secret") == "url", reload: get("reload"),
		ordered: get("ordered") == "true", policy: get("policy"), way: get("way")}
	k.name, _, _ = strings.Cut(get("yaml"), ",")
	k.min, k.above = bound("min", "above", 0)
	k.max, k.below = bound("max", "below", noBound)
	if words := get("enum"); words != "" {
		k.words = strings.Split(words, ",")
	}
	return k
}

// members returns the keys of a section in their order, with their values.
func members(section reflect.Value) iter.Seq2[key, reflect.Value] {
	f := sections[section.Type()]
	return func(yield func(key, reflect.Value) bool) {
		for _, name := range f.names {
			if !yield(f.keys[name], section.Field(f.keys[name].field)) {
				return
			}
		}
	}
}
