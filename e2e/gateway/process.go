package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/loopback"
)

const (
	// patience bounds every wait. It is far longer than any step takes, even on a machine that
	// is busy with other tests.
	patience = 30 * time.Second
	// pace is the interval at which a condition is checked.
	pace = 5 * time.Millisecond
)

// Process is a running gateway. It ends with its test, which fails if the gateway does not
// stop cleanly. A test may end it earlier with Stop or Kill.
type Process struct {
	BaseURL  string // ends in /v1, as SDKs expect
	AdminURL string
	APIKey   string // the demo's key; otherwise a placeholder, which gateways without keys ignore
	AdminKey string // only of the demo
	File     string // path of the configuration; a test may rewrite the file for a reload

	t         testing.TB
	dir       string   // the working directory, which holds the default database
	env       []string // added to the environment of this process
	args      []string
	launcher  Launcher
	program   Program
	out       Output
	err       Output
	ended     chan struct{} // closed when the program has ended
	status    int           // the exit status, once ended is closed
	endWanted bool          // the test has ended the process or expects its end
}

// Demo starts `tierway demo --json` and returns when it has printed its URLs and keys.
func Demo(t testing.TB, env ...string) *Process {
	t.Helper()
	p := run(t, env, "demo", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p.WaitFor("the demo's line", func() bool { return strings.Contains(p.out.String(), "\n") })
	var ready struct {
		BaseURL  string `json:"base_url"`
		AdminURL string `json:"admin_url"`
		APIKey   string `json:"api_key"`
		AdminKey string `json:"admin_key"`
	}
	if err := json.Unmarshal([]byte(p.out.String()), &ready); err != nil {
		t.Fatalf("the demo printed %q, which is not one JSON object: %v", p.out.String(), err)
	}
	p.BaseURL, p.AdminURL, p.APIKey, p.AdminKey = ready.BaseURL, ready.AdminURL, ready.APIKey, ready.AdminKey
	return p
}

// Serve starts `tierway serve` with a configuration on free addresses and returns when /readyz
// returns 200. Stopping takes at least the configuration's drain.accept_grace; set it, because
// its default is several seconds.
func Serve(t testing.TB, yaml string, env ...string) *Process {
	t.Helper()
	p := Start(t, yaml, env...)
	p.WaitUntilReady()
	return p
}

// Start is Serve without the wait for workers: it returns when the gateway listens. The
// configuration must keep the log level info and the access log, which Process reads.
func Start(t testing.TB, yaml string, env ...string) *Process {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", "127.0.0.1:0", yaml, env...)
}

// StartAt is Start with given addresses of the data plane and the admin plane. For a gateway
// that is to be restarted, take ports of [Address], which stay free in between.
func StartAt(t testing.TB, data, admin, yaml string, env ...string) *Process {
	t.Helper()
	return Launcher{}.StartAt(t, data, admin, yaml, env...)
}

// StartAt is [StartAt] with the launcher.
func (l Launcher) StartAt(t testing.TB, data, admin, yaml string, env ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Process{File: file, t: t, dir: dir, env: env, launcher: l,
		args: []string{"serve", "-c", file, "--listen", data, "--admin-listen", admin}}
	p.start()
	p.waitUntilListening()
	return p
}

// StartAgain starts the gateway again with the same configuration file, folder, environment and
// addresses. It first stops the gateway if it runs. It returns a new Process when the gateway
// listens; the old Process stays ended.
func (p *Process) StartAgain() *Process {
	p.t.Helper()
	if p.Alive() {
		p.Stop()
	}
	n := &Process{File: p.File, t: p.t, dir: p.dir, env: p.env, args: p.args, launcher: p.launcher}
	n.start()
	n.waitUntilListening()
	return n
}

// Address returns a free address of the loopback interface that no other process takes, so a gateway may
// be restarted on it.
func Address(t testing.TB) string {
	t.Helper()
	addr, err := loopback.Address()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// WaitUntilReady waits until /readyz returns 200.
func (p *Process) WaitUntilReady() {
	p.t.Helper()
	p.WaitFor("status 200 of /readyz", func() bool { return p.GetStatus("/readyz") == http.StatusOK })
}

// waitUntilListening waits until the gateway logs its addresses, and sets the URLs.
func (p *Process) waitUntilListening() {
	p.t.Helper()
	p.WaitFor("the addresses in the log", func() bool { return len(p.err.lines("serving")) > 0 })
	line := p.err.lines("serving")[0]
	p.BaseURL = fmt.Sprintf("http://%v/v1", line["data"])
	p.AdminURL = fmt.Sprintf("http://%v", line["admin"])
	p.APIKey = "unused"
}

// run starts the binary in a temporary folder. The process ends with the test.
func run(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, dir: t.TempDir(), env: env, args: args}
	p.start()
	return p
}

// start starts the program and registers its end with the test.
func (p *Process) start() {
	t := p.t
	t.Helper()
	var err error
	if p.program, err = p.launcher.launch(t, p.dir, p.args, p.env, &p.out, &p.err); err != nil {
		t.Fatalf("starting the gateway: %v", err)
	}
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		p.status = p.program.Wait()
	}()
	t.Cleanup(func() {
		if !p.endWanted {
			p.Stop()
		}
		if t.Failed() {
			t.Logf("the gateway's last lines:\n%s", tail(p.out.String()+p.err.String(), 30))
		}
	})
}

