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

// restartText lists the keys that only a restart changes for people.
func restartText() string {
	var list []string
	walk("", reflect.ValueOf(File{}), func(path string, k key, _ reflect.Value) {
		if k.reload == effectRestart {
			list = append(list, "`"+path+"`")
		}
	})
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// KeepRestartOnly returns a copy whose keys that only a restart changes have the
// values of old, which is what is in force after a reload. Keys stay required
// until the restart where the old addresses are not loopback. Neither of the two
// is changed.
func (f *File) KeepRestartOnly(old *File) *File {
	out := *f
	keepRestartOnly(reflect.ValueOf(&out).Elem(), reflect.ValueOf(old).Elem())
	out.Auth.Required = out.Auth.Required || opensLate(old, f)
	return &out
}

// opensLate reports whether a new configuration needs no keys any more where the
// addresses in force are not loopback: its own are, but wait for a restart.
func opensLate(old, new *File) bool {
	return old.Auth.Required && !new.Auth.Required && !(Loopback(old.Listen) && Loopback(old.Admin.Listen))
}

// keepRestartOnly gives a section the values of old that only a restart changes.
func keepRestartOnly(section, old reflect.Value) {
	for k, v := range members(section) {
		was := old.Field(fieldsOf(old.Type()).index[k.name])
		if k.reload == effectRestart {
			v.Set(was)
		} else if v.Kind() == reflect.Struct {
			keepRestartOnly(v, was)
		}
	}
}

// WithOverrides returns a copy whose workers of those names have those weights; 0
// takes no new requests. Names that no worker has are ignored. The original
// stays as it is.
func (f *File) WithOverrides(weight map[string]int) *File {
	out := *f
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	for i := range out.Tiers {
		overrideWeights(&out.Tiers[i].Workers, weight)
	}
	for i := range out.Pools {
		overrideWeights(&out.Pools[i].Workers, weight)
	}
	return &out
}

// overrideWeights replaces a list of workers by one with those weights.
func overrideWeights(list *[]workers.Config, weight map[string]int) {
	*list = slices.Clone(*list)
	for i := range *list {
		if w, ok := weight[(*list)[i].Name]; ok {
			(*list)[i].Weight = &w
		}
	}
}
