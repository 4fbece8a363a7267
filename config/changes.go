package config

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/tenants"
	"tierway/workers"
)

// Change is one difference between two configurations. It is safe to show to
// anyone who may see the file.
type Change struct {
	Path   string `json:"path"` // tiers, workers, keys and other items go by name: tiers[small].workers[small-0].weight
	Op     string `json:"op" enum:"add,remove,replace"`
	Old    string `json:"old,omitempty"` // short and without secrets; empty for add
	New    string `json:"new,omitempty"` // likewise; empty for remove
	Effect string `json:"effect" enum:"live,drain,restart" doc:"At once; at once, while requests under way finish; or after a restart."`
}

// Changes returns how two configurations differ in what they mean: a default that
// is written out is no change, nor is another order of what has none. A value
// that tiers, pools and workers inherit is one change where it stands.
func Changes(old, new *File) []Change {
	shared := map[string]bool{}
	for _, f := range [...]*File{old, new} {
		seen := map[string]bool{}
		for _, k := range f.Auth.Keys {
			shared[k.Name] = shared[k.Name] || seen[k.Name]
			seen[k.Name] = true
		}
	}
	before, after := newSide(old, shared), newSide(new, shared)
	changes := []Change{}
	add := func(l leaf, op, was, is string) {
		switch {
		case op == "remove" && l.removal != "":
			l.effect = l.removal
		case l.path == "auth.required" && opensLate(old, new):
			l.effect = effectRestart
		}
		changes = append(changes, Change{Path: l.path, Op: op, Old: was, New: is, Effect: l.effect})
	}
	for _, was := range before.all {
		is, there := after.at[was.path]
		switch {
		case there && (was.item || was.value == is.value) || before.inherits(was) && after.inherits(was):
		case there && was.shown == is.shown:
			add(was, "replace", was.shown, is.shown+" (another value)")
		case there:
			add(was, "replace", was.shown, is.shown)
		case !within(was.path, after.at, before.at):
			add(was, "remove", before.show(was), "")
		}
	}
	for _, is := range after.all {
		_, there := before.at[is.path]
		if !there && !within(is.path, before.at, after.at) && !(before.inherits(is) && after.inherits(is)) {
			add(is, "add", "", after.show(is))
		}
	}
	order := sections[reflect.TypeFor[File]()].keys
	rank := func(c Change) int { return order[c.Path[:min(len(c.Path), strings.IndexAny(c.Path+".", ".["))]].field }
	slices.SortStableFunc(changes, func(a, b Change) int { return rank(a) - rank(b) })
	return changes
}

// side is one of two configurations that are compared.
type side struct {
	all     []leaf // resolved
	at      map[string]leaf
	written map[string]leaf // what has a value of its own, by path
}

func newSide(f *File, shared map[string]bool) side {
	s := side{all: leavesOf(f.resolved(), shared), at: map[string]leaf{}, written: map[string]leaf{}}
	for _, l := range leavesOf(f, shared) {
		s.written[l.path] = l
	}
	for _, l := range s.all {
		s.at[l.path] = l
	}
	return s
}

// show returns what may be printed of a value. Of an item that is what the file
// says, without what it inherits.
func (s side) show(l leaf) string {
	if l.item {
		return summary(s.written[l.path].section)
	}
	return l.shown
}

// inherits reports whether a value is another section's or a default. A policy is
// inherited whole.
func (s side) inherits(l leaf) bool {
	path := l.path
	if at := strings.LastIndex(path, ".policy."); at >= 0 {
		path = path[:at] + ".policy.name"
	}
	_, own := s.written[path]
	return !l.item && !own
}

// within reports whether path stands in an item that here has and there has not:
// then the item is the change.
func within(path string, there, here map[string]leaf) bool {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != ']' || i == len(path)-1 {
			continue
		}
		if item, known := here[path[:i+1]]; known && item.item {
			if _, kept := there[path[:i+1]]; !kept {
				return true
			}
		}
	}
	return false
}

// Hash returns the SHA-256, in hex, of the bytes that the configuration was
// parsed from. Without a file it is that of its printed form.
func (f *File) Hash() string {
	if f.hash != "" {
		return f.hash
	}
	out, err := f.redacted()
	if err != nil {
		return ""
	}
	return hashOf(out)
}

func hashOf(src []byte) string {
	sum := sha256.Sum256(src)
	return hex.EncodeToString(sum[:])
}

const (
	effectLive    = "live"    // counts for the next request
	effectDrain   = "drain"   // a worker goes, or another takes its name: what it has it finishes
	effectRestart = "restart" // waits for the program's next start
)

// KeepRestartOnly returns a copy that has the values of old for the keys that only a
// restart changes: the configuration in force after a reload. Keys stay required
// until the restart where the old addresses are not loopback. Neither of the two
// is changed.
func (f *File) KeepRestartOnly(old *File) *File {
	out := *f
	keepRestartOnly(reflect.ValueOf(&out).Elem(), reflect.ValueOf(old).Elem())
	out.Auth.Required = out.Auth.Required || opensLate(old, f)
	return &out
}

// opensLate reports whether a new configuration needs no keys any more where the
// addresses in force are not loopback: its own are, but wait for a restart.
func opensLate(old, new *File) bool {
	return old.Auth.Required && !new.Auth.Required && !(Loopback(old.Listen) && Loopback(old.Admin.Listen))
}

// keepRestartOnly gives a section the values of old that only a restart changes.
func keepRestartOnly(section, old reflect.Value) {
	for k, v := range members(section) {
		was := old.Field(k.field)
		if k.reload == effectRestart {
			v.Set(was)
		} else if v.Kind() == reflect.Struct {
			keepRestartOnly(v, was)
		}
	}
}

// WithOverrides returns a copy in which workers have the weights given by name; 0 takes
// no new requests. Names that no worker has are ignored. The original
// stays as it is.
func (f *File) WithOverrides(weight map[string]int) *File {
	out := *f
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	override := func(list []workers.Config) []workers.Config {
		list = slices.Clone(list)
		for i := range list {
			if w, ok := weight[list[i].Name]; ok {
				list[i].Weight = &w
			}
		}
		return list
	}
	for i := range out.Tiers {
		out.Tiers[i].Workers = override(out.Tiers[i].Workers)
	}
	for i := range out.Pools {
		out.Pools[i].Workers = override(out.Pools[i].Workers)
	}
	return &out
}

// leaf is one value of a configuration, or one item of a list of sections.
type leaf struct {
	path    string // such as tiers[small].workers[small-0].weight: items go by name
	value   string // what is compared; may hold secrets
	shown   string // what may be printed; of an item nothing
	effect  string // of a change
	removal string // of the removal of an item, where that is another one
	item    bool   // an item of a list; its values follow, and only its presence is compared
	section reflect.Value
}

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
		of := effect
		if k.reload == effectRestart {
			of = effectRestart
		}
		l.value(join(path, k.name), of, k, field)
	}
}

func (l *leaves) value(path, effect string, k key, v reflect.Value) {
	if unset(v, k) {
		return
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct:
		l.section(path, effect, v)
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
