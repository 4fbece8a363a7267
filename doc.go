// Package tierway is the root of the module, and empty: the program is in cmd/tierway, and docs/architecture.md is
// the map of the packages.
package tierway
