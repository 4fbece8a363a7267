// Package checks has the tests of the repository as a whole: import rules, documents, deployment files,
// and the rules of tests. golangci-lint (.golangci.yml) checks the imports of libraries and package
// variables.
package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the module path; imports of its own packages begin with it.
const module = "tierway"

// layers maps each folder to its layer; layers are compared as strings. A package imports
// lower layers only. Folders below bench and e2e are in the layer of these two.
func layers() map[string]string {
	return map[string]string{
		"cmd/tierway": "5", "e2e": "5", "bench": "5",
		"server":       "4d",
		"server/proxy": "4c", "server/admin": "4c",
		"server/intake": "4b", "server/repeats": "4b",
		"server/control": "4a", "server/learning": "4a",
		"engines/chaos": "4a",
		"config":        "3", "engines": "3", "replay": "3",
		"config/imports": "3b",
		"sim":            "2", "sim/comparison": "2b",
		"workers/prompttokens": "1b", "hooks": "1b", "responsecache": "1b",
		"workers": "1", "store": "1", "openai/prompt": "1", "openai/answers": "1", "pairing": "1", "queue": "1", "decisions": "1",
		"routing": "0", "tiers": "0", "tenants": "0", "openai": "0", "openai/tokens": "0", "http1": "0", "breaker": "0",
		"telemetry": "0", "migrations": "0", "web": "0", "workers/kvstream": "0", "workers/lmcache": "0", "engines/zmq": "0",
		"workers/kvcache": "0b", "tierscore/report": "0b",
		"routing/prefix": "-1", "spool": "-1", "tokenizer": "-1", "workers/kvevents": "-1", "workers/zmtp": "-1", "memnet": "-1",
		"fixedseed": "-1", "memnet/memredis": "-1b", "tierscore": "-1", "tierscore/curve": "-1", "tierscore/training": "-1b",
		"routing/kvindex": "-1b",
	}
}

// testCode returns the packages that only tests, e2e, bench and these packages import.
func testCode() []string {
	return []string{"engines/chaos", "fixedseed", "memnet", "memnet/memredis"}
}

// simulator returns the packages that the gateway does not import, except its command line.
func simulator() []string { return []string{"sim", "sim/comparison"} }

// layerOf returns the layer of a folder; ok is false if the folder has none.
func layerOf(folder string) (layer string, ok bool) {
	for _, top := range []string{"bench", "e2e"} {
		if under(folder, top) {
			folder = top
		}
	}
	layer, ok = layers()[folder]
	return layer, ok
}

// pure returns the packages that take time and random numbers as arguments.
func pure() []string {
	return []string{"tiers", "queue", "routing", "routing/kvindex", "routing/prefix", "sim", "replay", "tierscore",
		"tierscore/curve", "tierscore/training", "tierscore/report", "pairing"}
}

// tree is the parsed module without its tests, by folder. The root is ".".
type tree struct {
	fset    *token.FileSet
	folders map[string]*folder
}

// folder is one package with the objects of its names. The type checker sees imported packages as empty, so the
// checker resolves only the package's own names and imports. The rules need no more.
type folder struct {
	name  string
	files []*ast.File
	info  *types.Info
	types *types.Package
}

// importRules returns all rules; each returns its violations.
func importRules() []func(*tree) []string {
	return []func(*tree) []string{
		everyFolderHasALayer, foldersHaveAllowedNames, importsGoDown, pureCalls,
	}
}

func TestImportRulesHold(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files were found")
	}
	parsed, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range importRules() {
		for _, violation := range rule(parsed) {
			t.Error(violation)
		}
	}
}

// sources reads the module's Go files except tests.
func sources(root string) (map[string]string, error) {
	return goFiles(root, func(name string) bool { return !isTest(name) })
}

// goFiles reads the module's Go files for which want returns true. Other modules, hidden folders, vendored
// and test data are not part of it.
func goFiles(root string, want func(name string) bool) (map[string]string, error) {
	recordRoot()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if at == root {
				return nil
			}
			_, noModule := os.Stat(filepath.Join(at, "go.mod"))
			if noModule == nil || strings.HasPrefix(e.Name(), ".") ||
				slices.Contains([]string{"testdata", "vendor", "node_modules"}, e.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(at, ".go") || !want(at) {
			return nil
		}
		source, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, at)
		files[filepath.ToSlash(rel)] = string(source)
		return err
	})
	return files, err
}

