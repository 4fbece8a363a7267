package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// leastDecisionFile is the shortest file of decisions that is worth its turn: a few
// hundred records.
const leastDecisionFile = Size(1 << 20)

// checkTelemetry checks where traces go and which decisions are kept.
func (d *decoder) checkTelemetry(f *File) {
	d.checkWebURL("telemetry.otlp", f.Telemetry.OTLP, "write the collector's address, such as http://127.0.0.1:4318; what it asks for stands in OTEL_EXPORTER_OTLP_HEADERS")
	d.checkWebURL("telemetry.trace_ui", f.Telemetry.TraceUI, "write where people open Jaeger, such as http://127.0.0.1:16686")
	at, c := "decisions.max_size", f.Decisions
	if c.MaxSize > 0 && c.MaxSize < leastDecisionFile {
		d.faultAt(at, "decisions", fmt.Sprintf("%v is less than %v", c.MaxSize, leastDecisionFile), fmt.Sprintf("write %v or more", leastDecisionFile))
	}
	switch {
	case strings.HasSuffix(c.File, "/") || strings.ContainsRune(c.File, 0):
		d.fault("decisions.file", d.shown("decisions.file", c.File)+" is no file name", "write a path such as decisions.jsonl; a relative one lies beside this file")
	case c.File != "":
		if other := d.sameFile(f); other != "" {
			d.fault("decisions.file", d.shown("decisions.file", c.File)+" is "+other, "write a file of its own, such as decisions.jsonl")
		}
	default:
		for _, path := range [...]string{at, "decisions.max_files"} {
			if d.written(path) {
				d.caution(path, "does nothing without decisions.file", "set decisions.file, or remove the key; decisions.keep bounds what is in memory")
			}
		}
	}
}

// sameFile returns which other file of the configuration decisions.file names, as far
// as the texts tell; "" if it is one of its own.
func (d *decoder) sameFile(f *File) string {
	whole := func(file string) string {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(d.file), file)
		}
		if absolute, err := filepath.Abs(file); err == nil {
			return absolute
		}
		return file
	}
	decisions := whole(f.Decisions.File)
	if decisions == whole(filepath.Base(d.file)) {
		return "the configuration itself"
	}
	if database, ok := strings.CutPrefix(f.Store.SQL, "sqlite://"); ok && database != "" {
		for _, suffix := range [...]string{"", "-wal", "-shm", "-journal"} { // SQLite's own beside the file
			if decisions == whole(database)+suffix {
				return "the file of store.sql"
			}
		}
	}
	return ""
}

// checkWebURL checks an address that a configuration may show. No message repeats
// more of it than the scheme: a password may have been written into it.
func (d *decoder) checkWebURL(path, text, hint string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	message := ""
	switch {
	case err != nil || u.Scheme == "" || u.Opaque != "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		message = "is no URL"
	case u.Scheme != "http" && u.Scheme != "https":
		message = "has another scheme than http, https"
	case u.Hostname() == "" || u.Port() == "" && strings.HasSuffix(u.Host, ":"):
		message = "names no host behind " + u.Scheme + "://"
	case u.User != nil:
		message = "holds a user or a password, and configurations are shown"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		message = "has a ? or a # behind the path"
	default:
		return
	}
	before := len(d.problems)
	parent, _, _ := strings.Cut(path, ".")
	d.faultAt(path, parent, message, hint)
	if len(d.problems) > before {
		d.problems[before].hide = true
	}
}
