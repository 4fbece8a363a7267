package config

import (
	"context"
	"maps"
	"regexp"
)

// draftName is the file name in the problems of a draft.
const draftName = "draft"

// Draft parses and checks a complete configuration that is evaluated beside f and not applied.
// The error is a Problems with the line numbers of text, or that of ctx. f does not change.
//
// The author of a draft may not be allowed to read files of this machine. A draft therefore
// reads only its text: certificates and the variables of api_key_env are not looked up, and
// ${NAME} is allowed only where f has the same text under the same key.
func (f *File) Draft(ctx context.Context, text []byte) (*File, error) {
	d := newDecoder(draftName, nil)
	d.draft, d.live, d.ended = true, f, ctx.Err
	if f.expanded != nil {
		d.allowedExpansions = f.expanded.values
		d.variables = maps.Clone(f.expanded.variables)
	}
	draft, err := d.load(text)
	if err != nil {
		return nil, err
	}
	draft.keys, draft.tokens = f.keys, f.tokens
	draft.restoreHeaders(f)
	if f.path != "" {
		draft.resolvePaths(f.path)
	}
	if draft, err = draft.WithListen(f.addressOfFlag("listen", f.Listen),
		f.addressOfFlag("admin.listen", f.Admin.Listen)); err != nil {
		return nil, err
	}
	return draft.WithPolicy(f.replacedPolicy)
}

// addressOfFlag returns the address at a path if a flag has set it; otherwise an empty string.
func (f *File) addressOfFlag(path, address string) string {
	if o, ok := f.origins.at(path); ok && o.Source == originFlag {
		return address
	}
	return ""
}

type expansion struct {
	values    map[string]string // by expansionKey
	variables map[string]string // by name, without values too short to be secrets
}

// itemIndex matches the index of a list item in a path.
var itemIndex = regexp.MustCompile(`\[\d+\]`)

// expansionKey identifies a text under a key, in any item of a list.
func expansionKey(path, text string) string {
	return itemIndex.ReplaceAllString(path, "[]") + "=" + text
}
