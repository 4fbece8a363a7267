package checks

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// smokeStep has the patterns of scripts/test.sh that select the packages of the smoke step.
type smokeStep struct {
	real     *regexp.Regexp // packages of real time
	included *regexp.Regexp // packages from the list of the module
	excluded *regexp.Regexp // exceptions of included
	named    []string       // packages in a command
}

// parseSmokeStep reads the patterns of scripts/test.sh.
func parseSmokeStep(t *testing.T, script string) (s smokeStep) {
	t.Helper()
	real := regexp.MustCompile(`(?m)^real='(.+)'$`).FindStringSubmatch(script)
	list := regexp.MustCompile(`(?m)^mapfile -t smoked .+grep -E "\$real\|([^"]+)".* \| grep -vE '(.+)'\)$`).
		FindStringSubmatch(script)
	if real == nil || list == nil {
		t.Fatal(`scripts/test.sh has no line real='…', or none that begins with "mapfile -t smoked"`)
	}
	s.real, s.excluded = regexp.MustCompile(real[1]), regexp.MustCompile(list[2])
	s.included = regexp.MustCompile(real[1] + "|" + list[1])
	for line := range strings.Lines(script) {
		if !strings.Contains(line, "-run '^TestSmoke'") {
			continue
		}
		command, _, _ := strings.Cut(line, " -- ")
		for word := range strings.FieldsSeq(command) {
			if folder, ok := strings.CutPrefix(word, "./"); ok {
				s.named = append(s.named, folder)
			}
		}
	}
	return s
}

// runs reports whether make test runs the smoke tests of a folder.
func (s smokeStep) runs(folder string) bool {
	return slices.Contains(s.named, folder) ||
		s.included.MatchString("/"+folder) && !s.excluded.MatchString("/"+folder)
}

// TestEachSmokeTestRuns verifies that make test runs each TestSmoke…, which the step of the other tests skips. It also
// verifies that realTime() and scripts/test.sh name the same packages.
func TestEachSmokeTestRuns(t *testing.T) {
	step := parseSmokeStep(t, string(read(t, "scripts/test.sh")))
	packages, err := moduleTests()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		for _, name := range smokeTests(p) {
			if !step.runs(p.folder) {
				t.Errorf("%s: make test does not run %s: add the package to the step smoke of scripts/test.sh", p.folder, name)
			}
		}
		// All files of e2e/vllm have a build tag, so no list of packages has it.
		real := slices.Contains(realTime(), p.folder)
		if real != step.real.MatchString("/"+p.folder) && p.folder != "e2e/vllm" {
			t.Errorf("%s: realTime and real= of scripts/test.sh differ", p.folder)
		}
	}
}

// smokeTests returns the names of a package's smoke tests.
func smokeTests(p *testPackage) (names []string) {
	for _, name := range sorted(p.files) {
		for _, d := range p.files[name].Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "TestSmoke") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func TestStepSmokeSelectsListedAndNamedPackages(t *testing.T) {
	step := parseSmokeStep(t, `real='/e2e/(sdk|state)$'
mapfile -t smoked < <(grep -E "$real|/e2e/chaos$" <<<"$all" | grep -vE '/e2e/(sdk)$')
	step virtual go test -skip '^TestSmoke' "${virtual[@]}" ./queue
	step smoke go test -run '^TestSmoke' "${smoke[@]}" ./store
	once sdk go test -run '^TestSmoke' ./e2e/sdk -- ./server
`)
	for folder, want := range map[string]bool{"e2e/state": true, "e2e/chaos": true, "e2e/sdk": true, "store": true,
		"server": false, "queue": false, "e2e/queue": false} {
		if step.runs(folder) != want {
			t.Errorf("the step runs %s: %v, want %v", folder, !want, want)
		}
	}
	without := parseSmokeStep(t, `real='/e2e/(sdk|state)$'
mapfile -t smoked < <(grep -E "$real|/e2e/chaos$" <<<"$all" | grep -vE '/e2e/(sdk)$')
`)
	if without.runs("e2e/sdk") {
		t.Error("an excluded package runs without a step of its own")
	}
}