// parse parses and resolves sources, given by their paths.
func parse(sources map[string]string) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), folders: map[string]*folder{}}
	for _, name := range sorted(sources) {
		file, err := parser.ParseFile(t.fset, name, sources[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing the module: %w", err)
		}
		at := path.Dir(name)
		if t.folders[at] == nil {
			t.folders[at] = &folder{name: at}
		}
		t.folders[at].files = append(t.folders[at].files, file)
	}
	for _, f := range t.folders {
		f.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: hollow{}, Error: func(error) {}}
		// Every use of an imported name is an error here, and of no interest.
		f.types, _ = config.Check(path.Join(module, f.name), t.fset, f.files, f.info)
	}
	return t, nil
}

// hollow imports every package as an empty one.
type hollow struct{}

// Import returns a package without any names, called like the last part of its
// path that is not a version.
func (hollow) Import(at string) (*types.Package, error) {
	name := path.Base(at)
	if v, isVersion := strings.CutPrefix(name, "v"); isVersion && path.Dir(at) != "." {
		if _, err := strconv.Atoi(v); err == nil {
			name = path.Base(path.Dir(at))
		}
	}
	p := types.NewPackage(at, name)
	p.MarkComplete()
	return p, nil
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// imports calls f for each import of the tree.
func (t *tree) imports(f func(folder, at, imported string)) {
	for _, name := range sorted(t.folders) {
		for _, file := range t.folders[name].files {
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err == nil {
					f(name, t.at(spec), imported)
				}
			}
		}
	}
}

// at returns file and line of a node.
func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// own returns the folder of an import of the module.
func own(imported string) (folder string, ok bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// under reports whether an import path is root or below it.
func under(imported, root string) bool {
	return imported == root || strings.HasPrefix(imported, root+"/")
}

func everyFolderHasALayer(t *tree) (violations []string) {
	for _, name := range sorted(t.folders) {
		onlyDocuments := !slices.ContainsFunc(t.folders[name].files, func(f *ast.File) bool { return len(f.Decls) > 0 })
		if _, ok := layerOf(name); !ok && (name != "." || !onlyDocuments) {
			violations = append(violations, fmt.Sprintf("%s: the folder has Go files and is in no layer", name))
		}
	}
	return violations
}

func foldersHaveAllowedNames(t *tree) (violations []string) {
	forbidden := []string{"pkg", "internal", "util", "common", "types", "helpers"}
	for _, name := range sorted(t.folders) {
		for part := range strings.SplitSeq(name, "/") {
			if slices.Contains(forbidden, part) {
				violations = append(violations, fmt.Sprintf("%s: no folder is called %s", name, part))
			}
		}
	}
	return violations
}

func importsGoDown(t *tree) (violations []string) {
	t.imports(func(from, at, imported string) {
		to, ok := own(imported)
		if !ok {
			return
		}
		above, stands := layerOf(from)
		below, known := layerOf(to)
		switch {
		case !stands: // everyFolderHasALayer reports it
		case !known:
			violations = append(violations, fmt.Sprintf("%s: imports %s, which is in no layer", at, to))
		case under(from, "e2e") && under(to, "e2e"): // the tests share a gateway, databases and a rig
		case under(from, "bench") && (to == "bench/processes" || to == "e2e/backends"): // measurements share processes
		case below == above:
			violations = append(violations, fmt.Sprintf("%s: %s imports %s sideways, both in layer %s", at, from, to, below))
		case below > above:
			violations = append(violations, fmt.Sprintf("%s: %s in layer %s imports %s upward, in layer %s", at, from, above, to,
				below))
		case slices.Contains(testCode(), to) && !slices.Contains(testCode(), from) && !under(from, "e2e") &&
			!under(from, "bench"):
			violations = append(violations, fmt.Sprintf("%s: %s imports %s, which is for tests", at, from, to))
		case slices.Contains(simulator(), to) && !slices.Contains(simulator(), from) && from != "cmd/tierway" &&
			!under(from, "e2e") && !under(from, "bench"):
			violations = append(violations, fmt.Sprintf("%s: %s imports %s, which is a simulator", at, from, to))
		case from == "sim" && !slices.Contains(pure(), to):
			violations = append(violations, fmt.Sprintf("%s: sim imports %s, which is not pure", at, to))
		}
	})
	return violations
}
