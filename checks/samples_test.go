package checks

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSoakRunsTheLargeSamples verifies that make soak runs each package that calls fixedseed.Samples with TIERWAY_SOAK
// set. The step binary runs all packages of e2e so, and the step samples those that it lists.
func TestSoakRunsTheLargeSamples(t *testing.T) {
	step := regexp.MustCompile(`(?m)^\s*step samples "\$\{tests\[@\]\}" (.+)$`).FindSubmatch(read(t, "scripts/test.sh"))
	if step == nil {
		t.Fatal("scripts/test.sh has no step samples")
	}
	listed := strings.Fields(string(step[1]))
	packages, err := moduleTests()
	if err != nil {
		t.Fatal(err)
	}
	drawing := map[string]bool{}
	for _, p := range packages {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if n != nil && p.used(n, module+"/fixedseed") == "Samples" && !under(p.folder, "e2e") {
					drawing["./"+p.folder] = true
				}
				return true
			})
		}
	}
	for _, folder := range sorted(drawing) {
		if !slices.Contains(listed, folder) {
			t.Errorf("%s calls fixedseed.Samples: add it to the step samples of scripts/test.sh", folder)
		}
	}
	for _, folder := range listed {
		if !drawing[folder] {
			t.Errorf("%s does not call fixedseed.Samples: remove it from the step samples of scripts/test.sh", folder)
		}
	}
}
