package store

import (
	"os"
	"testing"
)

// OnlyInSoak skips a test that stops and starts servers of its own.
func OnlyInSoak(t *testing.T) {
	t.Helper()
	if os.Getenv("TIERWAY_SOAK") == "" {
		t.Skip("needs servers of its own: make soak")
	}
}
