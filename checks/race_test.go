package checks

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// raceExceptions maps packages to the reason why only `make soak` tests their goroutines under the race detector.
func raceExceptions() map[string]string {
	const builds, runs = "building it with its libraries takes 90 s of CPU or more", "its tests take minutes"
	const measures = "it measures time, which the race detector changes"
	return map[string]string{
		"bench/directory": measures, "bench/proxy": measures, "cmd/tierway": builds, "engines": runs,
		"server": runs, "server/admin": builds, "server/control": builds,
		"server/learning": builds, "sim/comparison": runs, "store": builds, "telemetry": builds,
		"server/intake": "its only goroutine collects garbage and shares nothing",
		"server/proxy":  runs + ": those of package server",
	}
}

// TestGoroutinesRunUnderTheRaceDetector verifies that each package that starts goroutines runs under the race detector
// in scripts/test.sh, or is in raceExceptions.
func TestGoroutinesRunUnderTheRaceDetector(t *testing.T) {
	list := regexp.MustCompile(`(?m)^raced=\((.+)\)$`).FindSubmatch(read(t, "scripts/test.sh"))
	if list == nil {
		t.Fatal("scripts/test.sh has no line raced=(…)")
	}
	patterns := strings.Fields(string(list[1]))
	raced := func(folder string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			below, all := strings.CutSuffix(strings.TrimPrefix(p, "./"), "/...")
			return folder == below || all && under(folder, below)
		})
	}
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	starters := map[string]bool{}
	for _, name := range sorted(parsed.folders) {
		parsed.folders[name].inspect(func(n ast.Node) {
			later, _ := n.(*ast.SelectorExpr) // time.AfterFunc and context.AfterFunc
			if (startsGoroutine(n) || later != nil && later.Sel.Name == "AfterFunc") && !under(name, "e2e") {
				starters[name] = true
			}
		})
	}
	for _, name := range sorted(starters) {
		switch _, excused := raceExceptions()[name]; {
		case !excused && !raced(name):
			t.Errorf("%s starts goroutines: add it to raced= in scripts/test.sh, or to raceExceptions with a reason", name)
		case excused && raced(name):
			t.Errorf("%s runs under the race detector in scripts/test.sh: remove its row in raceExceptions", name)
		}
	}
	for _, name := range sorted(raceExceptions()) {
		if !starters[name] {
			t.Errorf("%s starts no goroutine: remove its row in raceExceptions", name)
		}
	}
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
