package checks

import (
	"strings"
	"testing"
)

// testFile returns the source of a test file of package server with imports, each by its path.
func testFile(imports, body string) string {
	text := "package server\n\nimport (\n"
	for path := range strings.FieldsSeq(imports) {
		text += "\t\"" + path + "\"\n"
	}
	return text + ")\n\n" + body
}

// bubble is a test that runs f in virtual time.
const bubble = "func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { f() }) }\n\n"

// TestRealTimeIsReported checks test files with one violation each.
func TestRealTimeIsReported(t *testing.T) {
	for name, c := range map[string]struct{ file, imports, body, want string }{
		"a sleep": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { time.Sleep(1) }", "time.Sleep in real time"},
		"a measurement": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { _ = time.Since(time.Now()) }", "time.Since in real time"},
		"a ticker": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { <-time.NewTicker(1).C }", "time.NewTicker in real time"},
		"a short case": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { select { case <-time.After(29 * time.Second): } }", "time.After in real time"},
		"a wait": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { <-time.After(time.Minute) }", "time.After in real time"},
		"a short bound": {"server/a_test.go", "context testing time",
			"func TestX(t *testing.T) { context.WithTimeout(t.Context(), 5*time.Second) }", "context.WithTimeout ends " +
				"after 5s"},
		"a short deadline": {"server/a_test.go", "context testing time",
			"func TestX(t *testing.T) { context.WithDeadline(t.Context(), time.Now().Add(time.Second)) " +
				"}", "context.WithDeadline ends after 1s"},
		"a bound by name": {"server/a_test.go", "context testing time",
			"const bound = 100 * time.Millisecond\n\n" +
				"func TestX(t *testing.T) { context.WithTimeout(t.Context(), bound) }", "ends after 100ms"},
		"a function of two tests": {"server/a_test.go", "testing testing/synctest time",
			bubble + "func TestY(t *testing.T) { f() }\n\nfunc f() { time.Sleep(1) }", "time.Sleep in real time"},
		"before a bubble": {"server/a_test.go", "testing testing/synctest time",
			"func TestX(t *testing.T) { time.Sleep(1); synctest.Test(t, func(t *testing.T) {}) }", "time.Sleep in real time"},
		"a table without a bubble": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { for _, c := range []struct{ run func() }{{func() { time.Sleep(1) }}} { c.run() } " +
				"}", "time.Sleep in real time"},
		"a port": {"server/a_test.go", "net testing",
			`func TestX(t *testing.T) { net.Listen("tcp", "127.0.0.1:0") }`, "net.Listen listens on a real port"},
		"a port in a bubble": {"server/a_test.go", "net testing testing/synctest",
			bubble + `func f() { net.Listen("tcp", "127.0.0.1:0") }`, "net.Listen listens on a real port"},
		"a server": {"server/a_test.go", "net/http/httptest testing",
			"func TestX(t *testing.T) { httptest.NewServer(nil) }", "httptest.NewServer listens on a real port"},
		"a process": {"server/a_test.go", "os/exec testing",
			`func TestX(t *testing.T) { exec.Command("true") }`, "exec.Command starts a process"},
		"a server of its own": {"server/a_test.go", "testing tierway/e2e/backends",
			"func TestX(t *testing.T) { backends.Redis(t) }", "backends.Redis starts a server"},
		"a random number": {"server/a_test.go", "math/rand/v2 testing",
			"func TestX(t *testing.T) { _ = rand.IntN(2) }", "rand.IntN has a new seed in each run"},
		"a source of numbers": {"server/a_test.go", "math/rand/v2 testing",
			"func TestX(t *testing.T) { f(rand.Uint64) }\n\nfunc f(any) {}", "rand.Uint64 has a new seed"},
		"the clock as a seed": {"server/a_test.go", "math/rand/v2 testing time",
			"func TestX(t *testing.T) { rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) }", "the seed is the time"},
		"rapid without a seed": {"server/a_test.go", "pgregory.net/rapid testing",
			"func TestX(t *testing.T) { rapid.Check(t, func(*rapid.T) {}) }", "the seed of rapid is random"},

		"the clock as a seed by name": {"server/a_test.go", "math/rand/v2 testing time",
			"func TestX(t *testing.T) { seed := uint64(time.Now().UnixNano()); rand.NewPCG(seed, 0) }", "the seed is the time"},
		"a loop until a time": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { for d := time.Now().Add(time.Minute); time.Now().Before(d); { } }",
			"time.Now().Before in real time"},
		"a difference of times": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { b := time.Now(); _ = time.Now().Sub(b) > time.Minute }", "time.Now().Sub in real time"},
		"a deadline of a connection": {"server/a_test.go", "net testing time",
			"func TestX(t *testing.T) { var c net.Conn; c.SetReadDeadline(time.Now().Add(20 * time.Second)) }",
			"a deadline after 20s"},
		"a client with a short Timeout": {"server/a_test.go", "net/http testing time",
			"func TestX(t *testing.T) { _ = http.Client{Timeout: 5 * time.Second} }", "a Timeout of 5s of real time"},
		"a port of TLS": {"server/a_test.go", "crypto/tls testing",
			"func TestX(t *testing.T) { tls.Listen(\"tcp\", \":0\", nil) }", "tls.Listen listens on a real port"},
		"a port of HTTP": {"server/a_test.go", "net/http testing",
			"func TestX(t *testing.T) { http.ListenAndServe(\":0\", nil) }", "http.ListenAndServe listens on a real port"},
		"a port of a configuration": {"server/a_test.go", "net testing",
			"func TestX(t *testing.T) { var c net.ListenConfig; c.Listen(t.Context(), \"tcp\", \":0\") }",
			"net.ListenConfig listens on a real port"},
		"a port of a function value": {"server/a_test.go", "net testing",
			"func TestX(t *testing.T) { listen := net.Listen; listen(\"tcp\", \":0\") }", "net.Listen listens on a real port"},
		"a Redis on a port": {"server/a_test.go", "github.com/alicebob/miniredis/v2 testing",
			"func TestX(t *testing.T) { miniredis.RunT(t) }", "miniredis.RunT listens on a real port"},
		"a port of an engine": {"server/a_test.go", "testing tierway/engines",
			"func TestX(t *testing.T) { engines.Start(nil, \"127.0.0.1:0\") }", "engines.Start listens on a real port"},
		"a process by its fields": {"server/a_test.go", "os/exec testing",
			"func TestX(t *testing.T) { (&exec.Cmd{Path: \"true\"}).Run() }", "exec.Cmd starts a process"},
		"a gateway of its own": {"server/a_test.go", "testing tierway/e2e/gateway",
			"func TestX(t *testing.T) { gateway.Serve(t, \"\") }", "gateway.Serve starts a process"},

		"a short bound with real servers": {"e2e/state/a_test.go", "context testing time",
			"func TestX(t *testing.T) { context.WithTimeout(t.Context(), 5*time.Second) }", "context.WithTimeout of 5s"},
		"a test that a smoke test runs too": {"store/a_test.go", "testing time",
			"func TestSmokeX(t *testing.T) { t.Run(\"y\", TestY) }\n\nfunc TestY(t *testing.T) { time.Sleep(1) }",
			"time.Sleep in real time"},
		"a short case with real servers": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { select { case <-time.After(time.Second): } }", "time.After(1s) in a select"},
		"a short deadline with real servers": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { _ = time.Now().Add(time.Second) }", "a deadline of 1s"},
		"a client with a short Timeout and real servers": {"e2e/state/a_test.go", "net/http testing time",
			"func TestX(t *testing.T) { _ = &http.Client{Timeout: time.Second} }", "a Timeout of 1s"},
		"a client with a Timeout set later": {"e2e/state/a_test.go", "net/http testing time",
			"func TestX(t *testing.T) { c := &http.Client{}; c.Timeout = time.Second }", "a Timeout of 1s"},
		"a short limit": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { if b := time.Now(); time.Since(b) > time.Second { t.Fatal() } }",
			"a comparison with 1s"},
		"a short limit, turned round": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { if b := time.Now(); time.Second <= time.Now().Sub(b) { t.Fatal() } }",
			"a comparison with 1s"},
		"a short limit between two times": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { b := time.Now(); if e := time.Now(); e.Sub(b) > time.Second { t.Fatal() } }",
			"1s: a slow machine misses it"},
		"a loop with a limit": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { for b := time.Now(); time.Since(b) < time.Second; { } }", "a comparison with 1s"},
		"a deadline from a start": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { start := time.Now(); _ = start.Add(time.Second) }", "a deadline of 1s"},
		"a timer with real servers": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { time.NewTimer(time.Second) }", "a timer of 1s"},
		"a case by name": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { end := time.After(time.Second); select { case <-end: } }", "time.After(1s) in a select"},
		"a bound for a function": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { wait(2 * time.Second) }\n\nfunc wait(time.Duration) {}", "the bound 2s of wait"},
		"a bound for rig": {"e2e/state/a_test.go", "testing tierway/e2e/rig time",
			"func TestX(t *testing.T) { rig.Within(t, time.Second, nil) }", "the bound 1s of Within"},
		"a short bound of a smoke test": {"e2e/chaos/a_test.go", "context testing tierway/e2e/rig time",
			"func TestSmokeX(t *testing.T) { rig.RequireBinary(t); f(t) }\n\n" +
				"func f(t *testing.T) { context.WithTimeout(t.Context(), 5*time.Second) }", "context.WithTimeout of 5s"},
		"a test of the binary in a part": {"e2e/chaos/a_test.go", "testing tierway/e2e/rig time",
			"func TestX(t *testing.T) { time.Sleep(1); t.Run(\"y\", func(t *testing.T) { rig.RequireBinary(t) }) }",
			"time.Sleep in real time"},
	} {
		t.Run(name, func(t *testing.T) {
			found := violationsIn(t, c.file, testFile(c.imports, c.body))
			if len(found) != 1 || !strings.Contains(found[0], c.want) {
				t.Errorf("the violations are %q, want one with %q", found, c.want)
			}
		})
	}
}

