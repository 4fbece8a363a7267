package config

import (
	"maps"
	"regexp"
)

// draftName is the file name in the problems of a draft.
const draftName = "draft"

// Draft parses and checks a complete configuration that is to be evaluated beside f and
// is not applied. The error is a Problems whose lines are those of text. f does not change.
//
// A draft may come from an operator who must not read this machine, so that it reads
// nothing but its text: certificates and the variables of api_key_env are not looked up,
// and a value with ${NAME} is allowed only where f has the same text under the same key.
func (f *File) Draft(text []byte) (*File, error) {
	d := newDecoder(draftName, nil)
	d.draft = true
	if f.expanded != nil {
		d.known = f.expanded.values
		d.variables = maps.Clone(f.expanded.variables)
	}
	draft, err := d.load(text)
	if err != nil {
		return nil, err
	}
	draft.keys = f.keys
	if f.path != "" {
		draft.settle(f.path)
	}
	return draft, nil
}

// expansion holds what the ${…} of a file were replaced by.
type expansion struct {
	values    map[string]string // by expansionKey
	variables map[string]string // by name, unless too short for a secret
}

// itemIndex matches the index of a list's item in a path.
var itemIndex = regexp.MustCompile(`\[\d+\]`)

// expansionKey identifies a text under a key, in whichever item of a list.
func expansionKey(path, text string) string {
	return itemIndex.ReplaceAllString(path, "[]") + "=" + text
}
