package checks

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTestsDependOnNoClock verifies that no test of the gate can fail because the machine is slow. The
// rules are in the section "Tests" of CONTRIBUTING.md.
func TestTestsDependOnNoClock(t *testing.T) {
	packages, err := moduleTests()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range packages {
		for _, v := range p.violations() {
			if slices.Contains(exceptions()[v.file].rules, v.rule) {
				used[v.file+" "+v.rule] = true
				continue
			}
			t.Errorf("%s:%d: %s; see Tests in CONTRIBUTING.md", v.file, v.line, v.text)
		}
	}
	for file, e := range exceptions() {
		for _, rule := range e.rules {
			if !used[file+" "+rule] {
				t.Errorf("%s keeps the rule %s: remove its exception", file, rule)
			}
		}
	}
}

// shortest is the smallest bound in real time. A busy machine can stop a process for seconds.
const shortest = 30 * time.Second

// realTime returns the packages that test the binary with real servers. Of these, make test runs the tests
// TestSmoke…, and make soak all tests.
func realTime() []string {
	return []string{
		"e2e/backends", "e2e/browser", "e2e/docs", "e2e/events", "e2e/gateway", "e2e/kvaware", "e2e/loopback",
		"e2e/sdk", "e2e/state",
		"e2e/traces", "e2e/vllm", "e2e/watch",
	}
}

// exception has the rules that a file cannot keep, and the reason.
type exception struct {
	rules  []string
	reason string
}

// exceptions returns the exceptions by file.
func exceptions() map[string]exception {
	system, bounds, clock, both := []string{"system"}, []string{"bounds"}, []string{"clock"}, []string{"clock", "system"}
	const sockets = "the simulated engines serve sockets"
	return map[string]exception{
		"bench/proxy/proxy_test.go":            {system, "the load generator connects by address"},
		"cmd/tierway/network_test.go":          {both, "commands connect by URL and open their own listeners"},
		"e2e/chaos/breaker_test.go":            {system, "a smoke test kills an engine, which is a process"},
		"e2e/kvaware/replay_test.go":           {bounds, "it sends a recorded trace at its times"},
		"e2e/vllm/stopped_test.go":             {bounds, "the law is about clients with a deadline"},
		"engines/chaos/handler_test.go":        {system, sockets},
		"engines/engine_test.go":               {system, sockets},
		"engines/serve_test.go":                {system, sockets},
		"http1/fake_test.go":                   {system, "the kernel's socket shows the end of a connection"},
		"routing/laws_broken_test.go":          {system, "a broken law fails its test, so the test runs in its own process"},
		"server/admin_doc_test.go":             {system, "it runs the examples of the documents with curl"},
		"server/control/rig_test.go":           {clock, "in virtual time a check and a suspicion have no order"},
		"server/reserved_test.go":              {system, "it reserves addresses of the kernel"},
		"workers/prompttokens/example_test.go": {system, sockets},
		"workers/prompttokens/rig_test.go":     {system, sockets},
	}
}

// violation is one place that breaks a rule.
type violation struct {
	file string
	line int
	rule string // clock, system (ports and processes), bounds or seeds
	text string
}

// reporter records that a node breaks a rule.
type reporter func(n ast.Node, format string, args ...any)

// testPackage is the type-checked source of one package with its tests. Imported packages are empty to the
// type checker.
type testPackage struct {
	folder string
	fset   *token.FileSet
	files  map[string]*ast.File // by path
	info   *types.Info

	virtual *virtualTime          // code that runs in bubbles, in benchmarks or with the binary
	exempt  *virtualTime          // code that runs in benchmarks or with the binary
	clocked map[types.Object]bool // variables that hold a time of the clock
	smoke   map[types.Object]bool // functions that smoke tests run
}

// moduleTests returns the packages of the module that have tests.
var moduleTests = sync.OnceValues(func() ([]*testPackage, error) {
	files, err := goFiles(".", func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	return parseTests(files)
})

// parseTests parses sources, given by their paths, and returns each package that has tests. Tests in
// package x_test form a package of their own.
func parseTests(sources map[string]string) (packages []*testPackage, err error) {
	fset := token.NewFileSet()
	byName := map[string]*testPackage{}
	for _, name := range sorted(sources) {
		file, err := parser.ParseFile(fset, name, sources[name], parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing the module: %w", err)
		}
		key := path.Dir(name) + " " + file.Name.Name
		if byName[key] == nil {
			byName[key] = &testPackage{folder: path.Dir(name), fset: fset, files: map[string]*ast.File{}}
		}
		byName[key].files[name] = file
	}
	for _, key := range sorted(byName) {
		p := byName[key]
		if !slices.ContainsFunc(sorted(p.files), isTest) {
			continue
		}
		var files []*ast.File
		for _, name := range sorted(p.files) {
			files = append(files, p.files[name])
		}
		p.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
			Types: map[ast.Expr]types.TypeAndValue{}}
		config := types.Config{Importer: durations{}, Error: func(error) {}}
		config.Check(p.folder, fset, files, p.info) // names of other packages are unknown
		p.virtual, p.exempt = newVirtualTime(p, bubbles()), newVirtualTime(p, nil)
		p.clocked = p.timesOfClock()
		p.smoke = p.virtual.reached("TestSmoke")
		packages = append(packages, p)
	}
	return packages, nil
}

