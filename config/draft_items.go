package config

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"tierway/tenants"
	"tierway/workers"
)

// items lays a list of sections over the live one. Each item of the draft goes over
// the live ones that it means, or is new.
func (o *drafting) items(t reflect.Type, path string, live liveNode, keep bool, n *yaml.Node) *yaml.Node {
	m := newMatcher(o, markOf(t), live.items(), n)
	out := &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Column: n.Column}
	if keep {
		for _, l := range m.live {
			out.Content = append(out.Content, l.is)
		}
	}
	for _, item := range n.Content {
		if o.nodes++; o.nodes > o.most {
			break
		}
		meant := m.find(item)
		for _, i := range meant {
			m.taken[i] = true
			if keep {
				out.Content[i] = o.value(t, key{}, fmt.Sprintf("%s[%d]", path, i), m.live[i], true, item)
			}
		}
		if keep && len(meant) > 0 {
			continue
		}
		var was liveNode
		switch {
		case len(meant) > 0:
			was = m.live[meant[0]]
		case t == reflect.TypeFor[workers.Config]():
			was = o.workers[m.nameOf(item)] // it has come from another tier or pool
		}
		out.Content = append(out.Content, o.value(t, key{}, fmt.Sprintf("%s[%d]", path, len(out.Content)), was, false, item))
	}
	return out
}

// markOf returns the key by which items of the same name are told apart; empty
// where names are unique.
func markOf(t reflect.Type) string {
	if t == reflect.TypeFor[tenants.KeyConfig]() {
		return "sha256"
	}
	return ""
}

// matcher finds the live items that the items of a draft mean.
type matcher struct {
	o      *drafting
	mark   string
	live   []liveNode
	named  map[string][]int // of live, by name
	taken  []bool           // by an item of the draft
	drafts map[string]int   // items of the draft by name
}

func newMatcher(o *drafting, mark string, live []liveNode, draft *yaml.Node) *matcher {
	m := &matcher{o: o, mark: mark, live: live, named: map[string][]int{}, taken: make([]bool, len(live)), drafts: map[string]int{}}
	for _, item := range draft.Content {
		m.drafts[m.nameOf(item)]++
	}
	for i, l := range live {
		for _, name := range l.child("name").texts() {
			m.named[name] = append(m.named[name], i)
		}
	}
	return m
}

// find returns which live items one of the draft means: that of its name and, where
// several have it, of its mark. Without a mark it means all of its name.
func (m *matcher) find(item *yaml.Node) []int {
	name := m.nameOf(item)
	named := m.named[name]
	var free []int
	for _, i := range named {
		if !m.taken[i] {
			free = append(free, i)
		}
	}
	var mark *yaml.Node
	if m.mark != "" {
		mark = m.o.find(item, m.mark)
	}
	switch {
	case len(free) == 0 || name == "":
		return nil
	case m.mark == "" || mark == nil && m.drafts[name] > 1:
		return free[:1]
	case mark == nil:
		return free
	}
	if i := slices.IndexFunc(free, func(i int) bool { return slices.Contains(m.live[i].child(m.mark).texts(), mark.Value) }); i >= 0 {
		return free[i : i+1]
	}
	if len(named) == 1 && m.drafts[name] == 1 {
		return named // it gets another key
	}
	return nil
}

// nameOf returns the name of an item of the draft, empty without one.
func (m *matcher) nameOf(item *yaml.Node) string {
	if n := m.o.find(item, "name"); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// texts returns the ways in which a single value may be written: as it is, as it is
// shown and as the live file has it.
func (l liveNode) texts() []string {
	var all []string
	for _, n := range [...]*yaml.Node{l.is, l.shown, l.source} {
		if n != nil && n.Kind == yaml.ScalarNode && !slices.Contains(all, n.Value) {
			all = append(all, n.Value)
		}
	}
	return all
}

// pairs is a mapping that is being made.
type pairs struct {
	content []*yaml.Node
	at      map[string]int // of a key in content
	from    *yaml.Node     // whose place it takes
}

func newPairs(from *yaml.Node) *pairs { return &pairs{at: map[string]int{}, from: from} }

// add appends all of another mapping, which may be nil.
func (p *pairs) add(n *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		p.set(n.Content[i], n.Content[i+1])
	}
}

// set puts a pair in the place of the one with its key, or at the end.
func (p *pairs) set(kn, vn *yaml.Node) {
	if i, there := p.at[kn.Value]; there {
		p.content[i], p.content[i+1] = kn, vn
		return
	}
	p.at[kn.Value] = len(p.content)
	p.append(kn, vn)
}

// append puts a pair at the end, whatever its key.
func (p *pairs) append(kn, vn *yaml.Node) { p.content = append(p.content, kn, vn) }

// remove takes the pair of a key out.
func (p *pairs) remove(name string) {
	if i, there := p.at[name]; there {
		p.content[i] = nil
	}
}

// node returns the mapping.
func (p *pairs) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Line: p.from.Line, Column: p.from.Column}
	for i := 0; i < len(p.content); i += 2 {
		if p.content[i] != nil {
			n.Content = append(n.Content, p.content[i], p.content[i+1])
		}
	}
	return n
}
