package checks

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

// TestGoroutinesRunUnderTheRaceDetector: scripts/test.sh runs some packages without the race
// detector. Their sources must start no goroutine, and their tests that start one must also run under
// the race detector.
func TestGoroutinesRunUnderTheRaceDetector(t *testing.T) {
	script := string(read(t, "scripts/test.sh"))
	pattern := func(variable string) *regexp.Regexp {
		found := regexp.MustCompile(`(?m)^\t` + variable + `='(.+)'$`).FindStringSubmatch(script)
		if found == nil {
			t.Fatalf("scripts/test.sh has no line %s='…'", variable)
		}
		return regexp.MustCompile(found[1])
	}
	norace, raced := pattern("norace"), pattern("raced")
	for _, want := range []string{`-race .*-run "\$raced" "\$\{unraced\[@\]\}"`, `-race .*"\$\{units\[@\]\}"`,
		`raced='.*Keeps\?TheLaws//Concurren`} {
		if !regexp.MustCompile(want).MatchString(script) {
			t.Errorf("scripts/test.sh has nothing that matches %s", want)
		}
	}
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
		if !strings.HasSuffix(path, ".go") || !norace.MatchString(filepath.Join("tierway", folder)) {
			return nil
		}
		packages[folder] = true
		for _, name := range goroutineStarters(t, path) {
			switch {
			case strings.HasSuffix(path, "_test.go"):
				if tests++; !strings.HasPrefix(name, "Test") || !raced.MatchString(name) {
					t.Errorf("%s: %s starts a goroutine: start it in a test with a name that matches raced= in scripts/test.sh",
						path, name)
				}
			// the law BoundsHoldUnderConcurrency
			case path == "routing/routingtest/load.go" && (name == "concurrency" || name == "sendRequest"):
			default:
				t.Errorf("%s: %s starts a goroutine: take its package out of norace= in scripts/test.sh", path, name)
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

// goroutineStarters returns the names of the functions of a file that start goroutines, one
// for each start.
func goroutineStarters(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		name := "a variable"
		if f, ok := d.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if startsGoroutine(n) {
				names = append(names, name)
			}
			return true
		})
	}
	return names
}

// startsGoroutine reports whether a node is a go statement or the call of a method Go,
// by which sync.WaitGroup and errgroup.Group start goroutines.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		s, ok := n.Fun.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "Go"
	}
	return false
}