// durations imports package time with its units, so that constant durations can be computed, and every
// other package as an empty one.
type durations struct{}

// Import returns the package of a path.
func (durations) Import(at string) (*types.Package, error) {
	p, err := hollow{}.Import(at)
	if at != "time" || err != nil {
		return p, err
	}
	duration := types.NewNamed(types.NewTypeName(token.NoPos, p, "Duration", nil), types.Typ[types.Int64], nil)
	p.Scope().Insert(duration.Obj())
	for name, unit := range map[string]time.Duration{"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond,
		"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour} {
		p.Scope().Insert(types.NewConst(token.NoPos, p, name, duration, constant.MakeInt64(int64(unit))))
	}
	return p, nil
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// violations returns all places in the package's tests that break a rule.
func (p *testPackage) violations() (all []violation) {
	report := func(rule string) reporter {
		return func(n ast.Node, format string, args ...any) {
			at := p.fset.Position(n.Pos())
			all = append(all, violation{at.Filename, at.Line, rule, fmt.Sprintf(format, args...)})
		}
	}
	real := slices.Contains(realTime(), p.folder)
	var rapid *ast.ImportSpec
	fixed := false
	for _, name := range sorted(p.files) {
		file := p.files[name]
		for _, spec := range file.Imports {
			switch imported, err := strconv.Unquote(spec.Path.Value); {
			case err != nil:
			case imported == "pgregory.net/rapid" && isTest(name):
				rapid = spec
			case imported == module+"/fixedseed":
				fixed = true
			}
		}
		if !isTest(name) {
			continue
		}
		visit(file, func(n ast.Node, parents []ast.Node) {
			p.checkRandom(n, report("seeds"))
			if path := append(slices.Clone(parents), n); real || p.smoke[p.virtual.owner(path)] && !p.virtual.inBubble(path) {
				p.checkBound(n, parents, report("bounds"))
			}
			if real {
				return
			}
			unless := func(exempt *virtualTime, rule string) reporter {
				return func(n ast.Node, format string, args ...any) {
					if !exempt.covers(append(slices.Clone(parents), n)) {
						report(rule)(n, format, args...)
					}
				}
			}
			p.checkProcesses(n, parents, unless(p.exempt, "system"))
			p.checkClock(n, parents, unless(p.virtual, "clock"))
		})
	}
	if rapid != nil && !fixed && p.folder != "fixedseed" {
		report("seeds")(rapid, `the seed of rapid is random: import _ "tierway/fixedseed"`)
	}
	return all
}

// checkClock reports a wait or a measurement in real time, and a bound that a slow machine misses.
func (p *testPackage) checkClock(n ast.Node, parents []ast.Node, report reporter) {
	clock := []string{"Sleep", "After", "NewTimer", "Tick", "Since", "AfterFunc", "NewTicker"}
	if name := p.used(n, "time"); slices.Contains(clock, name) && !p.isLongCase(n, parents) {
		report(n, "time.%s in real time: run the test in synctest.Test, and call synctest.Wait there instead of polling",
			name)
	}
	if call, bound, ok := p.contextBound(n); ok {
		report(n, "context.%s ends after %v of real time: run the test in synctest.Test, or use t.Context()", call, bound)
	}
	if bound, ok := p.timeoutField(n); ok {
		report(n, "a Timeout of %v of real time: run the test in synctest.Test, or use at least %v", bound, shortest)
	}
	compares := []string{"Before", "After", "Sub"}
	if s, ok := n.(*ast.SelectorExpr); ok && p.isNow(s.X) && slices.Contains(compares, s.Sel.Name) {
		report(n, "time.Now().%s in real time: run the test in synctest.Test", s.Sel.Name)
	}
	if bound, ok := p.connectionDeadline(n); ok {
		report(n, "a deadline after %v of real time: run the test in synctest.Test, or use at least %v", bound, shortest)
	}
}

// connectionDeadline returns the bound if a node sets a short deadline of a connection.
func (p *testPackage) connectionDeadline(n ast.Node) (time.Duration, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return 0, false
	}
	sets := func(name string) bool { return isMethod(call.Fun, name) }
	if !slices.ContainsFunc([]string{"SetDeadline", "SetReadDeadline", "SetWriteDeadline"}, sets) {
		return 0, false
	}
	add, ok := call.Args[0].(*ast.CallExpr)
	if !ok || !isMethod(add.Fun, "Add") || len(add.Args) != 1 {
		return 0, false
	}
	return p.short(add.Args[0])
}

