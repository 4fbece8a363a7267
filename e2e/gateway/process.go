package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait: far more than anything here takes, on a
	// machine that is busy with other tests.
	patience = 30 * time.Second
	// pace is how often a condition is looked at.
	pace = 5 * time.Millisecond
)

// Process is a running gateway. It ends with its test, which fails if the
// gateway did not stop cleanly; a test may end it before by Stop or Kill.
type Process struct {
	BaseURL  string // with /v1, as SDKs want it
	AdminURL string
	APIKey   string // of the demo; otherwise a word that open gateways ignore
	AdminKey string // of the demo only
	File     string // the configuration; it may be written anew for a reload

	t     testing.TB
	dir   string   // the working directory, which has the database that is the default
	env   []string // added to this process's
	args  []string
	cmd   *exec.Cmd
	out   Output
	err   Output
	ended chan struct{} // closed when the process has been waited for
	over  bool          // Stop or Kill was called
}

// Demo starts `tierway demo` and returns when it printed what a client needs.
func Demo(t testing.TB, env ...string) *Process {
	t.Helper()
	p := run(t, env, "demo", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p.Until("the demo's line", func() bool { return strings.Contains(p.out.String(), "\n") })
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

// Serve starts `tierway serve` with a configuration, on addresses of its own,
// and returns when /readyz says that something can be served. Stopping takes
// the configuration's drain.accept_grace, which is seconds unless it is set.
func Serve(t testing.TB, yaml string, env ...string) *Process {
	t.Helper()
	p := Start(t, yaml, env...)
	p.Ready()
	return p
}

// Start is Serve without the wait for workers: it returns when the gateway
// listens. Log level and access log have to stay at least at their defaults.
func Start(t testing.TB, yaml string, env ...string) *Process {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", "127.0.0.1:0", yaml, env...)
}

// StartAt is Start on addresses for the data plane and the admin plane. A gateway
// that is to be started again has ports of [Address], which nobody takes while it
// is away.
func StartAt(t testing.TB, data, admin, yaml string, env ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Process{File: file, t: t, dir: dir, env: env,
		args: []string{"serve", "-c", file, "--listen", data, "--admin-listen", admin}}
	p.begin()
	p.listens()
	return p
}

// Again starts a gateway anew as it was: same configuration file, folder,
// environment and addresses. One that runs is stopped before. The old Process
// stays what it was; the new one is returned when the gateway listens.
func (p *Process) Again() *Process {
	p.t.Helper()
	if p.Alive() {
		p.Stop()
	}
	n := &Process{File: p.File, t: p.t, dir: p.dir, env: p.env, args: p.args}
	n.begin()
	n.listens()
	return n
}

// Address returns an address of the loopback interface that nobody listens on.
// Its port lies below those that the kernel gives to outgoing connections.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(5000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("a hundred ports of 127.0.0.1 are taken")
	return ""
}

// Ready waits until /readyz says that something can be served.
func (p *Process) Ready() {
	p.t.Helper()
	p.Until("/readyz to answer 200", func() bool { return p.Get("/readyz") == http.StatusOK })
}

// listens waits until the gateway says where it listens.
func (p *Process) listens() {
	p.t.Helper()
	p.Until("the addresses in the log", func() bool { return len(p.err.lines("serving")) > 0 })
	line := p.err.lines("serving")[0]
	p.BaseURL = fmt.Sprintf("http://%v/v1", line["data"])
	p.AdminURL = fmt.Sprintf("http://%v", line["admin"])
	p.APIKey = "unused"
}

// run starts the binary in a folder of its own and leaves its end to the test's.
func run(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, dir: t.TempDir(), env: env, args: args}
	p.begin()
	return p
}

// begin starts the binary.
func (p *Process) begin() {
	t := p.t
	t.Helper()
	bin, err := filepath.Abs(Binary(t)) // before the folder is another
	if err != nil {
		t.Fatal(err)
	}
	p.cmd, p.ended = exec.Command(bin, p.args...), make(chan struct{})
	p.cmd.Dir = p.dir
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.SysProcAttr = Lifeline()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting the gateway: %v", err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended stands in ProcessState
	}()
	t.Cleanup(func() {
		if !p.over {
			p.Stop()
		}
		if t.Failed() {
			t.Logf("the gateway's last lines:\n%s", tail(p.out.String()+p.err.String(), 30))
		}
	})
}

// Begin starts the program with arguments of its own. It may end with any status and
// is killed at the end of the test.
func Begin(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := run(t, env, args...)
	p.over = true
	t.Cleanup(p.Kill)
	return p
}

// Addresses waits until a program of Begin listens and returns the addresses of data
// plane and admin plane.
func (p *Process) Addresses() (data, admin string) {
	p.t.Helper()
	p.listens()
	return strings.TrimSuffix(strings.TrimPrefix(p.BaseURL, "http://"), "/v1"), strings.TrimPrefix(p.AdminURL, "http://")
}

// Status waits for the end and returns the status.
func (p *Process) Status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("the program has not ended")
	}
	return p.cmd.ProcessState.ExitCode()
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive says whether the process still runs.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Log returns what the gateway wrote to standard error so far.
func (p *Process) Log() string { return p.err.String() }

// Access returns the lines of the access log so far, one a request.
func (p *Process) Access() []map[string]any {
	return append(p.out.lines("request"), p.err.lines("request")...)
}

// Until waits for a condition. The test fails when it does not come about, or
// when the gateway ends before it does.
func (p *Process) Until(what string, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-p.ended:
			if !holds() {
				p.over = true
				p.t.Fatalf("the gateway ended (%v) while waiting for %s:\n%s", p.cmd.ProcessState, what, tail(p.err.String(), 30))
			}
			return
		case <-ctx.Done():
			p.t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("sending %v to the gateway: %v", s, err)
	}
}

// Stop asks the gateway to end and fails the test unless it ends with status 0.
func (p *Process) Stop() {
	p.t.Helper()
	if p.Alive() {
		p.Signal(syscall.SIGTERM)
	}
	p.Wait()
}

// Wait waits for an end that the test has asked for, and fails the test unless
// it comes in time and with status 0.
func (p *Process) Wait() {
	p.t.Helper()
	p.over = true
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("the gateway did not end within %v after it was asked to", patience)
		p.Kill()
		return
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("the gateway ended with %v instead of status 0", p.cmd.ProcessState)
	}
}

// Kill ends the gateway as a crash would. Nothing is asserted.
func (p *Process) Kill() {
	p.over = true
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.ended
}
