package gateway

import (
	"strings"
	"testing"
)

// DemoGreeting starts `tierway demo` without --json, as a user does, and returns when the
// whole greeting is printed. Stdout returns the greeting.
func DemoGreeting(t testing.TB) *Process {
	t.Helper()
	p := run(t, nil, "demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p.WaitFor("the greeting", func() bool { return strings.Contains(p.out.String(), "Ctrl-C") })
	return p
}

// Stdout returns what the gateway has written to standard output.
func (p *Process) Stdout() string { return p.out.String() }
