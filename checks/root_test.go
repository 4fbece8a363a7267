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

// recordRoot makes go test know the working directory, so that it takes no result from its cache after a file has
// changed. It records changes of the directory only while tests run, not those in TestMain. Call it before a file
// is read.
var recordRoot = sync.OnceFunc(func() {
	if err := os.Chdir("."); err != nil {
		panic(err)
	}
})
