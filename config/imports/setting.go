package imports

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

type setting struct {
	key  string // as it is written there, with the sections above it
	line int    // 0: not written
	node *yaml.Node
	name string // the last part of key, for keys of YAML
}

// String returns line and key.
func (s setting) String() string {
	if s.line == 0 {
		return s.key
	}
	return fmt.Sprintf("line %d: %s", s.line, s.key)
}

func (s setting) errorf(format string, values ...any) error {
	return fmt.Errorf("%v: %s", s, fmt.Sprintf(format, values...))
}

// text returns a single value; ok is false for lists and sections.
func (s setting) text() (text string, ok bool) {
	if s.node == nil || s.node.Kind != yaml.ScalarNode {
		return "", false
	}
	return s.node.Value, true
}

// texts returns the items of a list. A single value is a list separated by commas.
func (s setting) texts() (all []string) {
	if text, ok := s.text(); ok {
		return splitList(text)
	}
	for _, item := range s.items() {
		if text, ok := item.text(); ok {
			all = append(all, splitList(text)...)
		}
	}
	return all
}

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func (s setting) items() (all []setting) {
	if s.node == nil || s.node.Kind != yaml.SequenceNode {
		return nil
	}
	for i, n := range s.node.Content {
		all = append(all, setting{key: fmt.Sprintf("%s[%d]", s.key, i), line: n.Line, node: resolveAlias(n)})
	}
	return all
}

func (s setting) pairs() (all []setting) {
	if s.node == nil || s.node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(s.node.Content); i += 2 {
		kn, vn := s.node.Content[i], resolveAlias(s.node.Content[i+1])
		all = append(all, setting{join(s.key, kn.Value), kn.Line, vn, kn.Value})
	}
	return all
}

// at returns the value of a key of a section; without one, a setting without a node.
func (s setting) at(name string) setting {
	for _, p := range s.pairs() {
		if p.name == name {
			return p
		}
	}
	return setting{key: join(s.key, name), line: s.line}
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// readYAML reads the first document of a file, which must be a section.
func readYAML(src []byte) (setting, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(src, &document); err != nil {
		return setting{}, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return setting{}, errors.New("the file is not a YAML section of keys")
	}
	return setting{node: document.Content[0]}, nil
}
