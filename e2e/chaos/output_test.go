package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// piped is a gateway with pipes to the test as standard output and standard error.
type piped struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, err  *os.File // reading ends
	data      string
	admin     string
	ended     chan error
	client    *http.Client
	errReader sync.WaitGroup
}

// newPiped starts a gateway in front of one engine.
func newPiped(t *testing.T) *piped {
	t.Helper()
	w := newWorker(t, "w0", engines.Config{})
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	yaml := rig.Settings{"auth": `{ required: false }`, "health": `{ path: "off" }`,
		"drain": `{ accept_grace: 1ms, timeout: 5s }`,
		"store": `{ sql: "" }`, "tiers": tiers([]*rig.Worker{w})}
	if err := os.WriteFile(file, []byte(yaml.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &piped{t: t, ended: make(chan error, 1), client: &http.Client{Timeout: rig.Patience}}
	p.cmd = exec.Command(gateway.Binary(t), "serve", "-c", file, "--listen", "127.0.0.1:0", "--admin-listen",
		"127.0.0.1:0")
	p.cmd.Dir = dir
	var outEnd, errEnd *os.File
	var err error
	if p.out, outEnd, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if p.err, errEnd, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = outEnd, errEnd
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outEnd.Close()
	errEnd.Close()
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		p.out.Close()
		p.err.Close()
		p.errReader.Wait()
		p.client.CloseIdleConnections()
	})
	p.readAddresses()
	return p
}

// readAddresses reads the addresses from the log.
func (p *piped) readAddresses() {
	p.t.Helper()
	r := bufio.NewReader(p.err)
	for p.data == "" {
		line, err := r.ReadString('\n')
		if err != nil {
			p.t.Fatalf("reading the log: %v", err)
		}
		if _, rest, ok := strings.Cut(line, `"data":"`); ok {
			p.data, rest, _ = strings.Cut(rest, `","admin":"`)
			p.admin, _, _ = strings.Cut(rest, `"`)
		}
	}
}

// readErr reads the log in the background, so that it never stalls.
func (p *piped) readErr() { p.errReader.Go(func() { _, _ = io.Copy(io.Discard, p.err) }) }

// sendChats sends n chats and returns how many failed.
func (p *piped) sendChats(n int) (failed int, last error) {
	for range n {
		resp, err := p.client.Post("http://"+p.data+chat.path, "application/json", strings.NewReader(chat.body))
		if err != nil {
			return failed + 1, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			failed, last = failed+1, fmt.Errorf("status %d", resp.StatusCode)
		}
	}
	return failed, last
}

// stop stops the gateway with one SIGTERM.
func (p *piped) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("it ended with %v", err)
		}
	case <-time.After(rig.Patience):
		p.t.Error("one SIGTERM does not end it")
	}
}

// TestStalledAccessLogReaderDelaysNoRequest: the pipe is full after about 150 lines; requests are
// still served, and one SIGTERM stops the gateway.
func TestStalledAccessLogReaderDelaysNoRequest(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	p := newPiped(t)
	p.readErr()
	if failed, err := p.sendChats(600); failed > 0 {
		t.Errorf("%d requests failed, the last with %v", failed, err)
	}
	p.stop()
}

// TestClosedLogPipesDoNotEndTheGateway: the readers of both logs have closed their pipes.
func TestSmokeClosedLogPipesDoNotEndTheGateway(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	p := newPiped(t)
	p.out.Close()
	p.err.Close()
	if failed, err := p.sendChats(3); failed > 0 {
		t.Fatalf("%d requests failed, the last with %v", failed, err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // a line of the program's log
		t.Fatal(err)
	}
	rig.Eventually(t, func() error {
		if failed, err := p.sendChats(1); failed > 0 {
			t.Fatalf("it has died: %v", err)
		}
		m, err := rig.Scrape("http://" + p.admin + "/metrics")
		if err != nil {
			return err
		}
		for _, log := range []string{"access", "program"} {
			if m.Sum("tierway_log_dropped_lines_total", `log="`+log+`"`) == 0 {
				return errors.New("no dropped line of the " + log + " log is counted")
			}
		}
		return nil
	})
	p.stop()
}
