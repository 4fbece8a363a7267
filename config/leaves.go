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
	value   string // what is compared; may hold secrets
	shown   string // what may be printed; of an item nothing
	effect  string // of a change
	removal string // of the removal of an item, where that is another one
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
	l.section("", effectLive, reflect.ValueOf(f).Elem())
	return l.all
}

// section adds all below a section, whose changes have that effect.
func (l *leaves) section(path, effect string, v reflect.Value) {
	for k, field := range members(v) {
		if k.reload == effectRestart {
			l.value(join(path, k.name), effectRestart, k, field)
		} else {
			l.value(join(path, k.name), effect, k, field)
		}
	}
}

func (l *leaves) value(path, effect string, k key, v reflect.Value) {
	unset := nodeOf(v, k, false) == nil
	if v.Kind() == reflect.Pointer && !unset {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct:
		l.section(path, effect, v)
	case unset:
	case v.Kind() == reflect.Map:
		l.table(path, effect, v)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		l.items(path, effect, k, v)
	case v.Kind() == reflect.Slice:
		l.texts(path, effect, v)
	default:
		l.scalar(path, effect, k, v)
	}
}

func (l *leaves) scalar(path, effect string, k key, v reflect.Value) {
	value := scalarNode(v, k, false).Value
	if k.form == "variable" && l.keys != nil {
		value += "\x00" + l.keys(value) // another key is another way to ask
	}
	if k.reload == effectDrain {
		effect = effectDrain
	}
	l.add(leaf{path: path, effect: effect, value: value, shown: scalarNode(v, k, true).Value})
}

// table adds the entries of a map. One that is empty is none that is absent.
func (l *leaves) table(path, effect string, v reflect.Value) {
	if v.Len() == 0 {
		l.add(leaf{path: path, effect: effect, value: "{}", shown: "{}"})
	}
	for name, value := range entries(v) {
		l.scalar(join(path, name), effect, key{}, value)
	}
}

// texts adds a list of texts. All of the file's are sets: their order means
// nothing.
func (l *leaves) texts(path, effect string, v reflect.Value) {
	list := make([]string, v.Len())
	for i := range list {
		list[i] = v.Index(i).String()
	}
	shown := "[" + strings.Join(list, ", ") + "]"
	slices.Sort(list)
	l.add(leaf{path: path, effect: effect, value: strings.Join(list, "\x00") + shown[:1], shown: shown})
}

// items adds the sections of a list, and their order where that means something.
func (l *leaves) items(path, effect string, k key, v reflect.Value) {
	var names []string
	for i := range v.Len() {
		item := v.Index(i)
		name := l.nameOf(item)
		for slices.Contains(names, name) { // only an unchecked file has two of a name
			name += "+"
		}
		names = append(names, name)
		at := path + "[" + name + "]"
		l.add(leaf{path: at, effect: effect, removal: k.reload, item: true, section: item})
		l.section(at, effect, item)
	}
	if k.ordered && len(names) > 0 {
		l.add(leaf{path: path, effect: effect, value: strings.Join(names, "\x00"), shown: strings.Join(names, ", ")})
	}
}

// nameOf is what an item of a list goes by.
func (l *leaves) nameOf(item reflect.Value) string {
	if k, ok := item.Interface().(tenants.KeyConfig); ok && l.shared[k.Name] {
		return k.Name + " " + shortDigest(strings.ToLower(k.SHA256))
	}
	return item.FieldByName("Name").String()
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
