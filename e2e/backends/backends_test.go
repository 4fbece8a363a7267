package backends_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tierway/e2e/backends"
)

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }

// refused reports whether the address refuses connections.
func refused(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	c.Close()
	return false
}

// childVariable is set in the child process of TestNothingOutlivesTheTestProgram, which is
// killed.
const childVariable = "TIERWAY_BACKENDS_CHILD"

// TestNothingOutlivesTheTestProgram runs this program as a child that starts
// servers, lets them hang and is killed.
func TestNothingOutlivesTheTestProgram(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		r, p := backends.Redis(t), backends.Postgres(t)
		r.Hang()
		p.Hang()
		fmt.Printf("\naddresses %s %s\n", r.Addr, p.Addr)
		select {}
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+openDir(t))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for lines := bufio.NewScanner(out); addrs == nil && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "addresses "); ok {
			addrs = strings.Fields(rest)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = c.Wait() // it was killed
	if len(addrs) != 2 {
		t.Fatal("the child has started no servers")
	}
	eventually(t, func() bool { return refused(addrs[0]) && refused(addrs[1]) })
}

// openDir returns a folder of the test that every user may enter. It holds the files that the
// killed program leaves behind.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tierway-killed-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("timeout: the condition does not hold")
		}
	}
}
