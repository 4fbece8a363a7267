package tenants

import (
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
	for i, n := range classes {
		if strings.EqualFold(n, name) {
			return Class(i), true
		}
	}
	return Interactive, false
}
