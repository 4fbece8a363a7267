package config

import (
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// draftName is what problems call the text of a draft.
const draftName = "draft"

// Draft returns a configuration to try out: f with text laid over it or, with
// whole, what text alone says. It is checked as a file is, and the error is a
// Problems whose lines are those of text. f itself stays as it is, and what the
// draft leaves of it keeps its value, workers' keys included.
//
// Laid over f, sections merge key by key, lists of sections item by item, each by
// its name, and a new item comes last; another policy replaces the section whole;
// every other list replaces f's. A key without a value (null) is set back to its
// default, or to what it inherits.
//
// A draft reads nothing but its text: a variable of the environment, another
// certificate, store, file of decisions or worker's key is refused. Such a value may
// stand in it as the live file has it or as a redacted configuration shows it, and
// then is the live one.
func (f *File) Draft(text []byte, whole bool) (*File, error) {
	d := f.draftDecoder()
	if whole {
		d.most = maxNodes
	}
	root := d.parse(text)
	if d.problems.Failed() {
		return nil, d.problems.sorted()
	}
	laid := newDrafting(f, d, whole)
	root = laid.root(root)
	if d.problems.Failed() && laid.nodes > laid.most {
		return nil, d.problems.sorted()
	}
	out := d.decodeNode(root)
	d.check(out)
	if !whole && len(d.problems) > 0 {
		d.forgive(f.ownProblems())
	}
	out.path, out.source = f.path, f.source
	if f.path != "" {
		out.settle(f.path)
	}
	return d.finish(out)
}

// draftDecoder returns a decoder that knows f's workers' keys and no environment.
func (f *File) draftDecoder() *decoder {
	d := newDecoder(draftName, func(variable string) (string, bool) {
		if f.keys == nil {
			return "", false
		}
		key := f.keys(variable)
		return key, key != ""
	})
	d.draft = true
	d.most = 2 * maxNodes // the draft's and f's own, whose defaults are written out here
	return d
}

// decodeNode reads a node over the defaults; nil is an empty file.
func (d *decoder) decodeNode(root *yaml.Node) *File {
	f := Default()
	if root != nil {
		d.value(root, "", key{}, reflect.ValueOf(&f).Elem())
	}
	return &f
}

// ownProblems returns what a check says of f alone. A file that was checked is
// without errors; one that live overrides or a reload have changed may not be.
func (f *File) ownProblems() Problems {
	d := f.draftDecoder()
	d.check(d.decodeNode(nodeOf(reflect.ValueOf(f).Elem(), key{}, false)))
	return d.problems
}

// forgive drops what is wrong with the live configuration already: a draft is not
// to blame for it.
func (d *decoder) forgive(live Problems) {
	d.problems = slices.DeleteFunc(d.problems, func(p Problem) bool {
		return slices.ContainsFunc(live, func(l Problem) bool { return l.Path == p.Path && l.Message == p.Message })
	})
}
