package checks

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes the root of the module the working directory, so that the tests name files by their
// paths in the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
