package config

import "slices"

// WithListen returns the configuration with other addresses, each checked like
// the file's own: a flag opens nothing that the file does not allow. An empty
// address keeps the file's. Its Warnings are those of the addresses in force.
// The error is a Problems without lines.
func (f *File) WithListen(listen, adminListen string) (*File, error) {
	out := *f
	if listen != "" {
		out.Listen = listen
	}
	if adminListen != "" {
		out.Admin.Listen = adminListen
	}
	d := newDecoder("command line", nil)
	d.checkAddresses(&out)
	if d.problems.Failed() {
		for i := range d.problems {
			nameFlag(&d.problems[i], false)
		}
		return nil, d.problems.sorted()
	}
	out.warnings = f.warningsOf(&out, d.problems)
	return &out, nil
}

// warningsOf returns the file's warnings with those of other addresses in place
// of its own. An address that stayed keeps the file's, which has a line.
func (f *File) warningsOf(moved *File, open Problems) Problems {
	stayed := map[string]bool{openData: moved.Listen == f.Listen, openAdmin: moved.Admin.Listen == f.Admin.Listen}
	var kept Problems
	for _, w := range f.warnings {
		if w.Path != openData && w.Path != openAdmin || stayed[w.Path] && open.at(w.Path) {
			kept = append(kept, w)
		}
	}
	for _, w := range open {
		if !kept.at(w.Path) {
			kept = append(kept, w)
		}
	}
	return kept
}

// The paths of warnings of open addresses.
const (
	openData  = "insecure"
	openAdmin = "admin.insecure"
)

// at reports whether one of the problems is about path.
func (ps Problems) at(path string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Path == path })
}
