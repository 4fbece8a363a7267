package config

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/tenants"
	"tierway/tiers"
	"tierway/tokenizer"
	"tierway/workers"
)

// Change is one difference between two configurations. It contains no secrets.
type Change struct {
	Path   string `json:"path"` // items of lists by name: tiers[small].workers[small-0].weight
	Op     string `json:"op" enum:"add,remove,replace"`
	Old    string `json:"old,omitempty"` // short and without secrets; empty for add
	New    string `json:"new,omitempty"` // short and without secrets; empty for remove
	Effect string `json:"effect" enum:"live,drain,restart" doc:"live: applied at once; drain: applied at once, and affected workers finish their in-flight requests; restart: applied after a restart."`
}

// Changes returns the differences in meaning between two configurations. Defaults that are
// written out and a different order of unordered lists are not changes. A value that tiers,
// pools and workers inherit is one change, at its source.
func Changes(old, new *File) []Change {
	shared := sharedNames(old, new)
	before, after := withoutEqualWorkers(old, new)
	equal := equalSections(old, new)
	return differences(old, new, newComparison(before, shared, equal), newComparison(after, shared, equal))
}

// sharedNames returns the tenants with several keys in one of two configurations.
func sharedNames(old, new *File) map[string]bool {
	shared := map[string]bool{}
	for _, f := range [...]*File{old, new} {
		seen := map[string]bool{}
		for _, k := range f.Auth.Keys {
			shared[k.Name] = shared[k.Name] || seen[k.Name]
			seen[k.Name] = true
		}
	}
	return shared
}

// differences returns the differences between two configurations. before and after may lack what is equal.
func differences(old, new *File, before, after comparison) []Change {
	changes := []Change{}
	add := func(l setting, op, oldText, newText string) {
		switch {
		case op == "remove" && l.removal != "":
			l.effect = l.removal
		case l.path == "auth.required" && opensLate(old, new):
			l.effect = EffectRestart
		}
		changes = append(changes, Change{Path: l.path, Op: op, Old: oldText, New: newText, Effect: l.effect})
	}
	for _, from := range before.all {
		to, there := after.at[from.path]
		switch {
		case there && (from.item || from.value == to.value) || before.inherits(from) && after.inherits(from):
		case there && from.shown == to.shown:
			add(from, "replace", from.shown, to.shown+" (another value)")
		case there:
			add(from, "replace", from.shown, to.shown)
		case !insideChangedItem(from.path, after.at, before.at):
			add(from, "remove", before.show(from), "")
		}
	}
	for _, to := range after.all {
		_, there := before.at[to.path]
		if !there && !insideChangedItem(to.path, before.at, after.at) && !(before.inherits(to) && after.inherits(to)) {
			add(to, "add", "", after.show(to))
		}
	}
	order := sections[reflect.TypeFor[File]()].keys
	rank := func(c Change) int { return order[c.Path[:min(len(c.Path), strings.IndexAny(c.Path+".", ".["))]].field }
	slices.SortStableFunc(changes, func(a, b Change) int { return rank(a) - rank(b) })
	return changes
}

// equalSections returns the indices of the fields of File that have the same values in both configurations.
func equalSections(old, new *File) map[int]bool {
	before, after, equal := reflect.ValueOf(old).Elem(), reflect.ValueOf(new).Elem(), map[int]bool{}
	for k, v := range members(before) {
		outside := k.form != "" || sections[itemOf(v.Type())].outside
		equal[k.field] = !outside && reflect.DeepEqual(v.Interface(), after.Field(k.field).Interface())
	}
	return equal
}