// TestVirtualTimeIsAccepted checks test files without a violation.
func TestVirtualTimeIsAccepted(t *testing.T) {
	for name, c := range map[string]struct{ file, imports, body string }{
		"a sleep in a bubble": {"server/a_test.go", "testing testing/synctest time",
			"func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }"},
		"a function of a bubble": {"server/a_test.go", "testing testing/synctest time",
			bubble + "func f() { g() }\n\nfunc g() { time.Sleep(1) }"},
		"a function as the bubble": {"server/a_test.go", "testing testing/synctest time",
			"func TestX(t *testing.T) { synctest.Test(t, f) }\n\nfunc f(t *testing.T) { time.Sleep(1) }"},
		"a wrapper": {"server/a_test.go", "testing testing/synctest time",
			"func TestX(t *testing.T) { virtual(t, func() { time.Sleep(1) }) }\n\n" +
				"func virtual(t *testing.T, run func()) { synctest.Test(t, func(*testing.T) { run() }) }"},
		"a method": {"server/a_test.go", "testing testing/synctest time",
			"func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { new(rig).wait() }) }\n\n" +
				"type rig struct{}\n\nfunc (*rig) wait() { time.Sleep(1) }"},
		"a method by an interface": {"server/a_test.go", "io testing testing/synctest time",
			"func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { io.WriteString(slow{}, \"\") }) }\n\n" +
				"type slow struct{}\n\nfunc (slow) Write([]byte) (int, error) { time.Sleep(1); return 0, nil }\n\n" +
				"var _ io.Writer = slow{}"},
		"a table": {"server/a_test.go", "testing testing/synctest time",
			"type row struct{ run func() }\n\nfunc TestX(t *testing.T) { for _, c := range rows() { synctest.Test(t, " +
				"func(*testing.T) { c.run() }) } }\n\n" +
				"func rows() []row { return []row{{func() { time.Sleep(1) }}, {run: func() { time.Sleep(2) }}} }"},
		"a map": {"server/a_test.go", "testing testing/synctest time",
			"func TestX(t *testing.T) { for _, run := range map[string]func(){\"x\": func() { time.Sleep(1) }} { " +
				"synctest.Test(t, func(*testing.T) { run() }) } }"},
		"a benchmark": {"server/a_test.go", "net testing time",
			"func BenchmarkX(b *testing.B) { f() }\n\nfunc f() { time.Sleep(1); net.Listen(\"tcp\", \"127.0.0.1:0\") }"},
		"a smoke test": {"e2e/chaos/a_test.go", "testing time", "func TestSmokeX(t *testing.T) { time.Sleep(1) }"},
		"a test of the binary": {"e2e/chaos/a_test.go", "testing tierway/e2e/rig time",
			"func TestX(t *testing.T) { rig.RequireBinary(t); time.Sleep(1) }"},
		"a test that only make soak runs": {"store/a_test.go", "net testing tierway/e2e/backends time",
			"func TestX(t *testing.T) { backends.RequireSoak(t); f() }\n\n" +
				"func f() { time.Sleep(1); net.Listen(\"tcp\", \"127.0.0.1:0\") }"},
		"a long case": {"server/a_test.go", "testing time",
			"func TestX(t *testing.T) { select { case <-time.After(30 * time.Second): } }"},
		"a long bound": {"server/a_test.go", "context testing time",
			"func TestX(t *testing.T) { context.WithTimeout(t.Context(), time.Minute) }"},
		"a Unix socket": {"server/a_test.go", "net testing",
			"func TestX(t *testing.T) { net.Listen(\"unix\", t.TempDir()) }"},
		"a fixed seed": {"server/a_test.go", "math/rand/v2 testing",
			"func TestX(t *testing.T) { rand.New(rand.NewPCG(1, 2)).IntN(2) }"},
		"rapid": {"server/a_test.go", "pgregory.net/rapid testing tierway/fixedseed",
			"func TestX(t *testing.T) { rapid.Check(t, func(*rapid.T) {}) }"},
		"product code": {"server/a.go", "time net", "func f() { time.Sleep(1); net.Listen(\"tcp\", \":80\") }"},
		"a least time": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { if b := time.Now(); time.Since(b) < time.Second { t.Fatal() } }"},
		"a pause by name": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { pause(time.Second) }\n\nfunc pause(time.Duration) {}"},
		"records of one clock": {"e2e/state/a_test.go", "testing time",
			"func TestX(t *testing.T) { var a, b time.Time; _ = a.Before(b.Add(time.Second)) }"},
		"a pause with real servers": {"e2e/state/a_test.go", "sync testing time",
			"func TestX(t *testing.T) { var wg sync.WaitGroup; wg.Add(1); <-time.After(time.Second) }"},
		"real servers": {"e2e/state/a_test.go", "net os/exec testing time",
			"func TestX(t *testing.T) { time.Sleep(time.Second); exec.Command(\"true\"); net.Listen(\"tcp\", " +
				"\"127.0.0.1:0\"); select { case <-time.After(time.Minute): } }"},
	} {
		t.Run(name, func(t *testing.T) {
			if found := violationsIn(t, c.file, testFile(c.imports, c.body)); len(found) > 0 {
				t.Errorf("the violations are %q, want none", found)
			}
		})
	}
}

// violationsIn returns the violations in one file.
func violationsIn(t *testing.T, name, source string) (found []string) {
	t.Helper()
	packages, err := parseTests(map[string]string{name: source})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		for _, v := range p.violations() {
			found = append(found, v.text)
		}
	}
	return found
}
