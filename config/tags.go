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

// key is one key of the file, as the tags of its field describe it. The decoder validates with
// it. The printed form, the list of changes and the effects of a reload are derived from it,
// and a test generates docs/config.md and docs/config.schema.json. The tags, of which yaml and
// doc are required:
//
//	yaml      its name
//	doc       its meaning, for the references and hints; 'x' stands for `x`
//	absent    the value without the key, if it differs from Default
//	required  "true": the section is invalid without it
//	enum      its only values, comma-separated
//	form      the form of a string, one of forms
//	min, max  the bounds of a number; default 0 and none
//	above     exclusive lower bound, instead of min
//	below     exclusive upper bound, instead of max
//	zero      "true": a duration or size may be 0; it is printed even if it is 0 or empty
//	secret    "true": the value is never shown; "url": it is shown without its password
//	reload    "restart": a change of it, or of anything below it, needs a restart;
//	          "drain": a worker drains after a change, or after the removal of an item
//	ordered   "true": the order of a list is significant
//	policy    the routing policies that use it, comma-separated
//	way       the hint for a string that does not have its form
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

// noBound is the maximum of a number without an upper bound.
const noBound = math.MaxInt32

type fields struct {
	names   []string // in the order of the struct
	ordered []key    // the same
	keys    map[string]key

	required []string // names of the required keys
	outside  bool     // a value names something outside the file, such as a variable, here or below
}

var sections = sectionsOf(reflect.TypeFor[File]()) //nolint:gochecknoglobals // a table

// sectionsOf reads the tags of a section and of all sections below it.
func sectionsOf(t reflect.Type) map[reflect.Type]fields {
	found, f := map[reflect.Type]fields{}, fields{keys: map[string]key{}}
	for i := range t.NumField() {
		k := keyOfTag(t.Field(i).Tag, t == reflect.TypeFor[Tier]())
		if k.name == "" || k.name == "-" {
			continue
		}
		k.field = i
		f.names, f.ordered, f.keys[k.name] = append(f.names, k.name), append(f.ordered, k), k
		if k.required {
			f.required = append(f.required, k.name)
		}
		f.outside = f.outside || k.form == "variable" || k.form == "tokenizer" || k.form == "model"
		if below := itemOf(t.Field(i).Type); below.Kind() == reflect.Struct {
			maps.Copy(found, sectionsOf(below))
			f.outside = f.outside || found[below].outside
		}
	}
	found[t] = f
	return found
}

// itemOf returns the element type of a list or pointer, and any other type itself.
func itemOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// inCode matches code in the text of a tag. An apostrophe follows a letter, so it does not
// match.
var inCode = regexp.MustCompile(`(^|[ (])'([^' ][^']*)'`)

// keyOfTag parses the tags of one field; tier selects the tier_ variants.
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
	k := key{
		doc:      text("doc"),
		absent:   text("absent"),
		form:     get("form"),
		required: get("required") == "true",
		zero:     get("zero") == "true",
		secret:   get("secret") == "true",
		url:      get("secret") == "url",
		reload:   get("reload"),
		ordered:  get("ordered") == "true",
		policy:   get("policy"),
		way:      get("way"),
	}
	k.name, _, _ = strings.Cut(get("yaml"), ",")
	k.min, k.above = bound("min", "above", 0)
	k.max, k.below = bound("max", "below", noBound)
	if words := get("enum"); words != "" {
		k.words = strings.Split(words, ",")
	}
	return k
}

// members returns the keys of a section with their values, in order.
func members(section reflect.Value) iter.Seq2[*key, reflect.Value] {
	ordered := sections[section.Type()].ordered
	return func(yield func(*key, reflect.Value) bool) {
		for i := range ordered {
			if k := &ordered[i]; !yield(k, section.Field(k.field)) {
				return
			}
		}
	}
}