// withoutEqualWorkers returns copies without the workers that have the same settings in both configurations: equal
// entries of a tier or pool that inherit equal values. The rest costs much more to compare.
func withoutEqualWorkers(old, new *File) (before, after *File) {
	before, after = old.withLists(), new.withLists()
	for i := range before.Tiers {
		at := slices.IndexFunc(after.Tiers, func(t Tier) bool { return t.Name == before.Tiers[i].Name })
		if at >= 0 {
			dropEqualWorkers(old, new, (*PoolConfig)(&before.Tiers[i]), (*PoolConfig)(&after.Tiers[at]), true)
		}
	}
	for i := range before.Pools {
		at := slices.IndexFunc(after.Pools, func(p PoolConfig) bool { return p.Name == before.Pools[i].Name })
		if at >= 0 {
			dropEqualWorkers(old, new, &before.Pools[i], &after.Pools[at], false)
		}
	}
	return before, after
}

// withLists returns a copy with its own lists of tiers and pools.
func (f *File) withLists() *File {
	out := *f
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	return &out
}

// lists yields the tiers, then the pools, with their paths.
func (f *File) lists() iter.Seq2[string, *PoolConfig] {
	return func(yield func(string, *PoolConfig) bool) {
		for i := range f.Tiers {
			if !yield(itemPath("tiers", i), (*PoolConfig)(&f.Tiers[i])) {
				return
			}
		}
		for i := range f.Pools {
			if !yield(itemPath("pools", i), &f.Pools[i]) {
				return
			}
		}
	}
}

func dropEqualWorkers(old, new *File, oldPool, newPool *PoolConfig, tier bool) {
	inherited := func(f *File, c PoolConfig) PoolConfig {
		c.Workers = nil
		return f.inheritedBy(section{PoolConfig: c, tier: tier})
	}
	before, after := entriesByName(oldPool.Workers), entriesByName(newPool.Workers)
	if before == nil || after == nil || !reflect.DeepEqual(inherited(old, *oldPool), inherited(new, *newPool)) {
		return
	}
	different := func(list []workers.Config) []workers.Config {
		rest := []workers.Config{}
		for i := range list {
			a, b := before[list[i].Name], after[list[i].Name]
			if a == nil || b == nil || !a.Equal(b) || old.Key(a.APIKeyEnv) != new.Key(b.APIKeyEnv) {
				rest = append(rest, list[i])
			}
		}
		return rest
	}
	oldPool.Workers, newPool.Workers = different(oldPool.Workers), different(newPool.Workers)
}

// entriesByName returns the workers by name; nil if a name occurs twice, as in an unchecked file.
func entriesByName(list []workers.Config) map[string]*workers.Config {
	entries := make(map[string]*workers.Config, len(list))
	for i := range list {
		entries[list[i].Name] = &list[i]
	}
	if len(entries) < len(list) {
		return nil
	}
	return entries
}

type comparison struct {
	all     []setting // with inherited values
	at      map[string]setting
	written map[string]setting // settings with their own value, by path
}

// newComparison lists the settings of a configuration, without those of some fields.
func newComparison(f *File, shared map[string]bool, without map[int]bool) comparison {
	s := comparison{all: settingsOf(f.resolved(), shared, without), at: map[string]setting{},
		written: map[string]setting{}}
	for _, l := range settingsOf(f, shared, without) {
		s.written[l.path] = l
	}
	for _, l := range s.all {
		s.at[l.path] = l
	}
	return s
}

// show returns the printable form of a setting. An item is shown without inherited values.
func (s comparison) show(l setting) string {
	if l.item {
		return summary(s.written[l.path].section)
	}
	return l.shown
}

// inherits reports whether a value is inherited or a default. A policy is inherited as a whole.
func (s comparison) inherits(l setting) bool {
	path := l.path
	for _, section := range [...]string{".policy.", ".prefill_policy."} {
		if at := strings.LastIndex(path, section); at >= 0 {
			path = path[:at] + section + "name"
		}
	}
	_, own := s.written[path]
	return !l.item && !own
}

// insideChangedItem reports whether path is in an item that exists in here but not in there.
// Then the item is the change.
func insideChangedItem(path string, there, here map[string]setting) bool {
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

// Hash returns the SHA-256, in hex, of the bytes that the configuration was parsed from.
// Without a source, it is the hash of the printed form.
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
	effectLive  = "live"  // applies to the next request
	effectDrain = "drain" // a worker is removed or replaced, and finishes its in-flight requests
	// EffectRestart is the effect of a change that applies after a restart.
	EffectRestart = "restart"
)

