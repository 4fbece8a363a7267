package tenants

import (
	"fmt"
	"slices"
	"strings"
)

// Class is how urgent a request is. A lower value is more urgent.
type Class uint8

// The classes, the most urgent first.
const (
	Interactive Class = iota
	Background
	Batch
)

// classes are the words of config.yaml and X-Request-Priority.
var classes = [...]string{Interactive: "interactive", Background: "background", Batch: "batch"}

// Classes returns the names of all classes, the most urgent first.
func Classes() []string { return slices.Clone(classes[:]) }

// String returns the class's name.
func (c Class) String() string {
	if int(c) < len(classes) {
		return classes[c]
	}
	return "unknown"
}

// ParseClass returns the class of a name in any case; ok is false for a name
// that is none.
func ParseClass(name string) (c Class, ok bool) {
	i := slices.IndexFunc(classes[:], func(n string) bool { return strings.EqualFold(n, name) })
	return Class(max(i, 0)), i >= 0
}

// MarshalText writes the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a class's name in any case; the empty text is interactive.
func (c *Class) UnmarshalText(text []byte) error {
	got, ok := ParseClass(string(text))
	if !ok && len(text) > 0 {
		return fmt.Errorf("unknown class %q: use %s", text, strings.Join(Classes(), ", "))
	}
	*c = got
	return nil
}