// isNow reports whether an expression is time.Now().
func (p *testPackage) isNow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && p.used(call.Fun, "time") == "Now"
}

// isLongCase reports whether a node is the time.After of a case of select with a bound of at least 30 s.
func (p *testPackage) isLongCase(n ast.Node, parents []ast.Node) bool {
	if len(parents) < 4 || p.used(n, "time") != "After" {
		return false
	}
	call, ok := parents[len(parents)-1].(*ast.CallExpr)
	if _, inSelect := parents[len(parents)-4].(*ast.CommClause); !ok || !inSelect || len(call.Args) != 1 {
		return false
	}
	_, short := p.short(call.Args[0])
	return p.info.Types[call.Args[0]].Value != nil && !short
}

// checkBound reports a bound in a test with real servers that is shorter than 30 s.
func (p *testPackage) checkBound(n ast.Node, parents []ast.Node, report reporter) {
	tooShort := func(what string, bound time.Duration) { // what has one verb, for the bound
		report(n, what+": a slow machine misses it, use at least %v", bound, shortest)
	}
	if call, bound, ok := p.contextBound(n); ok {
		tooShort("context."+call+" of %v", bound)
	}
	if bound, ok := p.timeoutField(n); ok {
		tooShort("a Timeout of %v", bound)
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		if name, bound, ok := p.passedBound(n); ok {
			tooShort("the bound %v of "+name, bound)
		}
		if len(n.Args) != 1 {
			return
		}
		bound, ok := p.short(n.Args[0])
		if !ok {
			return
		}
		switch name := p.used(n.Fun, "time"); {
		case name == "After" && isBound(parents):
			tooShort("time.After(%v) in a select", bound)
		case name == "NewTimer":
			tooShort("a timer of %v", bound)
		case p.isDuration(n.Args[0]) && isMethod(n.Fun, "Add") && !p.comparesRecords(parents):
			tooShort("a deadline of %v", bound)
		}
	case *ast.BinaryExpr:
		if bound, ok := p.tookLonger(n, parents); ok {
			tooShort("a comparison with %v", bound)
		}
	}
}

// isBound reports whether the value of a call is received in a case of select, or is kept for one.
func isBound(parents []ast.Node) bool {
	if _, inSelect := parents[max(0, len(parents)-3)].(*ast.CommClause); inSelect {
		return true
	}
	_, assigned := parents[len(parents)-1].(*ast.AssignStmt)
	return assigned
}

// comparesRecords reports whether a call is the argument of a method Before or After of a time other than time.Now().
func (p *testPackage) comparesRecords(parents []ast.Node) bool {
	call, ok := parents[len(parents)-1].(*ast.CallExpr)
	if !ok || !isMethod(call.Fun, "Before") && !isMethod(call.Fun, "After") {
		return false
	}
	return !p.isNow(call.Fun.(*ast.SelectorExpr).X)
}

// passedBound returns a function of the package, or of rig, and a short constant duration that a call passes to it.
// A function pause only waits.
func (p *testPackage) passedBound(call *ast.CallExpr) (name string, bound time.Duration, ok bool) {
	var id *ast.Ident
	switch called := call.Fun.(type) {
	case *ast.Ident:
		id = called
	case *ast.SelectorExpr:
		id = called.Sel
	default:
		return "", 0, false
	}
	_, ours := p.info.Uses[id].(*types.Func)
	if id.Name == "pause" || !ours && p.used(call.Fun, module+"/e2e/rig") != "Within" {
		return "", 0, false
	}
	for _, argument := range call.Args {
		if bound, ok = p.short(argument); ok && p.isDuration(argument) {
			return id.Name, bound, true
		}
	}
	return "", 0, false
}

// isMethod reports whether a called expression selects name.
func isMethod(called ast.Expr, name string) bool {
	s, ok := called.(*ast.SelectorExpr)
	return ok && s.Sel.Name == name
}