// KeepRestartOnly returns the active configuration after a reload: a copy of f with old's
// values for keys that need a restart. If the old addresses are not loopback, keys stay
// required until the restart. It changes neither f nor old.
func (f *File) KeepRestartOnly(old *File) *File {
	out := *f
	kept := map[string]Origin{}
	keepRestartOnly("", reflect.ValueOf(&out).Elem(), reflect.ValueOf(old).Elem(), func(path string) {
		kept[path] = old.origins.keptFrom(path)
	})
	if opensLate(old, f) {
		out.Auth.Required, kept["auth.required"] = true, old.origins.keptFrom("auth.required")
	}
	out.origins = f.origins.replace(kept)
	return &out
}

// opensLate reports whether the new configuration stops requiring keys while the active
// addresses are not loopback. Its own addresses are loopback but need a restart.
func opensLate(old, new *File) bool {
	return old.Auth.Required && !new.Auth.Required && !(Loopback(old.Listen) && Loopback(old.Admin.Listen))
}

// keepRestartOnly sets the values of a section that need a restart to those of old. It calls kept with the
// path of each value that this changes.
func keepRestartOnly(path string, section, old reflect.Value, kept func(path string)) {
	for k, v := range members(section) {
		at, was := join(path, k.name), old.Field(k.field)
		switch {
		case k.reload == EffectRestart:
			if !reflect.DeepEqual(v.Interface(), was.Interface()) {
				kept(at)
			}
			v.Set(was)
		case v.Kind() == reflect.Struct:
			keepRestartOnly(at, v, was, kept)
		}
	}
}

// WithOverrides returns a copy with the given weights by worker name; weight 0 stops new
// requests. Unknown names are ignored. It does not change f.
func (f *File) WithOverrides(weight map[string]int) *File {
	out := f.withLists()
	out.rankWeights = maps.Clone(weight)
	if len(weight) == 0 {
		return out
	}
	for _, c := range out.lists() {
		c.Workers = slices.Clone(c.Workers)
		for i := range c.Workers {
			if w, ok := weight[c.Workers[i].Name]; ok && c.Workers[i].Ranks == 0 {
				c.Workers[i].Weight = &w
			}
		}
	}
	return out
}

// setting is one value of a configuration, or one item of a list of sections.
type setting struct {
	path    string // with items by name: tiers[small].workers[small-0].weight
	value   string // compared value; may contain secrets
	shown   string // printable value; empty for an item
	effect  string // effect of a change
	removal string // effect of removing the item, if different
	item    bool   // an item of a list; its values follow, and only its presence is compared
	section reflect.Value
}

// flattener lists the settings of a configuration.
type flattener struct {
	all     []setting
	without map[int]bool    // fields of File that are left out
	shared  map[string]bool // tenants with several keys; these are named by digest too
	keys    func(variable string) string
	tokens  map[string]*tokenizer.Tokenizer
	model   *learnedModel
}

// settingsOf returns the settings of a configuration in the order of the reference, without
// unset values that have no default and without some fields.
func settingsOf(f *File, shared map[string]bool, without map[int]bool) []setting {
	l := flattener{without: without, shared: shared, keys: f.keys, tokens: f.tokens, model: f.model}
	l.section("", effectLive, reflect.ValueOf(f).Elem())
	return l.all
}

// section adds all settings below a section. effect is the effect of their changes.
func (l *flattener) section(path, effect string, v reflect.Value) {
	for k, field := range members(v) {
		if path == "" && l.without[k.field] {
			continue
		}
		of := effect
		if k.reload == EffectRestart {
			of = EffectRestart
		}
		l.value(join(path, k.name), of, *k, field)
	}
}

