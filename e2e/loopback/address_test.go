package loopback_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"tierway/e2e/loopback"
)

// childVariable is set in the child processes of TestNoTwoProcessesHaveTheSameAddress.
const childVariable = "TIERWAY_LOOPBACK_CHILD"

// TestNoTwoProcessesHaveTheSameAddress: processes that run at once get different addresses, and each can
// listen on its addresses, stop and listen again while the others do the same.
func TestNoTwoProcessesHaveTheSameAddress(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		child(t)
		return
	}
	const processes = 16
	owners := map[string]int{}
	var inputs []io.Closer
	var outputs []*bufio.Reader
	for range processes {
		c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		c.Env = append(os.Environ(), childVariable+"=1")
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := c.Wait(); err != nil {
				t.Errorf("a child: %v", err)
			}
		})
		inputs, outputs = append(inputs, in), append(outputs, bufio.NewReader(out))
	}
	for i, out := range outputs {
		line, err := out.ReadString('\n')
		addrs := strings.Fields(line)
		if err != nil || len(addrs) != perChild {
			t.Errorf("child %d wrote %q, %v", i, line, err)
		}
		for _, addr := range addrs {
			if owner, taken := owners[addr]; taken {
				t.Errorf("the children %d and %d have %s", owner, i, addr)
			}
			owners[addr] = i
		}
	}
	for _, in := range inputs {
		in.Close() // the children end
	}
	for _, out := range outputs {
		_, _ = io.Copy(io.Discard, out) // up to the end of the child
	}
}

// perChild is the number of addresses of each child.
const perChild = 50

// child prints its addresses, after a server has started twice on each, and keeps them until its
// input ends.
func child(t *testing.T) {
	var addrs []string
	for range perChild {
		addr, err := loopback.Address()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		addrs = append(addrs, addr)
	}
	fmt.Println(strings.Join(addrs, " "))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestHostIsALoopbackAddress(t *testing.T) {
	host := loopback.Host()
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		t.Errorf("the address of this process is %s", host)
	}
	if runtime.GOOS == "linux" && host == "127.0.0.1" {
		t.Error("this process has claimed no address")
	}
	if again := loopback.Host(); again != host {
		t.Errorf("the address was %s and is %s", host, again)
	}
}