// isDuration reports whether the type of an expression is time.Duration.
func (p *testPackage) isDuration(e ast.Expr) bool {
	named, ok := p.info.Types[e].Type.(*types.Named)
	return ok && named.Obj().Name() == "Duration" && named.Obj().Pkg().Path() == "time"
}

// timeoutField returns the value of a short Timeout that a literal or an assignment gives to a client.
func (p *testPackage) timeoutField(n ast.Node) (bound time.Duration, ok bool) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if p.used(n.Type, "net/http") != "Client" && p.used(n.Type, "net") != "Dialer" {
			return 0, false
		}
		for _, e := range n.Elts {
			field, isField := e.(*ast.KeyValueExpr)
			if !isField {
				continue
			}
			if key, isName := field.Key.(*ast.Ident); isName && key.Name == "Timeout" {
				return p.short(field.Value)
			}
		}
	case *ast.AssignStmt:
		if len(n.Lhs) == 1 && isMethod(n.Lhs[0], "Timeout") {
			return p.short(n.Rhs[0])
		}
	}
	return 0, false
}

// tookLonger returns the bound of a comparison that fails a test, or ends a loop, if too much time has passed. Other
// comparisons require a minimum, which a slow machine meets.
func (p *testPackage) tookLonger(n *ast.BinaryExpr, parents []ast.Node) (time.Duration, bool) {
	x, y, op := n.X, n.Y, n.Op
	if p.isElapsed(y) {
		x, y = y, x
		op = map[token.Token]token.Token{token.LSS: token.GTR, token.LEQ: token.GEQ, token.GTR: token.LSS,
			token.GEQ: token.LEQ}[op]
	}
	_, inLoop := parents[len(parents)-1].(*ast.ForStmt)
	wanted := op == token.GTR || op == token.GEQ || inLoop && (op == token.LSS || op == token.LEQ)
	if !p.isElapsed(x) || !wanted {
		return 0, false
	}
	return p.short(y)
}

// isElapsed reports whether an expression is time.Since, or Sub of time.Now() or of a variable that holds a time of the
// clock.
func (p *testPackage) isElapsed(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	if p.used(call.Fun, "time") == "Since" {
		return true
	}
	sub, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sub.Sel.Name != "Sub" {
		return false
	}
	id, named := sub.X.(*ast.Ident)
	return p.isNow(sub.X) || named && p.clocked[p.info.Uses[id]]
}

// checkProcesses reports a listener of the kernel and a process.
func (p *testPackage) checkProcesses(n ast.Node, parents []ast.Node, report reporter) {
	if name := p.listens(n); name != "" && !isUnix(n, parents) {
		report(n, "%s listens on a real port: use memnet in synctest.Test", name)
	}
	if name := p.used(n, module+"/e2e/backends"); servers(name) {
		report(n, "backends.%s starts a server: use memnet/memredis or SQLite, or move the test to e2e/state", name)
	}
	if literal, ok := n.(*ast.CompositeLit); ok && p.used(literal.Type, "os/exec") == "Cmd" {
		report(n, "exec.Cmd starts a process: call the function in the test's process, or move the test to e2e/")
	}
	for from, names := range map[string][]string{
		"os/exec":               {"Command", "CommandContext"},
		"os":                    {"StartProcess"},
		module + "/e2e/gateway": {"Demo", "DemoGreeting", "Serve", "Start", "StartAt", "StartCommand", "RunCommand"},
	} {
		if name := p.used(n, from); slices.Contains(names, name) {
			report(n, "%s.%s starts a process: call the function in the test's process, or move the test to e2e/",
				path.Base(from), name)
		}
	}
}

// listens returns the name of a function or a type if a node uses one that listens on a port of the kernel.
func (p *testPackage) listens(n ast.Node) string {
	if id, ok := n.(*ast.Ident); ok && p.folder == "engines" && id.Name == "Start" && p.info.Uses[id] != nil {
		return "engines.Start"
	}
	for from, names := range map[string][]string{
		"net":                              {"Listen", "ListenConfig", "ListenPacket", "ListenTCP", "ListenUDP", "ListenUnix"},
		"crypto/tls":                       {"Listen"},
		"net/http":                         {"ListenAndServe", "ListenAndServeTLS"},
		"net/http/httptest":                {"NewServer", "NewTLSServer", "NewUnstartedServer"},
		"github.com/alicebob/miniredis/v2": {"Run", "RunT", "RunTLS"},
		module + "/engines":                {"Start"},
	} {
		if name := p.used(n, from); slices.Contains(names, name) {
			return path.Base(strings.TrimSuffix(from, "/v2")) + "." + name
		}
	}
	return ""
}

