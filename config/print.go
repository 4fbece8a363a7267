package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/tenants"
)

// Redacted returns the whole configuration as YAML, with defaults written out
// and digests cut to their first eight digits. It is safe to show to anyone who
// may see the file.
func (f *File) Redacted() ([]byte, error) {
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

// Format makes every verb of fmt print the redacted configuration, so that no
// log line can hold more.
func (f *File) Format(s fmt.State, _ rune) {
	out, err := f.Redacted()
	if err != nil {
		out = []byte(err.Error())
	}
	s.Write(out)
}

var (
	_ fmt.Formatter  = (*File)(nil)
	_ json.Marshaler = (*File)(nil)
)

// nodeOf writes a value in the form that the decoder reads; secrets are cut
// when redact is set. It is nil for a value that nobody set and that has no
// default: the section then inherits it.
func nodeOf(v reflect.Value, k key, redact bool) *yaml.Node {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return itemNode(v.Elem(), k, redact)
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for k, field := range members(v) {
			if value := nodeOf(field, k, redact); value != nil {
				n.Content = append(n.Content, stringNode(k.name), value)
			}
		}
		if len(n.Content) == 0 {
			return nil
		}
		return n
	case reflect.Map, reflect.Slice:
		if v.IsNil() {
			return nil
		}
		return collectionNode(v, k, redact)
	case reflect.Bool:
		return scalarNode(v, k, redact)
	case reflect.Float64:
		if v.IsZero() && k.above {
			return nil
		}
		return scalarNode(v, k, redact)
	}
	if v.IsZero() && !k.zero {
		return nil
	}
	return scalarNode(v, k, redact)
}

// collectionNode writes a list, or a map from text to single values.
func collectionNode(v reflect.Value, k key, redact bool) *yaml.Node {
	if v.Kind() == reflect.Map {
		n := &yaml.Node{Kind: yaml.MappingNode}
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			n.Content = append(n.Content, stringNode(name.String()), itemNode(v.MapIndex(name), key{}, redact))
		}
		return n
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if v.Len() == 0 {
		n.Style = yaml.FlowStyle // []: by its absence it would mean all
	}
	for i := range v.Len() {
		n.Content = append(n.Content, itemNode(v.Index(i), key{}, redact))
	}
	return n
}

// itemNode writes what is there even if nothing in it is set.
func itemNode(v reflect.Value, k key, redact bool) *yaml.Node {
	if v.Kind() != reflect.Struct {
		return scalarNode(v, k, redact)
	}
	if n := nodeOf(v, k, redact); n != nil {
		return n
	}
	return &yaml.Node{Kind: yaml.MappingNode}
}

// scalarNode writes a single value.
func scalarNode(v reflect.Value, k key, redact bool) *yaml.Node {
	switch v.Kind() {
	case reflect.String:
		text := v.String()
		switch {
		case redact && k.url:
			text = redactURL(text)
		case redact && k.secret && isForm("digest", text):
			text = shortDigest(text)
		}
		return stringNode(text)
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatFloat(v.Float(), 'g', -1, 64)}
	}
	if v.Type() == reflect.TypeFor[tenants.Money]() {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())}
	}
	if isNumber(v.Type()) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	}
	return stringNode(fmt.Sprint(v.Interface())) // durations and sizes have their own String
}

// shortDigest is what of a digest is shown.
func shortDigest(digest string) string { return digest[:min(8, len(digest))] + "…" }

// stringNode writes a text, so that ${ in it stays what it is.
func stringNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(strings.ReplaceAll(text, "${", "$${"))
	return n
}
