package events

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tierway/engines"
	"tierway/engines/zmq"
	"tierway/workers/zmtp"
)

// TestSmokeLibzmqReadsWhatSimulatedEnginesPublish reads the sockets of simulated engines with a SUB and
// a DEALER of libzmq.
func TestSmokeLibzmqReadsWhatSimulatedEnginesPublish(t *testing.T) {
	p, err := zmq.Publish(context.Background(), zmtp.Network{}, "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e := engines.New(engines.Config{Model: "m", CacheTokens: 1000})
	defer e.Close()
	router := zmqAddress(t)
	if err := e.PublishEvents(context.Background(), "tcp://127.0.0.1:0", router); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python(t), "subscriber.py", zmq.Endpoint(p.Addr()), "kv", router)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatalf("%v: run `make deps` first", err)
	}
	defer func() {
		c.Process.Kill() // it may have ended
		c.Wait()         // it was killed
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for first := ""; first == ""; {
		p.Send([]byte("other"), []byte("never"))
		p.Send([]byte("kv-events"), []byte("first"))
		select {
		case first = <-lines:
		case <-tick.C:
		}
	}
	p.Send([]byte("kv-events"), []byte(strings.Repeat("long", 100)))
	p.Send([]byte("kv-events"), []byte("last"))
	var rest []string
	for line := range lines {
		rest = append(rest, line)
	}
	const topic, last = "6b762d6576656e7473", "6c617374" // kv-events, last
	for i, line := range rest {
		parts := strings.Fields(line)
		switch {
		case i == len(rest)-1:
			if line != "- - ffffffffffffffff -" {
				t.Errorf("the end of the replay is %s", line)
			}
		case len(parts) != 2 || parts[0] != topic:
			t.Errorf("received %s", line)
		}
	}
	if n := len(rest); n < 3 || rest[n-2] != topic+" "+last || rest[n-3] != topic+" "+strings.Repeat("6c6f6e67", 100) {
		t.Errorf("received %q, which does not end with the last messages", rest)
	}
}