// StartCommand starts the program with args. It may exit with any status and is killed at the
// end of the test. env is added to the environment of this process.
func StartCommand(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return Launcher{}.StartCommand(t, env, args...)
}

// StartCommand is [StartCommand] with the launcher.
func (l Launcher) StartCommand(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, dir: t.TempDir(), env: env, args: args, launcher: l}
	p.start()
	p.endWanted = true
	t.Cleanup(p.Kill)
	return p
}

// Addresses waits until a program of StartCommand listens and returns the addresses of the data
// plane and the admin plane.
func (p *Process) Addresses() (data, admin string) {
	p.t.Helper()
	p.waitUntilListening()
	return strings.TrimSuffix(strings.TrimPrefix(p.BaseURL, "http://"), "/v1"), strings.TrimPrefix(p.AdminURL, "http://")
}

// ExitStatus waits until the program exits and returns its status, which may be any.
func (p *Process) ExitStatus() int {
	p.t.Helper()
	p.endWanted = true
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("the program has not ended")
	}
	return p.status
}

// PID returns the id of the process; 0 if the gateway is no process of its own.
func (p *Process) PID() int {
	if own, ok := p.program.(process); ok {
		return own.Process.Pid
	}
	return 0
}

// Alive reports whether the process runs.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Log returns what the gateway has written to standard error.
func (p *Process) Log() string { return p.err.String() }

// AccessLines returns the lines of the access log so far, one for each ended request.
func (p *Process) AccessLines() []map[string]any {
	return append(p.out.lines("request"), p.err.lines("request")...)
}

// WaitFor waits until holds returns true. The test fails after 30 s, or if the gateway ends
// before.
func (p *Process) WaitFor(what string, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.waitFor(ctx, what, holds)
}

// WaitForScript waits until holds returns true because of a script. The test fails if the script ends before: how long
// an interpreter needs to start depends on the machine.
func (p *Process) WaitForScript(ended <-chan struct{}, what string, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	p.waitFor(ctx, what, holds)
}

// waitFor waits until holds returns true. The test fails if ctx or the gateway ends before.
func (p *Process) waitFor(ctx context.Context, what string, holds func() bool) {
	p.t.Helper()
	interval := pace
	for !holds() {
		select {
		case <-time.After(interval):
			if p.launcher.Virtual {
				interval = min(interval+interval/4, 50*pace)
			}
		case <-p.ended:
			if !holds() {
				p.endWanted = true
				p.t.Fatalf("the gateway ended (status %d) while waiting for %s:\n%s", p.status, what, tail(p.err.String(), 30))
			}
			return
		case <-ctx.Done():
			if !holds() {
				p.t.Fatalf("%v while waiting for %s: after %v, or its script has ended", ctx.Err(), what, patience)
			}
		}
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.program.Signal(s); err != nil {
		p.t.Errorf("sending %v to the gateway: %v", s, err)
	}
}

// Stop sends SIGTERM and fails the test unless the gateway exits with status 0.
func (p *Process) Stop() {
	p.t.Helper()
	if p.Alive() {
		p.Signal(syscall.SIGTERM)
	}
	p.WaitForEnd()
}

// WaitForEnd waits until the gateway exits after a signal of the test. It fails the test unless
// the gateway exits within 30 s and with status 0.
func (p *Process) WaitForEnd() {
	p.t.Helper()
	p.endWanted = true
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("the gateway did not exit within %v after the signal", patience)
		p.Kill()
		return
	}
	if p.status != 0 {
		p.t.Errorf("the gateway exited with status %d, want 0", p.status)
	}
}

// Kill ends the gateway with SIGKILL. It checks nothing.
func (p *Process) Kill() {
	p.endWanted = true
	p.program.Kill()
	<-p.ended
}
