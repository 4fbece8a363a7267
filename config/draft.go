package config

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/store"
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

var (
	// Only values of sha256: elsewhere, a message about the value would show the whole digest.
	shortened = regexp.MustCompile(`\bsha256["']?\s*:\s*["']?[0-9a-f]{8}…`)
	whole     = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
)

// RestoreHidden returns a draft with the full digests and the store URLs of the file at path in place of those
// that ReadText shortened or redacted. Lines keep their numbers. Without a file the draft stays as it is, and
// so does a value that the file does not contain.
func RestoreHidden(draft []byte, path string) []byte {
	if path == "" {
		return draft
	}
	src, err := readFile(path)
	if err != nil {
		return draft
	}
	return restoreURLs(restoreDigests(draft, src), src)
}

// restoreDigests replaces shortened digests by those of src.
func restoreDigests(draft, src []byte) []byte {
	known := whole.FindAll(src, -1)
	return shortened.ReplaceAllFunc(draft, func(short []byte) []byte {
		key, begin := short[:len(short)-len("01234567…")], short[len(short)-len("01234567…"):][:8]
		for _, digest := range known {
			if bytes.HasPrefix(digest, begin) {
				return append(bytes.Clone(key), digest...)
			}
		}
		return short
	})
}

// restoreURLs replaces each redacted URL of the section store by the URL of src under the same key.
func restoreURLs(draft, src []byte) []byte {
	shown, values := storeURLs(draft), storeURLs(src)
	if len(shown) == 0 || len(values) == 0 {
		return draft
	}
	lines := runesOf(splitLines(string(draft)))
	var spans []span
	for name, n := range shown {
		value := values[name]
		if value == nil || n.Value == value.Value || n.Value != store.RedactURL(value.Value) {
			continue
		}
		quoted, err := json.Marshal(value.Value) // a JSON string is a YAML string on one line
		if from, to, found := literalOf(n, lines); found && err == nil {
			spans = append(spans, span{from: from, to: to, text: string(quoted)})
		}
	}
	if len(spans) == 0 {
		return draft
	}
	slices.SortFunc(spans, func(a, b span) int { return comparePositions(b.from, a.from) }) // the columns before stay
	for _, s := range spans {
		line := lines[s.from.line]
		lines[s.from.line] = slices.Concat(line[:s.from.column], []rune(s.text), line[s.to.column:])
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = string(line)
	}
	return []byte(strings.Join(out, "\n"))
}

// storeURLs returns the URLs of the section store by key; none if the text is not valid YAML. A value that an
// alias may repeat is omitted: under another key, a message or a change would show it.
func storeURLs(text []byte) map[string]*yaml.Node {
	roots, err := documentsOf(text)
	if err != nil || len(roots) == 0 || roots[0].Anchor != "" {
		return nil
	}
	urls := map[string]*yaml.Node{}
	section := memberOf(roots[0], "store")
	if section == nil || section.Anchor != "" {
		return nil
	}
	for name, k := range sections[reflect.TypeFor[Store]()].keys {
		if n := memberOf(section, name); k.url && n != nil && n.Kind == yaml.ScalarNode && n.Anchor == "" {
			urls[name] = n
		}
	}
	return urls
}

// memberOf returns the value of a key of a mapping; nil: there is none.
func memberOf(mapping *yaml.Node, name string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}
