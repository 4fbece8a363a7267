package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	t     testing.TB
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
	p.Until("/readyz to answer 200", func() bool { return p.status("/readyz") == http.StatusOK })
	return p
}

// Start is Serve without the wait for workers: it returns when the gateway
// listens. Log level and access log have to stay at least at their defaults.
func Start(t testing.TB, yaml string, env ...string) *Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, env, "serve", "-c", file, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p.Until("the addresses in the log", func() bool { return len(p.err.lines("serving")) > 0 })
	line := p.err.lines("serving")[0]
	p.BaseURL = fmt.Sprintf("http://%v/v1", line["data"])
	p.AdminURL = fmt.Sprintf("http://%v", line["admin"])
	p.APIKey = "unused"
	return p
}

// run starts the binary and leaves its end to the test's.
func run(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(Binary(t), args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.SysProcAttr = lifeline()
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
	return p
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

// status asks a path of the data plane; 0 means that nobody answered.
func (p *Process) status(path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.BaseURL, "/v1")+path, nil)
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the connection is reused or not
	return resp.StatusCode
}