// servers reports whether a function of e2e/backends starts a server.
func servers(name string) bool {
	return slices.Contains([]string{"Redis", "RedisCluster", "Postgres", "Database", "Nginx", "HAProxy"}, name)
}

// isUnix reports whether a node is the function of a listen call on a Unix socket, which no other process can take.
func isUnix(n ast.Node, parents []ast.Node) bool {
	call, ok := parents[len(parents)-1].(*ast.CallExpr)
	if !ok || call.Fun != n || len(call.Args) == 0 {
		return false
	}
	network, ok := call.Args[0].(*ast.BasicLit)
	return ok && network.Value == `"unix"`
}

// checkRandom reports random numbers that differ from run to run.
func (p *testPackage) checkRandom(n ast.Node, report reporter) {
	fixed := []string{"", "New", "NewPCG", "NewChaCha8", "NewZipf", "NewSource", "Rand", "Source", "PCG", "ChaCha8",
		"Zipf"}
	for _, from := range []string{"math/rand", "math/rand/v2"} {
		if name := p.used(n, from); !slices.Contains(fixed, name) {
			report(n, "rand.%s has a new seed in each run: use rand.New(rand.NewPCG(1, 2)) or fixedseed", name)
		}
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return
	}
	seeds := p.used(call.Fun, "math/rand/v2") + p.used(call.Fun, "math/rand")
	if seeds != "NewPCG" && seeds != "NewSource" && seeds != "NewChaCha8" {
		return
	}
	for _, argument := range call.Args {
		ast.Inspect(argument, func(n ast.Node) bool {
			id, isName := n.(*ast.Ident)
			if n != nil && p.used(n, "time") == "Now" || isName && p.clocked[p.info.Uses[id]] {
				report(n, "the seed is the time: use a constant")
			}
			return true
		})
	}
}

// timesOfClock returns the variables of the package whose value is computed from time.Now.
func (p *testPackage) timesOfClock() map[types.Object]bool {
	all := map[types.Object]bool{}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			var names, values []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				names, values = n.Lhs, n.Rhs
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names = append(names, name)
				}
				values = n.Values
			}
			if len(names) != len(values) {
				return true
			}
			for i, value := range values {
				id, ok := names[i].(*ast.Ident)
				if !ok || !p.readsClock(value) {
					continue
				}
				if object := p.info.ObjectOf(id); object != nil {
					all[object] = true
				}
			}
			return true
		})
	}
	return all
}

// readsClock reports whether an expression has a call of time.Now.
func (p *testPackage) readsClock(e ast.Expr) (reads bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		reads = reads || n != nil && p.used(n, "time") == "Now"
		return !reads
	})
	return reads
}

// contextBound returns the function and the bound if a node calls a function of package context with a
// constant bound under 30 s.
func (p *testPackage) contextBound(n ast.Node) (name string, bound time.Duration, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall || len(call.Args) < 2 {
		return "", 0, false
	}
	name = p.used(call.Fun, "context")
	if !strings.HasPrefix(name, "WithTimeout") && !strings.HasPrefix(name, "WithDeadline") {
		return "", 0, false
	}
	at := call.Args[1]
	if add, isCall := at.(*ast.CallExpr); isCall && strings.HasPrefix(name, "WithDeadline") && len(add.Args) == 1 {
		at = add.Args[0] // of time.Now().Add
	}
	bound, ok = p.short(at)
	return name, bound, ok
}

// short returns the value of a constant duration above 0 and under 30 s.
func (p *testPackage) short(e ast.Expr) (time.Duration, bool) {
	value := p.info.Types[e].Value
	if value == nil {
		return 0, false
	}
	n, exact := constant.Int64Val(constant.ToInt(value))
	return time.Duration(n), exact && n > 0 && time.Duration(n) < shortest
}

// used returns the name that a node selects from an imported package, or "".
func (p *testPackage) used(n ast.Node, imported string) string {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	if name, ok := p.info.Uses[x].(*types.PkgName); !ok || name.Imported().Path() != imported {
		return ""
	}
	return s.Sel.Name
}

// visit calls f for each node below root with its parents, outermost first.
func visit(root ast.Node, f func(n ast.Node, parents []ast.Node)) {
	var parents []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			parents = parents[:len(parents)-1]
			return true
		}
		f(n, parents)
		parents = append(parents, n)
		return true
	})
}
