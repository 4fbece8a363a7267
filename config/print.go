package config

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/store"
	"tierway/tenants"
	"tierway/tiers"
)

// redacted returns the whole configuration as YAML, including defaults, with digests cut to
// eight digits and without other secrets.
func (f *File) redacted() ([]byte, error) {
	out, err := yaml.Marshal(nodeOf(reflect.ValueOf(f).Elem(), key{}, true))
	if err != nil {
		return nil, fmt.Errorf("printing the configuration: %w", err)
	}
	return out, nil
}

// MarshalJSON returns the redacted configuration as JSON.
func (f *File) MarshalJSON() ([]byte, error) {
	var v any
	if err := nodeOf(reflect.ValueOf(f).Elem(), key{}, true).Decode(&v); err != nil {
		return nil, fmt.Errorf("printing the configuration: %w", err)
	}
	return json.Marshal(v)
}

// PoolSettings returns the settings of the tiers and pools by name, in the form of config.yaml, with all
// inherited values and without workers. They contain no secrets.
func (f *File) PoolSettings() (map[string]map[string]any, error) {
	all := map[string]map[string]any{}
	for _, s := range f.sections() {
		c := f.resolveSection(s)
		if c.Workers = nil; c.PolicyRules == nil {
			c.PolicyRules = rulesCopy(f.PolicyRules)
		}
		v := reflect.ValueOf(&c).Elem()
		if s.tier {
			v = reflect.ValueOf((*Tier)(&c)).Elem()
		}
		settings := map[string]any{}
		if err := nodeOf(v, key{}, true).Decode(&settings); err != nil {
			return nil, fmt.Errorf("printing the settings of %s: %w", c.Name, err)
		}
		all[c.Name] = settings
	}
	return all, nil
}

// Format makes every verb of fmt print the redacted configuration, so that logs cannot contain
// secrets.
func (f *File) Format(s fmt.State, _ rune) {
	out, err := f.redacted()
	if err != nil {
		out = []byte(err.Error())
	}
	s.Write(out)
}

var (
	_ fmt.Formatter  = (*File)(nil)
	_ json.Marshaler = (*File)(nil)
)

// unset reports whether a value without default is not set. The section then inherits it.
func unset(v reflect.Value, k key) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return v.IsNil()
	case reflect.Struct, reflect.Bool:
		return false
	case reflect.Float64:
		return v.IsZero() && k.above
	}
	return v.IsZero() && !k.zero
}

// nodeOf returns a value in the form that the decoder reads, or nil if it is unset. redact cuts
// secrets.
func nodeOf(v reflect.Value, k key, redact bool) *yaml.Node {
	if unset(v, k) {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return itemNode(v.Elem(), k, redact)
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for k, field := range members(v) {
			if value := nodeOf(field, *k, redact); value != nil {
				n.Content = append(n.Content, stringNode(k.name), value)
			}
		}
		if len(n.Content) == 0 {
			return nil
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for name, value := range entries(v) {
			n.Content = append(n.Content, stringNode(name), itemNode(value, key{secret: k.secret}, redact))
		}
		return n
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[tiers.Targets]() && v.Len() == 1 {
			return itemNode(v.Index(0), k, redact)
		}
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Len() == 0 {
			n.Style = yaml.FlowStyle // []: an absent list would mean all
		}
		for i := range v.Len() {
			n.Content = append(n.Content, itemNode(v.Index(i), key{}, redact))
		}
		return n
	}
	return scalarNode(v, k, redact)
}

// entries returns the entries of a map in the order of their names.
func entries(m reflect.Value) iter.Seq2[string, reflect.Value] {
	names := m.MapKeys()
	slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return func(yield func(string, reflect.Value) bool) {
		for _, name := range names {
			if !yield(name.String(), m.MapIndex(name)) {
				return
			}
		}
	}
}

func itemNode(v reflect.Value, k key, redact bool) *yaml.Node {
	if v.Kind() != reflect.Struct && v.Kind() != reflect.Slice {
		return scalarNode(v, k, redact)
	}
	if n := nodeOf(v, k, redact); n != nil {
		return n
	}
	return &yaml.Node{Kind: yaml.MappingNode}
}

func scalarNode(v reflect.Value, k key, redact bool) *yaml.Node {
	text := fmt.Sprint(v.Interface())
	switch {
	case v.Kind() == reflect.Bool || isNumber(v.Type()) || v.Type() == reflect.TypeFor[tenants.Money]():
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	case redact && k.url:
		text = store.RedactURL(text)
	case redact && k.secret && isForm("digest", text):
		text = shortDigest(text)
	case redact && k.secret && k.form == "":
		text = hiddenText
	}
	return stringNode(text)
}

// hiddenText replaces a secret in every output.
const hiddenText = "***"

func shortDigest(digest string) string { return digest[:min(8, len(digest))] + "…" }

// stringNode returns the node of a string, with ${ escaped.
func stringNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(strings.ReplaceAll(text, "${", "$${"))
	return n
}
