package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const dataPlane = "server/proxy"

// productFiles returns the names of the files of a folder without tests.
func productFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	for _, name := range all {
		if !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	return names
}

// TestNoFunctionOfTheDataPlaneGetsAnExchange verifies that no function takes an *exchange or an *attempt. Code that
// needs one is a method of it; other functions take values.
func TestNoFunctionOfTheDataPlaneGetsAnExchange(t *testing.T) {
	set := token.NewFileSet()
	for _, name := range productFiles(t, dataPlane) {
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			for _, p := range fn.Type.Params.List {
				pointer, ok := p.Type.(*ast.StarExpr)
				if !ok {
					continue
				}
				if id, ok := pointer.X.(*ast.Ident); ok && (id.Name == "exchange" || id.Name == "attempt") {
					t.Errorf("%s: %s takes a *%s: make it a method, or pass the values", set.Position(fn.Pos()), fn.Name.Name, id.Name)
				}
			}
		}
	}
}

// TestArchitectureListsTheFilesOfTheDataPlane verifies that docs/architecture.md lists each file of the data
// plane once.
func TestArchitectureListsTheFilesOfTheDataPlane(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "| files | content |\n")
	list, _, ok := strings.Cut(list, "\n\n")
	if !ok {
		t.Fatal("docs/architecture.md has no list of files")
	}
	files := productFiles(t, dataPlane)
	for _, name := range files {
		if n := strings.Count(list, "`"+filepath.Base(name)+"`"); n != 1 {
			t.Errorf("docs/architecture.md lists %s %d times", filepath.Base(name), n)
		}
	}
	if n := strings.Count(list, ".go`"); n != len(files) {
		t.Errorf("docs/architecture.md lists %d files, the folder has %d", n, len(files))
	}
}
