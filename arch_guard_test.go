package tierway

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file is a source of a package with a comment.
func file(pkg, body string) string {
	return "// Package " + pkg + " is made up.\npackage " + pkg + "\n\n" + body
}

// TestTheGuardSees feeds the laws houses that are wrong in one point, and
// expects that complaint and no other.
func TestTheGuardSees(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a sideways import":        {map[string]string{"tiers/a.go": file("tiers", `import _ "tierway/routing"`)}, "tiers imports routing sideways"},
		"an upward import":         {map[string]string{"routing/a.go": file("routing", `import _ "tierway/routing/routingtest"`)}, "routing on floor 0 imports routing/routingtest upward, on floor 1"},
		"a server asked for more":  {map[string]string{"config/a.go": file("config", `import _ "tierway/server"`)}, "config on floor 3 imports server upward"},
		"planes of each other":     {map[string]string{"server/admin/a.go": file("admin", `import _ "tierway/server/proxy"`)}, "server/admin imports server/proxy sideways"},
		"an import of no floor":    {map[string]string{"server/a.go": file("server", `import _ "tierway/attic"`)}, "imports attic, which stands on no floor"},
		"an import of the root":    {map[string]string{"server/a.go": file("server", `import _ "tierway"`)}, "imports ., which stands on no floor"},
		"benches of each other":    {map[string]string{"bench/a/a.go": file("main", `import _ "tierway/bench/b"`)}, "bench/a imports bench/b sideways"},
		"a simulator with sockets": {map[string]string{"sim/a.go": file("sim", `import _ "tierway/workers"`)}, "sim imports workers, which is not pure"},

		"a test library of the house": {map[string]string{"cmd/tierway/a.go": file("main", `import _ "tierway/engines/chaos"`)}, "cmd/tierway imports engines/chaos, which is for tests"},
		"a gateway with a simulator":  {map[string]string{"server/a.go": file("server", `import _ "tierway/sim"`)}, "server imports sim, which is for tests"},

		"a folder without a floor": {map[string]string{"attic/a.go": file("attic", "")}, "attic: the folder has Go files and stands on no floor"},
		"code at the root":         {map[string]string{"a.go": file("tierway", "")}, ".: the folder has Go files"},
		"a folder below another":   {map[string]string{"server/gin/a.go": file("gin", "")}, "server/gin: the folder has Go files"},

		"gin outside the server":        {map[string]string{"config/a.go": file("config", `import _ "github.com/gin-gonic/gin"`)}, "github.com/gin-gonic/gin is imported by config, its home is server"},
		"prometheus outside telemetry":  {map[string]string{"server/a.go": file("server", `import _ "github.com/prometheus/client_golang/prometheus"`)}, "its home is telemetry"},
		"YAML outside config":           {map[string]string{"tiers/a.go": file("tiers", `import _ "go.yaml.in/yaml/v3"`)}, "its home is config"},
		"cobra outside cmd":             {map[string]string{"server/a.go": file("server", `import _ "github.com/spf13/cobra"`)}, "its home is cmd/tierway"},
		"an SDK in the product":         {map[string]string{"openai/a.go": file("openai", `import _ "github.com/openai/openai-go/v3/option"`)}, "its home is e2e, bench"},
		"a test library in the product": {map[string]string{"tiers/a.go": file("tiers", `import _ "pgregory.net/rapid"`)}, "its home is routing/routingtest, e2e, bench"},
		"the OTel SDK":                  {map[string]string{"server/a.go": file("server", `import _ "go.opentelemetry.io/otel/sdk/trace"`)}, "its home is telemetry"},
		"a stranger":                    {map[string]string{"server/a.go": file("server", `import _ "github.com/fine/stranger"`)}, "github.com/fine/stranger has no home"},
		"a name that only begins alike": {map[string]string{"config/a.go": file("config", `import _ "go.yaml.in/yaml/v3x"`)}, "has no home"},
		"x packages in pure ones":       {map[string]string{"tiers/a.go": file("tiers", `import _ "golang.org/x/text/cases"`)}, "golang.org/x/text/cases is imported by tiers"},

		"a pure package with files":       {map[string]string{"tiers/a.go": file("tiers", `import _ "os"`)}, "tiers is pure and imports os"},
		"a pure package with processes":   {map[string]string{"sim/a.go": file("sim", `import _ "os/exec"`)}, "sim is pure and imports os/exec"},
		"a pure package with sockets":     {map[string]string{"queue/a.go": file("queue", `import _ "net"`)}, "queue is pure and imports net"},
		"a pure package with HTTP":        {map[string]string{"routing/a.go": file("routing", `import _ "net/http"`)}, "routing is pure and imports net/http"},
		"a pure package with logs":        {map[string]string{"tiers/a.go": file("tiers", `import _ "log/slog"`)}, "tiers is pure and imports log/slog"},
		"a pure package with chance":      {map[string]string{"routing/a.go": file("routing", `import _ "math/rand/v2"`)}, "routing is pure and imports math/rand/v2"},
		"a pure package with real chance": {map[string]string{"routing/kvindex/a.go": file("kvindex", `import _ "crypto/rand"`)}, "routing/kvindex is pure and imports crypto/rand"},

		"a clock":                {map[string]string{"tiers/a.go": file("tiers", "import \"time\"\n\nfunc f() time.Time { return time.Now() }")}, "tiers/a.go:6: tiers is pure and uses time.Now"},
		"a clock handed on":      {map[string]string{"tiers/a.go": file("tiers", "import \"time\"\n\nfunc f() any { return time.Since }")}, "uses time.Since"},
		"a clock by a new name":  {map[string]string{"tiers/a.go": file("tiers", "import c \"time\"\n\nfunc f() { c.Sleep(1) }")}, "uses time.Sleep"},
		"a clock without a name": {map[string]string{"tiers/a.go": file("tiers", "import . \"time\"\n\nfunc f() { Sleep(1) }")}, "by a dot import"},
		"a timer":                {map[string]string{"queue/a.go": file("queue", "import \"time\"\n\nfunc f() { time.AfterFunc(1, f) }")}, "uses time.AfterFunc"},
		"a goroutine":            {map[string]string{"sim/a.go": file("sim", "func f() { go f() }")}, "sim/a.go:4: sim is pure and starts a goroutine"},
		"a group's goroutine":    {map[string]string{"sim/a.go": file("sim", "import \"sync\"\n\nfunc f(wg *sync.WaitGroup) { wg.Go(func() {}) }")}, "sim is pure and starts a goroutine"},

		"an init":                 {map[string]string{"server/a.go": file("server", "func init() {}")}, "server/a.go:4: no package has an init"},
		"no package comment":      {map[string]string{"server/a.go": "package server\n"}, "server: the package has no comment"},
		"only a directive":        {map[string]string{"server/a.go": "//go:build linux\npackage server\n"}, "server: the package has no comment"},
		"a comment cut off":       {map[string]string{"server/a.go": "// Package server.\n\npackage server\n"}, "server: the package has no comment"},
		"two package comments":    {map[string]string{"server/a.go": file("server", ""), "server/b.go": file("server", "")}, "server: the package has a comment in server/a.go and server/b.go"},
		"no comment in a command": {map[string]string{"cmd/tierway/a.go": "package main\n"}, "cmd/tierway: the package has no comment"},

		"a counter":                    {map[string]string{"server/a.go": file("server", "var n int")}, "server.n is a package variable and neither an error nor a table"},
		"a number that may change":     {map[string]string{"server/a.go": file("server", "var n = 3")}, "server.n is a package variable"},
		"one of several":               {map[string]string{"server/a.go": file("server", "import \"errors\"\n\nvar (\n\terrA = errors.New(\"a\")\n\tn = 3\n)")}, "server/a.go:8: server.n is a package variable"},
		"the second of two":            {map[string]string{"server/a.go": file("server", "var a, b = []int{1}, new(int)")}, "server.b is a package variable"},
		"an empty map":                 {map[string]string{"server/a.go": file("server", "var m map[string]int")}, "server.m is a package variable"},
		"a singleton":                  {map[string]string{"server/a.go": file("server", "type T struct{}\n\nvar t = &T{}")}, "server.t is a package variable"},
		"a lock":                       {map[string]string{"server/a.go": file("server", "import \"sync\"\n\nvar mu sync.Mutex")}, "server.mu is a package variable"},
		"a map for goroutines":         {map[string]string{"server/a.go": file("server", "import \"sync\"\n\nvar m = sync.Map{}")}, "server.m is a package variable"},
		"an atomic":                    {map[string]string{"server/a.go": file("server", "import a \"sync/atomic\"\n\nvar n = a.Int64{}")}, "server.n is a package variable"},
		"a lazy value":                 {map[string]string{"server/a.go": file("server", "import \"sync\"\n\nvar f = sync.OnceValue(func() int { return 1 })")}, "server.f is a package variable"},
		"an error without a value":     {map[string]string{"server/a.go": file("server", "var errLast error")}, "server.errLast is a package variable"},
		"an impostor of errors.New":    {map[string]string{"server/a.go": file("server", "import errors \"strings\"\n\nvar x = errors.New(\"a\")")}, "server.x is a package variable"},
		"an embed without a directive": {map[string]string{"server/a.go": file("server", "import \"embed\"\n\n// go:embed x\nvar files embed.FS")}, "server.files is a package variable"},

		"a table assigned to":        {map[string]string{"server/a.go": file("server", "var m = map[int]int{}\n\nfunc f() { m = nil }")}, "server.m is a table and is written at server/a.go:6"},
		"a table filled":             {map[string]string{"server/a.go": file("server", "var m = map[int]int{}\n\nfunc f() { m[1] = 2 }")}, "server.m is a table and is written"},
		"a table filled elsewhere":   {map[string]string{"server/a.go": file("server", "var m = map[int]int{}"), "server/b.go": "package server\n\nfunc f() { (m)[1]++ }"}, "written at server/b.go:3"},
		"a table of structs":         {map[string]string{"server/a.go": file("server", "var m = []struct{ n int }{{1}}\n\nfunc f() { m[0].n += 2 }")}, "server.m is a table and is written"},
		"a table emptied":            {map[string]string{"server/a.go": file("server", "var m = map[int]int{}\n\nfunc f() { delete(m, 1) }")}, "server.m is a table and is written"},
		"a table ranged into":        {map[string]string{"server/a.go": file("server", "var a = [1]int{}\n\nfunc f() { for _, a[0] = range []int{1} {} }")}, "server.a is a table and is written"},
		"a table's address":          {map[string]string{"server/a.go": file("server", "var a = [1]int{}\n\nfunc f() *int { return &a[0] }")}, "server.a is a table and is written"},
		"a table copied into":        {map[string]string{"server/a.go": file("server", "var a = []int{1}\n\nfunc f() { copy(a[1:], a) }")}, "server.a is a table and is written"},
		"a table that grows":         {map[string]string{"server/a.go": file("server", "var a = []int{1}\n\nfunc f() []int { return append(a, 1) }")}, "server.a is a table and is written"},
		"a table with a method":      {map[string]string{"server/a.go": file("server", "type T struct{ n int }\n\nfunc (t *T) set() { t.n = 1 }\n\nvar v = T{}\n\nfunc f() { v.set() }")}, "server.v is a table and is written at server/a.go:10"},
		"a table written from above": {map[string]string{"tiers/a.go": file("tiers", "var M = map[int]int{}"), "server/a.go": file("server", "import x \"tierway/tiers\"\n\nfunc f() { x.M[1] = 1 }")}, "tiers.M is a table and is written at server/a.go:6"},
		"a table made and written":   {map[string]string{"server/a.go": file("server", "var m = make(map[int]int)\n\nfunc f() { clear(m) }")}, "server.m is a table and is written"},
	} {
		t.Run(name, func(t *testing.T) {
			complaints := judge(t, c.files)
			if len(complaints) != 1 || !strings.Contains(complaints[0], c.want) {
				t.Errorf("the complaints are %q, not one that says %q", complaints, c.want)
			}
		})
	}
}

