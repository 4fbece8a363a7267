package gateway

import (
	"strings"
	"testing"
)

// Greeting starts `tierway demo` as a person does and returns when the whole
// greeting was printed; Printed returns it.
func Greeting(t testing.TB) *Process {
	t.Helper()
	p := run(t, nil, "demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p.Until("the greeting", func() bool { return strings.Contains(p.out.String(), "Ctrl-C") })
	return p
}

// Printed returns what the gateway wrote to standard output so far.
func (p *Process) Printed() string { return p.out.String() }
