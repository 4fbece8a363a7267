package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// binaryVariable is the environment variable that names the binary under test.
const binaryVariable = "TIERWAY_BIN"

// Main runs the tests of a package with the binary that TIERWAY_BIN names, or builds one for
// this run. Call it from TestMain and exit with its result.
func Main(m *testing.M) int {
	if os.Getenv(binaryVariable) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tierway-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the binary:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "tierway")
	if err := errors.Join(build(bin), listSources(bin+sourcesSuffix)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(binaryVariable, bin); err != nil {
		fmt.Fprintln(os.Stderr, "naming the binary:", err)
		return 1
	}
	return m.Run()
}

// build compiles the gateway like the Makefile.
func build(to string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	c := exec.Command("go", "build", "-tags", "nomsgpack", "-o", to, "./cmd/tierway")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building the gateway: %w\n%s", err, out)
	}
	return nil
}

// sourcesSuffix ends the name of the file that lists what a binary of Main was built from.
const sourcesSuffix = ".sources"

// listSources writes the folders of the binary's packages and the files that they embed, one in a line.
func listSources(to string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	const format = `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{$dir}}{{range .EmbedFiles}}
{{$dir}}/{{.}}{{end}}{{end}}{{end}}`
	c := exec.Command("go", "list", "-tags", "nomsgpack", "-deps", "-f", format, "./cmd/tierway")
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("listing the sources of the gateway: %w", err)
	}
	return os.WriteFile(to, append([]byte(root+"\n"), out...), 0o600)
}

// Root returns the root folder of the module that contains the working directory.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	file := string(bytes.TrimSpace(out))
	if file == "" || file == os.DevNull {
		return "", fmt.Errorf("looking for the module: the working directory is not in a module")
	}
	return filepath.Dir(file), nil
}

// Binary returns the path of the binary under test. The result of the test depends on the binary, or on its sources if
// Main has built it.
func Binary(t testing.TB) string {
	t.Helper()
	bin := os.Getenv(binaryVariable)
	if bin == "" {
		t.Fatalf("%s is not set: run the tests through gateway.Main", binaryVariable)
	}
	DependOn(t, bin)
	if sources, err := os.ReadFile(bin + sourcesSuffix); err == nil {
		DependOn(t, strings.FieldsFunc(string(sources), func(r rune) bool { return r == '\n' })...)
	}
	return bin
}

// DependOn makes the result of the test depend on files that another program reads: `go test` does not take it
// from its cache after one of them, or a file directly in one of the folders, has changed. Files outside of the
// module do not count.
func DependOn(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		// The cache compares the files and folders that a test opens.
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close() // it was only read
	}
}
