package config

import (
	"reflect"
	"slices"
	"strings"

	"tierway/workers"
)

// Effects of a change.
const (
	effectLive    = "live"    // counts for the next request
	effectDrain   = "drain"   // a worker goes, or another takes its name: what it has it finishes
	effectRestart = "restart" // waits for the program's next start
)

// restartOnly are the keys and sections that are read once, at the start:
// listeners, connections to stores and to a collector, files that are written, and
// what the program sets up around them.
var restartOnly = [...]string{
	"listen", "tls", "insecure", "admin.listen", "admin.tls", "admin.insecure", "metrics.listen", "metrics.insecure",
	"store", "telemetry.otlp", "telemetry.clients", "decisions.file", "decisions.max_size", "decisions.max_files", "log",
}

// draining are the keys of a worker's identity, as workers.Spec has them: with
// another value it is another engine, without the load and the rates of the old one.
var draining = [...]string{"workers[].url", "engine", "model"}

// effectOf returns what a change at a place means.
func effectOf(pattern string, op string) string {
	for _, path := range restartOnly {
		if pattern == path || strings.HasPrefix(pattern, path+".") {
			return effectRestart
		}
	}
	section := ""
	for _, prefix := range [...]string{"tiers[]", "pools[]"} {
		if strings.HasPrefix(pattern, prefix) {
			section = prefix
		}
	}
	if op == "remove" && section != "" && (pattern == section || pattern == section+".workers[]") {
		return effectDrain
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(pattern, section), ".")
	if section != "" && slices.Contains(draining[:], rest) {
		return effectDrain
	}
	return effectLive
}

// restartText lists them for people.
func restartText() string {
	list := "`" + strings.Join(restartOnly[:], "`, `") + "`"
	at := strings.LastIndex(list, ", ")
	return list[:at] + " and" + list[at+1:]
}

// KeepRestartOnly returns a copy whose keys that only a restart changes have the
// values of old, which is what is in force after a reload. Keys stay required
// until the restart where the old addresses are not loopback. Neither of the two
// is changed.
func (f *File) KeepRestartOnly(old *File) *File {
	out := *f
	to, from := reflect.ValueOf(&out).Elem(), reflect.ValueOf(old).Elem()
	for _, path := range restartOnly {
		at(to, path).Set(at(from, path))
	}
	out.Auth.Required = out.Auth.Required || opensLate(old, f)
	return &out
}

// opensLate reports whether a new configuration needs no keys any more where the
// addresses in force are not loopback: its own are, but wait for a restart.
func opensLate(old, new *File) bool {
	return old.Auth.Required && !new.Auth.Required && !(Loopback(old.Listen) && Loopback(old.Admin.Listen))
}

// at returns the value at a path of sections.
func at(section reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		section = section.Field(fieldsOf(section.Type()).index[name])
	}
	return section
}

// WithOverrides returns a copy whose workers of those names have those weights; 0
// takes no new requests. Names that no worker has are ignored. The original
// stays as it is.
func (f *File) WithOverrides(weight map[string]int) *File {
	out := *f
	over := func(ws []workers.Config) []workers.Config {
		ws = slices.Clone(ws)
		for i := range ws {
			if w, ok := weight[ws[i].Name]; ok {
				ws[i].Weight = &w
			}
		}
		return ws
	}
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	for i := range out.Tiers {
		out.Tiers[i].Workers = over(out.Tiers[i].Workers)
	}
	for i := range out.Pools {
		out.Pools[i].Workers = over(out.Pools[i].Workers)
	}
	return &out
}
