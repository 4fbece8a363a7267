package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/routing"
)

// drafting lays the nodes of a draft over those of a live configuration. What it
// makes has the draft's lines where the draft says something, and none elsewhere.
type drafting struct {
	d       *decoder
	whole   bool // nothing of the live configuration stays that the draft does not say
	live    liveNode
	workers map[string]liveNode // by name
	nodes   int                 // of the draft that were looked at
	most    int
}

// liveNode is one value of the live configuration: as it is, as it may be shown,
// and as its source has it, before ${…} was replaced. Each may be missing.
type liveNode struct{ is, shown, source *yaml.Node }

// newDrafting prepares a draft over f. Problems go to d.
func newDrafting(f *File, d *decoder, whole bool) *drafting {
	// A node is looked at when it is decoded, and for its name and its pair.
	o := &drafting{d: d, whole: whole, most: 4 * maxNodes, workers: map[string]liveNode{}}
	v := reflect.ValueOf(f).Elem()
	o.live = liveNode{is: nodeOf(v, key{}, false), shown: nodeOf(v, key{}, true)}
	if f.source != nil {
		o.live.source = newDecoder("", nil).parse(f.source())
	}
	for _, list := range [...]string{"tiers", "pools"} {
		for _, section := range o.live.child(list).items() {
			for _, worker := range section.child("workers").items() {
				o.workers[worker.text("name")] = worker
			}
		}
	}
	return o
}

// root returns the whole configuration with the draft's root, which may be nil,
// laid over it.
func (o *drafting) root(n *yaml.Node) *yaml.Node {
	switch {
	case !o.whole && (n == nil || isNull(n)):
		return o.live.is
	case n == nil:
		return nil
	}
	out := o.value(reflect.TypeFor[File](), key{}, "", o.live, !o.whole, n)
	if o.nodes > o.most {
		o.d.problem(n, "", fmt.Sprintf("the draft holds more than %d values", maxNodes), "write aliases out")
	}
	return out
}

// value returns n laid over a live value. With keep, what n does not say of a
// section stays the live one's.
func (o *drafting) value(t reflect.Type, k key, path string, live liveNode, keep bool, n *yaml.Node) *yaml.Node {
	n = resolve(n)
	if o.nodes++; o.nodes > o.most || n.Style&yaml.TaggedStyle != 0 {
		return n // the decoder refuses it
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) && n.Kind == yaml.MappingNode:
		return o.section(t, k, path, live, keep, n)
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode && t.Elem().Kind() == reflect.Struct:
		return o.items(t.Elem(), path, live, keep, n)
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		return o.texts(t.Elem(), k, path, live, n)
	case n.Kind == yaml.ScalarNode && !isNull(n):
		return o.scalar(k, path, live, n)
	}
	return n
}

// section merges a mapping, of a struct or of a map.
func (o *drafting) section(t reflect.Type, k key, path string, live liveNode, keep bool, n *yaml.Node) *yaml.Node {
	if name := o.find(n, "name"); t == reflect.TypeFor[routing.Config]() && name != nil && name.Value != live.text("name") {
		keep = false // its options are another policy's
	}
	var known fields
	if t.Kind() == reflect.Struct {
		known = fieldsOf(t)
	}
	out := newPairs(n)
	if keep {
		out.add(live.is)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn, vn := n.Content[i], n.Content[i+1]
		if o.nodes++; o.nodes > o.most {
			break
		}
		field, ours := known.index[kn.Value]
		if kn.Kind != yaml.ScalarNode || seen[kn.Value] || t.Kind() == reflect.Struct && !ours {
			out.append(kn, vn) // the decoder says what is wrong with it
			continue
		}
		seen[kn.Value] = true
		switch sub := join(path, kn.Value); {
		case !o.whole && isNull(resolve(vn)):
			out.remove(kn.Value)
		case ours:
			out.set(kn, o.value(t.Field(field).Type, keyOf(t, kn.Value), sub, live.child(kn.Value), keep, vn))
		default:
			out.set(kn, o.value(t.Elem(), k, sub, live.child(kn.Value), keep, vn))
		}
	}
	return out.node()
}

// texts returns a list of texts, in which one that is written as in the live file
// is the live one.
func (o *drafting) texts(t reflect.Type, k key, path string, live liveNode, n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	items := live.items()
	for i, item := range n.Content {
		var was liveNode
		if i < len(items) {
			was = items[i]
		}
		out.Content[i] = o.value(t, k, fmt.Sprintf("%s[%d]", path, i), was, false, item)
	}
	return &out
}

// scalar returns a single value of the draft, or the live one where the draft says
// just that of a value that it could not have by itself.
func (o *drafting) scalar(k key, path string, live liveNode, n *yaml.Node) *yaml.Node {
	if k.fixed == "" && !k.secret && !strings.Contains(n.Value, "${") {
		return n
	}
	same := live.is != nil && (n.Value == live.shown.Value || live.wrote(k, n.Value))
	switch {
	case same:
	case k.fixed == "" || n.Value == "":
		return n // without is no secret
	default:
		o.d.problem(n, path, "a draft cannot change it: "+k.fixed, "leave the key out; a change of it can be tried by a reload with dry_run")
		o.d.problems[len(o.d.problems)-1].hide = true
		if live.is == nil {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Line: n.Line, Column: n.Column}
		}
	}
	is := *live.is
	is.Line, is.Column = n.Line, n.Column
	return &is
}

// wrote reports whether the live file has a value in just these words. Of a URL it
// never says so of a password that stands in it.
func (l liveNode) wrote(k key, text string) bool {
	return l.source != nil && l.source.Kind == yaml.ScalarNode && l.source.Value == text &&
		(!k.url || strings.Contains(text, "${") || redactURL(text) == text)
}

// find returns the draft's value of a key of a section, or nil.
func (o *drafting) find(n *yaml.Node, name string) *yaml.Node {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if o.nodes++; n.Content[i].Value == name {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}

// child returns the live value of a key.
func (l liveNode) child(name string) liveNode {
	return liveNode{childOf(l.is, name), childOf(l.shown, name), childOf(l.source, name)}
}

// text returns the live value of a key that is a single one; empty without.
func (l liveNode) text(name string) string {
	if n := childOf(l.is, name); n != nil {
		return n.Value
	}
	return ""
}

// items returns the live items of a list. Its source has the same ones in the same
// order.
func (l liveNode) items() []liveNode {
	if l.is == nil || l.is.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]liveNode, len(l.is.Content))
	for i := range items {
		items[i] = liveNode{is: l.is.Content[i], shown: l.shown.Content[i]}
		if l.source != nil && l.source.Kind == yaml.SequenceNode && len(l.source.Content) == len(items) {
			items[i].source = resolve(l.source.Content[i])
		}
	}
	return items
}

// childOf returns the value of a key of a mapping, or nil.
func childOf(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}

// resolve returns what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
