package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
)

// Origin is where a value in force comes from. It contains no value.
type Origin struct {
	Source    string   `json:"source" enum:"file,environment,override,flag,default" doc:"file: written in the file. environment: read from environment variables. override: set by a live override. flag: set on the command line. default: the default, although the file sets the key; detail has the reason."`
	Line      int      `json:"line,omitempty" doc:"Line of the key, or of the list item, in the file that was read last. Absent: the value in force is not from that file."`
	Variables []string `json:"variables,omitempty" doc:"Names of the environment variables in the value."`
	Detail    string   `json:"detail,omitempty"`
}

// Sources of values.
const (
	originFile        = "file"
	originEnvironment = "environment"
	originFlag        = "flag"
	originDefault     = "default"
)

// origins has the positions of the keys of a file, and the values that do not come from it. It is
// immutable.
type origins struct {
	written  map[string]place  // by path, as in problems
	raw      map[string]string // by path, scalars with a variable as written
	replaced map[string]Origin // by path; each holds for everything below its path
}

// replace returns a copy in which the values at and below these paths have another origin.
func (o *origins) replace(paths map[string]Origin) *origins {
	out := &origins{replaced: map[string]Origin{}}
	if o != nil {
		out.written, out.raw = o.written, o.raw
		maps.Copy(out.replaced, o.replaced)
	}
	maps.Copy(out.replaced, paths)
	return out
}

// at returns the origin of the value at path, which is not below a replaced path.
func (o *origins) at(path string) (Origin, bool) {
	if o == nil {
		return Origin{}, false
	}
	if replaced, ok := o.replaced[path]; ok {
		return replaced, true
	}
	at, ok := o.written[path]
	if !ok {
		return Origin{}, false
	}
	if raw, expanded := o.raw[path]; expanded {
		return Origin{Source: originEnvironment, Line: int(at.keyLine), Variables: variablesIn(raw)}, true
	}
	return Origin{Source: originFile, Line: int(at.keyLine)}, true
}

// variableStart matches the start of ${NAME} or ${NAME:-default}, and the escape of a literal ${.
var variableStart = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)`)

// variablesIn returns the sorted names of the variables in a scalar, without their default values.
func variablesIn(raw string) []string {
	var names []string
	for _, match := range variableStart.FindAllStringSubmatch(raw, -1) {
		if match[1] != "" {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Origins returns the origins of the values that are not defaults, by path. The paths are those of
// problems: items of lists by index, such as tiers[0].workers[1].weight. A key that is not a plain word
// is quoted, such as models["gpt-4*"]. Each path is one of the printed form. A section has the origin of
// its own key. The caller owns the result.
func (f *File) Origins() map[string]Origin {
	w := originWalk{origins: f.origins, found: map[string]Origin{}}
	w.section("", reflect.ValueOf(f).Elem(), nil)
	return w.found
}

type originWalk struct {
	origins *origins
	found   map[string]Origin
}

// section collects the origins below a section. within is the origin of everything below it; nil: none.
func (w *originWalk) section(path string, v reflect.Value, within *Origin) {
	for k, field := range members(v) {
		if !unset(field, *k) {
			w.value(join(path, k.name), field, within)
		}
	}
}

// value collects the origins of a set value and of everything below it.
func (w *originWalk) value(path string, v reflect.Value, within *Origin) {
	if w.origins == nil {
		return
	}
	if replaced, ok := w.origins.replaced[path]; ok {
		within = &replaced
	}
	if within != nil {
		w.found[path] = *within
	} else if at, ok := w.origins.at(path); ok {
		w.found[path] = at
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Elem().Kind() == reflect.Struct {
			w.section(path, v.Elem(), within)
		}
	case reflect.Struct:
		w.section(path, v, within)
	case reflect.Map:
		for name, value := range entries(v) {
			w.value(join(path, name), value, within)
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.value(itemPath(path, i), v.Index(i), within)
		}
	}
}

// itemPath returns the path of a list item.
func itemPath(list string, at int) string { return list + "[" + strconv.Itoa(at) + "]" }

// WorkerPath returns the path of the worker of that name, such as tiers[0].workers[1]. It returns "" if the
// configuration has no entry of that name. A rank of a server has no entry of its own.
func (f *File) WorkerPath(name string) string {
	for _, s := range f.sections() {
		for i := range s.Workers {
			if s.Workers[i].Name == name {
				return itemPath(s.path+".workers", i)
			}
		}
	}
	return ""
}

// keptFrom returns the origin, before a reload, of a value that a reload keeps until the restart.
func (o *origins) keptFrom(path string) Origin {
	at, ok := o.at(path)
	if !ok {
		at.Source = originDefault
	}
	return Origin{Source: at.Source, Variables: at.Variables,
		Detail: "value of the last start; a changed value in the file takes effect after a restart"}
}
