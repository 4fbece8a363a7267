package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/tenants"
)

// leaf is one value of a configuration, or one item of a list of sections.
type leaf struct {
	path    string // such as tiers[small].workers[small-0].weight: items go by name
	pattern string // the same without names: tiers[].workers[].weight
	value   string // what is compared; may hold secrets
	shown   string // what may be printed; of an item nothing
	item    bool   // an item of a list, whose values follow; only its presence is compared
	section reflect.Value
}

// leaves walks a configuration.
type leaves struct {
	all    []leaf
	shared map[string]bool // tenants with several keys, whose items go by digest too
	keys   func(variable string) string
}

// leavesOf returns the values of a configuration in the order of the reference.
// A value that nobody set and that has no default is left out.
func leavesOf(f *File, shared map[string]bool) []leaf {
	l := leaves{shared: shared, keys: f.keys}
	l.section("", "", reflect.ValueOf(f).Elem())
	return l.all
}

func (l *leaves) section(path, pattern string, v reflect.Value) {
	fields := fieldsOf(v.Type())
	for _, name := range fields.names {
		l.value(join(path, name), join(pattern, name), keyOf(v.Type(), name), v.Field(fields.index[name]))
	}
}

func (l *leaves) value(path, pattern string, k key, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			l.section(path, pattern, v.Elem())
		} else if !v.IsNil() {
			l.scalar(path, pattern, k, v.Elem())
		}
	case reflect.Struct:
		l.section(path, pattern, v)
	case reflect.Map:
		l.table(path, pattern, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			l.items(path, pattern, v)
		} else if !v.IsNil() {
			l.texts(path, pattern, v)
		}
	case reflect.Bool:
		l.scalar(path, pattern, k, v)
	default:
		// As nodeOf prints it: what is zero was not set.
		if !v.IsZero() || k.zero || v.Kind() == reflect.Float64 && !k.above {
			l.scalar(path, pattern, k, v)
		}
	}
}

func (l *leaves) scalar(path, pattern string, k key, v reflect.Value) {
	value := scalarNode(v, k, false).Value
	if strings.HasSuffix(pattern, ".api_key_env") && l.keys != nil {
		value += "\x00" + l.keys(v.String()) // another key is another way to ask
	}
	l.add(leaf{path: path, pattern: pattern, value: value, shown: scalarNode(v, k, true).Value})
}

// table adds the entries of a map. One that is empty is none that is absent.
func (l *leaves) table(path, pattern string, v reflect.Value) {
	if v.Len() == 0 && !v.IsNil() {
		l.add(leaf{path: path, pattern: pattern, value: "{}", shown: "{}"})
	}
	names := v.MapKeys()
	slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		l.scalar(join(path, name.String()), pattern+".*", key{}, v.MapIndex(name))
	}
}

// texts adds a list of texts. All of the file's are sets: their order means
// nothing.
func (l *leaves) texts(path, pattern string, v reflect.Value) {
	list := make([]string, v.Len())
	for i := range list {
		list[i] = v.Index(i).String()
	}
	shown := "[" + strings.Join(list, ", ") + "]"
	slices.Sort(list)
	l.add(leaf{path: path, pattern: pattern, value: strings.Join(list, "\x00") + shown[:1], shown: shown})
}

// items adds the sections of a list, and their order where that means something.
func (l *leaves) items(path, pattern string, v reflect.Value) {
	var names []string
	for i := range v.Len() {
		item := v.Index(i)
		name := l.nameOf(item)
		for slices.Contains(names, name) { // only an unchecked file has two of a name
			name += "+"
		}
		names = append(names, name)
		at := path + "[" + name + "]"
		l.add(leaf{path: at, pattern: pattern + "[]", item: true, section: item})
		l.section(at, pattern+"[]", item)
	}
	// Tiers rise, and the first pool that serves a kind of request takes it.
	if (pattern == "tiers" || pattern == "pools" || pattern == "classifier.keywords") && len(names) > 0 {
		l.add(leaf{path: path, pattern: pattern, value: strings.Join(names, "\x00"), shown: strings.Join(names, ", ")})
	}
}

// nameOf is what an item of a list goes by.
func (l *leaves) nameOf(item reflect.Value) string {
	if k, ok := item.Interface().(tenants.KeyConfig); ok && l.shared[k.Name] {
		return k.Name + " " + shortDigest(strings.ToLower(k.SHA256))
	}
	return item.Field(fieldsOf(item.Type()).index["name"]).String()
}

func (l *leaves) add(one leaf) {
	one.shown = shorten(printable(one.shown))
	l.all = append(l.all, one)
}

// summary writes a section on one line, without secrets.
func summary(v reflect.Value) string {
	n := itemNode(v, key{}, true)
	n.Style = yaml.FlowStyle
	out, err := yaml.Marshal(n)
	if err != nil {
		return "***"
	}
	return shorten(printable(strings.Join(strings.Fields(string(out)), " ")))
}
