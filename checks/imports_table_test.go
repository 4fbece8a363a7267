package checks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file returns the source of a package with a package comment.
func file(pkg, body string) string {
	return "// Package " + pkg + " is made up.\npackage " + pkg + "\n\n" + body
}

// TestImportRulesReportEachViolation checks source trees with one violation each. The rules must report
// exactly this violation.
func TestImportRulesReportEachViolation(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a sideways import": {map[string]string{"tiers/a.go": file("tiers", `import _ "tierway/routing"`)},
			"tiers imports routing sideways"},
		"an upward import": {map[string]string{"routing/a.go": file("routing",
			`import _ "tierway/queue"`)}, "routing in layer 0 imports queue upward, in layer 1"},
		"config imports server": {map[string]string{"config/a.go": file("config", `import _ "tierway/server"`)},
			"config in layer 3 imports server upward"},
		"a plane imports the other plane": {map[string]string{"server/admin/a.go": file("admin",
			`import _ "tierway/server/proxy"`)},
			"server/admin imports server/proxy sideways"},
		"an import in no layer": {map[string]string{"server/a.go": file("server", `import _ "tierway/attic"`)},
			"imports attic, which is in no layer"},
		"an import of the root": {map[string]string{"server/a.go": file("server", `import _ "tierway"`)},
			"imports ., which is in no layer"},
		"a benchmark imports another": {map[string]string{"bench/a/a.go": file("main", `import _ "tierway/bench/b"`)},
			"bench/a imports bench/b sideways"},
		"a simulator with sockets": {map[string]string{"sim/a.go": file("sim", `import _ "tierway/workers"`)},
			"sim imports workers, which is not pure"},

		"a test package": {map[string]string{"cmd/tierway/a.go": file("main",
			`import _ "tierway/engines/chaos"`)}, "cmd/tierway imports engines/chaos, which is for tests"},
		"a gateway on a test network": {map[string]string{"server/a.go": file("server", `import _ "tierway/memnet"`)},
			"server imports memnet, which is for tests"},
		"a gateway with a fixed seed": {map[string]string{"server/a.go": file("server", `import _ "tierway/fixedseed"`)},
			"server imports fixedseed, which is for tests"},
		"a gateway with a simulator": {map[string]string{"server/a.go": file("server", `import _ "tierway/sim"`)},
			"server imports sim, which is a simulator"},

		"a folder without a layer": {map[string]string{"attic/a.go": file("attic", "")},
			"attic: the folder has Go files and is in no layer"},
		"code at the root": {map[string]string{"a.go": file("tierway", "const a = 1")}, ".: the folder has Go files"},
		"a folder below another": {map[string]string{"server/gin/a.go": file("gin", "")},
			"server/gin: the folder has Go files"},

		"a clock": {map[string]string{"tiers/a.go": file("tiers", "import \"time\"\n\nfunc f() time.Time { "+
			"return time.Now() }")}, "tiers/a.go:6: tiers is pure and uses time.Now"},
		"a clock handed on": {map[string]string{"tiers/a.go": file("tiers", "import \"time\"\n\nfunc f() any { return "+
			"time.Since }")}, "uses time.Since"},
		"a clock by a new name": {map[string]string{"tiers/a.go": file("tiers", "import c \"time\"\n\nfunc f() { "+
			"c.Sleep(1) }")}, "uses time.Sleep"},
		"a clock without a name": {map[string]string{"tiers/a.go": file("tiers",
			"import . \"time\"\n\nfunc f() { Sleep(1) }")}, "by a dot import"},
		"a timer": {map[string]string{"queue/a.go": file("queue", "import \"time\"\n\nfunc f() { "+
			"time.AfterFunc(1, f) }")}, "uses time.AfterFunc"},
		"a goroutine": {map[string]string{"sim/a.go": file("sim", "func f() { go f() }")},
			"sim/a.go:4: sim is pure and starts a goroutine"},
		"a group's goroutine": {map[string]string{"sim/a.go": file("sim", "import \"sync\"\n\nfunc f(wg "+
			"*sync.WaitGroup) { wg.Go(func() {}) }")}, "sim is pure and starts a goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			violations := violationsOf(t, c.files)
			if len(violations) != 1 || !strings.Contains(violations[0], c.want) {
				t.Errorf("the violations are %q, want one with %q", violations, c.want)
			}
		})
	}
}

func TestImportRulesReportForbiddenNames(t *testing.T) {
	for _, name := range []string{"pkg", "internal", "util", "common", "types", "helpers"} {
		violations := violationsOf(t, map[string]string{"server/" + name + "/a.go": file(name, "")})
		if !slices.Contains(violations, "server/"+name+": no folder is called "+name) {
			t.Errorf("%s: the violations are %q", name, violations)
		}
	}
}

// TestImportRulesAcceptAllowedCode checks code that is similar to violations and allowed.
func TestImportRulesAcceptAllowedCode(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"downward imports": {
			"server/proxy/a.go": file("proxy",
				"import (\n\t_ \"tierway/config\"\n\t_ \"tierway/workers\"\n\t_ \"github.com/gin-gonic/gin/binding\"\n)"),
			"sim/a.go":            file("sim", "import _ \"tierway/queue\""),
			"sim/comparison/a.go": file("comparison", "import _ \"tierway/sim\""),
			"cmd/tierway/a.go":    file("main", "import _ \"tierway/sim/comparison\""),
			"e2e/rig/a.go":        file("rig", "import (\n\t_ \"tierway/engines/chaos\"\n\t_ \"tierway/e2e/gateway\"\n)"),
			"bench/proxy/a.go": file("main",
				"import (\n\t_ \"tierway/bench/processes\"\n\t_ \"tierway/e2e/backends\"\n\t_ \"tierway/server\"\n\t_ "+
					"\"github.com/openai/openai-go/v3\"\n)"),
			"workers/a.go": file("workers",
				"import (\n\t_ \"go.opentelemetry.io/otel/trace\"\n\t_ \"golang.org/x/net/http2\"\n\t_ \"math/rand/v2\"\n)"),
		},
		"pure code": {
			"tiers/a.go": file("tiers", "import (\n\t\"net/netip\"\n\t\"sync\"\n\t\"time\"\n)\n\nvar _ netip.Addr\n\ntype T "+
				"struct{ sync.Mutex }\n\nfunc f(now time.Time) time.Duration { return now.Sub(now.Add(time.Second)) }"),
		},
		"a method and a variable with the name of the clock": {
			"tiers/a.go": file("tiers",
				"type clock struct{}\n\nfunc (clock) Now() int { return 0 }\n\nfunc f(time clock) int { return time.Now() }"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, violation := range violationsOf(t, files) {
				t.Error(violation)
			}
		})
	}
}

// violationsOf returns the violations of all rules in a source tree.
func violationsOf(t *testing.T, files map[string]string) (violations []string) {
	t.Helper()
	parsed, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range importRules() {
		violations = append(violations, rule(parsed)...)
	}
	return violations
}

func TestImportRulesReadOnlyTheModule(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"go.mod", "server/a.go", "server/a_test.go", "server/testdata/b.go", "server/readme.md", "e2e/sdk/c.go",
		"other/go.mod", "other/d.go", "other/deep/e.go", ".git/f.go", "vendor/g.go", "web/ui/node_modules/h.go",
	} {
		at := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("package x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := sources(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sorted(files), []string{"e2e/sdk/c.go", "server/a.go"}; !slices.Equal(got, want) {
		t.Errorf("the files are %q, want %q", got, want)
	}
}
