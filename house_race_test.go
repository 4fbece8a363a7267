package tierway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhatStartsGoroutinesRunsUnderTheRaceDetector: of the packages that scripts/test.sh
// runs without the race detector, no source starts a goroutine, and each test that does
// is among those that run under it as well.
func TestWhatStartsGoroutinesRunsUnderTheRaceDetector(t *testing.T) {
	script := string(read(t, "scripts/test.sh"))
	of := func(variable string) *regexp.Regexp {
		found := regexp.MustCompile(`(?m)^\t` + variable + `='(.+)'$`).FindStringSubmatch(script)
		if found == nil {
			t.Fatalf("scripts/test.sh has no line %s='…'", variable)
		}
		return regexp.MustCompile(found[1])
	}
	single, concurrent := of("single"), of("concurrent")
	packages, tests := map[string]bool{}, 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); name == "node_modules" || name != "." && name[0] == '.' {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		folder := filepath.Dir(path)
		if !strings.HasSuffix(path, ".go") || !single.MatchString(filepath.Join("tierway", folder)) {
			return nil
		}
		packages[folder] = true
		for _, name := range startGoroutines(t, path) {
			switch {
			case strings.HasSuffix(path, "_test.go"):
				if tests++; !concurrent.MatchString(name) {
					t.Errorf("%s: %s starts a goroutine: give it a name that matches concurrent= in scripts/test.sh", path, name)
				}
			case folder != "routing/routingtest": // whose concurrency is a law that the policies' tests run
				t.Errorf("%s: %s starts a goroutine: take its package out of single= in scripts/test.sh", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 5 || tests < 5 {
		t.Errorf("%d packages and %d tests with goroutines were found", len(packages), tests)
	}
}

// startGoroutines returns the names of the functions of a file that start goroutines.
func startGoroutines(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && startsGoroutine(f) {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

// startsGoroutine reports whether a function holds a go statement or the call of a Go
// method, by which sync.WaitGroup and errgroup.Group start goroutines.
func startsGoroutine(f *ast.FuncDecl) (starts bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				starts = true
			}
		}
		return true
	})
	return starts
}
