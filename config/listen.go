package config

import "strings"

// WithListen returns the configuration with other addresses, each checked like
// the file's own: a flag opens nothing that the file does not allow. An empty
// address keeps the file's. The error is a Problems without lines.
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
			nameFlag(&d.problems[i])
		}
		return nil, d.problems.sorted()
	}
	return &out, nil
}

// SharedPlanes reports whether one address serves both planes. Port 0, which
// stands for any free one, is never shared.
func (f *File) SharedPlanes() bool {
	return f.Listen == f.Admin.Listen && !strings.HasSuffix(f.Listen, ":0")
}
