package tiers

import (
	"fmt"
	"strings"
)

// Bounds of names in messages: a configuration may have thousands of names and of mistakes, and a name of any length.
const (
	maxListed = 24 // names; they fill two or three lines of a terminal
	maxShown  = 64 // characters of a name
)

// listNames returns the first names, separated by commas.
func listNames(names []string) string {
	var shown []string
	for _, name := range names[:min(len(names), maxListed)] {
		shown = append(shown, shorten(name))
	}
	list := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// shorten cuts a name after maxShown characters.
func shorten(name string) string {
	if r := []rune(name); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return name
}
