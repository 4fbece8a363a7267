package tenants

import (
	"fmt"
	"slices"
	"strings"
)

// Class is a priority class. A lower value is more urgent.
type Class uint8

// The classes, most urgent first.
const (
	Interactive Class = iota
	Background
	Batch
)

// classes has the names as in config.yaml and X-Request-Priority.
var classes = [...]string{Interactive: "interactive", Background: "background", Batch: "batch"}

// Classes returns the names of all classes, most urgent first.
func Classes() []string { return slices.Clone(classes[:]) }

// String returns the class's name.
func (c Class) String() string {
	if int(c) < len(classes) {
		return classes[c]
	}
	return "unknown"
}

// ParseClass returns the class of a name in any case; ok is false for an unknown name.
func ParseClass(name string) (c Class, ok bool) {
	i := slices.IndexFunc(classes[:], func(n string) bool { return strings.EqualFold(n, name) })
	return Class(max(i, 0)), i >= 0
}

// MarshalText returns the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses a class's name in any case. Empty text means interactive.
func (c *Class) UnmarshalText(text []byte) error {
	got, ok := ParseClass(string(text))
	if !ok && len(text) > 0 {
		return fmt.Errorf("unknown class %q: use %s", text, strings.Join(Classes(), ", "))
	}
	*c = got
	return nil
}
