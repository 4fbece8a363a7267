package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLocksAreOfFilesThatExist: a file that is renamed would count as shared.
func TestLocksAreOfFilesThatExist(t *testing.T) {
	for _, name := range append(ownLocks(), consumerLocks()...) {
		if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
			t.Error(err)
		}
	}
}