func (l *flattener) value(path, effect string, k key, v reflect.Value) {
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
		l.table(path, effect, k, v)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		l.items(path, effect, k, v)
	case v.Kind() == reflect.Slice:
		l.texts(path, effect, k, v)
	default:
		l.scalar(path, effect, k, v)
	}
}

func (l *flattener) scalar(path, effect string, k key, v reflect.Value) {
	value := scalarNode(v, k, false).Value
	switch t := l.tokens[value]; {
	case k.form == "variable" && l.keys != nil:
		value += "\x00" + l.keys(value) // a new key changes how the worker is called
	case k.form == "tokenizer" && t != nil:
		value += "\x00" + t.Hash()
	case k.form == "model" && l.model != nil:
		value += "\x00" + l.model.hash
	}
	if k.reload == effectDrain {
		effect = effectDrain
	}
	l.add(setting{path: path, effect: effect, value: value, shown: scalarNode(v, k, true).Value})
}

// table adds the entries of a map. An empty map differs from an absent one.
func (l *flattener) table(path, effect string, k key, v reflect.Value) {
	if v.Len() == 0 {
		l.add(setting{path: path, effect: effect, value: "{}", shown: "{}"})
	}
	for name, value := range entries(v) {
		if value.Kind() == reflect.Slice {
			l.texts(join(path, name), effect, key{ordered: true}, value)
		} else {
			l.scalar(join(path, name), effect, key{secret: k.secret}, value)
		}
	}
}

// texts adds a list of strings. Unless its key says so, the order is not significant. A single target of
// an alias is shown as the file writes it.
func (l *flattener) texts(path, effect string, k key, v reflect.Value) {
	list := make([]string, v.Len())
	for i := range list {
		list[i] = v.Index(i).String()
	}
	shown := "[" + strings.Join(list, ", ") + "]"
	if !k.ordered {
		slices.Sort(list)
	}
	if v.Type() == reflect.TypeFor[tiers.Targets]() && len(list) == 1 {
		shown = list[0]
	}
	l.add(setting{path: path, effect: effect, value: strings.Join(list, "\x00") + shown[:1], shown: shown})
}

// items adds the sections of a list, and their order if it is significant.
func (l *flattener) items(path, effect string, k key, v reflect.Value) {
	var names []string
	for i := range v.Len() {
		item := v.Index(i)
		name := l.nameOf(item, i)
		for slices.Contains(names, name) { // only an unchecked file has duplicate names
			name += "+"
		}
		names = append(names, name)
		at := path + "[" + name + "]"
		l.add(setting{path: at, effect: effect, removal: k.reload, item: true, section: item})
		l.section(at, effect, item)
	}
	if v.Len() == 0 && !v.IsNil() && k.name == "policy_rules" { // none, in place of the file's
		l.add(setting{path: path, effect: effect, value: "[]", shown: "[]"})
	}
	if k.ordered && len(names) > 0 {
		l.add(setting{path: path, effect: effect, value: strings.Join(names, "\x00"), shown: strings.Join(names, ", ")})
	}
}

// nameOf returns the name of the list item at that index, or the index if items have no names.
func (l *flattener) nameOf(item reflect.Value, at int) string {
	if k, ok := item.Interface().(tenants.KeyConfig); ok && l.shared[k.Name] {
		return k.Name + " " + shortDigest(strings.ToLower(k.SHA256))
	}
	if name := item.FieldByName("Name"); name.IsValid() {
		return name.String()
	}
	return strconv.Itoa(at)
}

func (l *flattener) add(one setting) {
	one.shown = shorten(printable(one.shown))
	l.all = append(l.all, one)
}

// summary returns a section on one line, without secrets.
func summary(v reflect.Value) string {
	n := itemNode(v, key{}, true)
	n.Style = yaml.FlowStyle
	out, err := yaml.Marshal(n)
	if err != nil {
		return "***"
	}
	return shorten(printable(strings.Join(strings.Fields(string(out)), " ")))
}
