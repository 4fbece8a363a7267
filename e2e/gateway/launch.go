package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program is a started gateway.
type Program interface {
	// Signal sends a signal.
	Signal(s os.Signal) error
	// Kill ends the program at once.
	Kill()
	// Wait waits for the end and returns the exit status; -1 after a signal that ends a process. It is called once.
	Wait() int
}

// Launcher starts gateways. The zero value starts the binary under test.
type Launcher struct {
	// Launch starts a program as exec.Command does. dir is its folder, and env is added to the environment.
	Launch func(dir string, args, env []string, out, err io.Writer) (Program, error)
	// Client sends the requests of a Process; nil: http.DefaultClient.
	Client *http.Client
	// Virtual: time passes only while all goroutines wait, so that a wait costs less than a check.
	Virtual bool
}

// client returns the client of requests.
func (l Launcher) client() *http.Client {
	if l.Client == nil {
		return http.DefaultClient
	}
	return l.Client
}

// launch starts a program.
func (l Launcher) launch(t testing.TB, dir string, args, env []string, out, err io.Writer) (Program, error) {
	t.Helper()
	if l.Launch != nil {
		return l.Launch(dir, args, env, out, err)
	}
	bin, failed := filepath.Abs(Binary(t)) // the process runs in another folder
	if failed != nil {
		return nil, failed
	}
	c := exec.Command(bin, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	c.Stdout, c.Stderr = out, err
	c.SysProcAttr = EndWithParent()
	return process{c}, c.Start()
}

// process is a process of the operating system.
type process struct{ *exec.Cmd }

// Signal is part of Program.
func (p process) Signal(s os.Signal) error { return p.Process.Signal(s) }

// Kill is part of Program.
func (p process) Kill() { _ = p.Process.Kill() } // the process may have ended already

// Wait is part of Program.
func (p process) Wait() int {
	var exit *exec.ExitError
	if err := p.Cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return -1
	}
	return p.ProcessState.ExitCode()
}