func TestTheGuardSeesForbiddenNames(t *testing.T) {
	for _, name := range []string{"pkg", "internal", "util", "common", "types", "helpers"} {
		complaints := judge(t, map[string]string{"server/" + name + "/a.go": file(name, "")})
		if !slices.Contains(complaints, "server/"+name+": no folder is called "+name) {
			t.Errorf("%s: the complaints are %q", name, complaints)
		}
	}
}

// TestTheGuardLetsPass feeds the laws what they allow, next to what they forbid.
func TestTheGuardLetsPass(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"imports that go down": {
			"server/proxy/a.go":        file("proxy", "import (\n\t_ \"tierway/config\"\n\t_ \"tierway/workers\"\n\t_ \"github.com/gin-gonic/gin/binding\"\n)"),
			"sim/a.go":                 file("sim", "import _ \"tierway/queue\""),
			"routing/routingtest/a.go": file("routingtest", "import (\n\t_ \"pgregory.net/rapid\"\n\t_ \"tierway/routing\"\n)"),
			"e2e/rig/a.go":             file("rig", "import (\n\t_ \"tierway/engines/chaos\"\n\t_ \"tierway/e2e/gateway\"\n)"),
			"bench/proxy/a.go":         file("main", "import (\n\t_ \"tierway/server\"\n\t_ \"github.com/openai/openai-go/v3\"\n)"),
			"workers/a.go":             file("workers", "import (\n\t_ \"go.opentelemetry.io/otel/trace\"\n\t_ \"golang.org/x/net/http2\"\n\t_ \"math/rand/v2\"\n)"),
		},
		"pure code": {
			"tiers/a.go": file("tiers", "import (\n\t\"net/netip\"\n\t\"sync\"\n\t\"time\"\n)\n\nvar _ netip.Addr\n\ntype T struct{ sync.Mutex }\n\nfunc f(now time.Time) time.Duration { return now.Sub(now.Add(time.Second)) }"),
		},
		"a method and a variable called like the clock": {
			"tiers/a.go": file("tiers", "type clock struct{}\n\nfunc (clock) Now() int { return 0 }\n\nfunc f(time clock) int { return time.Now() }"),
		},
		"init of a type": {"server/a.go": file("server", "type T struct{}\n\nfunc (T) init() {}")},
		"variables without state": {
			"server/a.go": file("server", `import (
	"embed"
	"errors"
	"fmt"
	"io"
	"regexp"
)

type T struct{ n int }

func (t T) get() int { return t.n }

//go:embed x
var files embed.FS

var (
	//go:embed y
	y string

	errA = errors.New("a")
	ErrB = fmt.Errorf("b: %w", errA)
	// ErrC has a type of its own.
	ErrC error = &T{}
	_ io.Reader = (*T)(nil)
	words = [...]string{"a"}
	byName = map[string][]int{"a": {1}}
	shape = regexp.MustCompile("a")
	line = []byte("a")
	table = func() (t [256]bool) { t[1] = true; return t }()
	zero = T{}
)

func f() (string, int) {
	words := []string{words[0]}
	words[0] = "local"
	byName := byName
	byName = nil
	for words[0] = range byName {
	}
	return words[0], zero.get()
}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, complaint := range judge(t, files) {
				t.Error(complaint)
			}
		})
	}
}

// judge returns what the laws have against a house.
func judge(t *testing.T, files map[string]string) (complaints []string) {
	t.Helper()
	house, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range laws() {
		complaints = append(complaints, law(house)...)
	}
	return complaints
}

func TestTheGuardReadsTheModuleAndNothingElse(t *testing.T) {
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
		t.Errorf("it reads %q, want %q", got, want)
	}
}
