package checks

import (
	"fmt"
	"os"
	"sync"
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

// recordRoot changes the directory while a test runs. go test then records which files are read, and discards cached
// results when one changes. It does not record the change in TestMain. Call recordRoot before a file is read.
var recordRoot = sync.OnceFunc(func() {
	if err := os.Chdir("."); err != nil {
		panic(err)
	}
})
