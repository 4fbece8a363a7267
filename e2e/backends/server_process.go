package backends

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// serverProcess is the process of a server on an address of its own. Its methods are not safe for
// concurrent use. It has no goroutine while the process runs, because some tests look for
// leaked goroutines.
type serverProcess struct {
	name          string
	addr          string           // of the loopback interface
	log           string           // the file with its output
	make          func() *exec.Cmd // makes the command of each start
	ready         func() error     // returns nil when the server is ready
	stop          syscall.Signal   // shuts the server down
	cmd           *exec.Cmd        // nil: the process does not run
	resumeProcess func() error     // resumes the process; nil: it is not suspended
}

// freePort returns a free port of [loopback.Host]. No other process takes the port while the server is down.
func freePort() (string, error) {
	addr, err := loopback.Address()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	return port, err
}

// start starts the server and waits until it is ready.
func (p *serverProcess) start() error {
	if p.cmd != nil {
		return fmt.Errorf("starting %s: it is running already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	defer log.Close()
	c := p.make()
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.cmd = c
	err = waitFor(p.name+" to be ready", func() error {
		if !isRunning(c.Process.Pid) {
			return errEnded
		}
		return p.ready()
	})
	if err != nil {
		out, _ := os.ReadFile(p.log) // without the log, the error only lacks the cause
		return fmt.Errorf("%w\n%s", errors.Join(err, p.kill()), out)
	}
	return nil
}

// errEnded ends the wait for a process early.
var errEnded = errors.New("the process has ended")

// waitFor waits until holds returns nil. The wait fails after patience, or at once if holds
// returns errEnded.
func waitFor(what string, holds func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		err := holds()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errEnded):
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("timeout after %v, waiting for %s: %w", patience, what, err)
		}
	}
}

// shutDown ends the process with its stop signal, if it runs.
func (p *serverProcess) shutDown() error { return p.endBySignal(p.stop) }

// kill ends the process with SIGKILL, if it runs.
func (p *serverProcess) kill() error { return p.endBySignal(syscall.SIGKILL) }

// endBySignal ends the process and waits until its children have ended and its port is free.
func (p *serverProcess) endBySignal(how syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	c := p.cmd
	children, err := childrenOf(c.Process.Pid)
	if err != nil {
		children = nil // without /proc, only the port shows the end
	}
	if err := c.Process.Signal(how); err != nil {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	// A suspended process handles the signal once it resumes. After SIGKILL, resuming may fail.
	err = p.resume()
	if how == syscall.SIGKILL {
		err = nil
	}
	late := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	_ = c.Wait() // it reports the signal as an error
	if !late.Stop() {
		err = errors.Join(err, fmt.Errorf("%s did not end within %v after %v", p.name, patience, how))
	}
	p.cmd = nil
	return errors.Join(err, waitFor("the end of "+p.name, func() error {
		for _, pid := range children {
			if isRunning(pid) {
				return fmt.Errorf("its child %d still runs", pid)
			}
		}
		if acceptsConnections(p.addr) {
			return errors.New("a process still listens on " + p.addr)
		}
		return nil
	}))
}

// hang suspends the process and its children. They keep their connections and do not respond.
func (p *serverProcess) hang() error {
	switch {
	case p.cmd == nil:
		return fmt.Errorf("suspending %s: it does not run: start it first", p.name)
	case p.resumeProcess != nil:
		return fmt.Errorf("suspending %s: it is already suspended: resume it first", p.name)
	}
	pid := p.cmd.Process.Pid
	resume, err := suspend([]int{pid}) // before its children, so that it starts no more of them
	if err != nil {
		return err
	}
	children, err := childrenOf(pid)
	if err != nil {
		return errors.Join(err, resume())
	}
	p.resumeProcess = resume
	if len(children) == 0 {
		return nil
	}
	resumeChildren, err := suspend(children)
	if err != nil {
		return errors.Join(err, p.resume())
	}
	p.resumeProcess = func() error { return errors.Join(resumeChildren(), resume()) }
	return nil
}

// resume resumes the process and its children after hang.
func (p *serverProcess) resume() error {
	if p.resumeProcess == nil {
		return nil
	}
	resumeProcess := p.resumeProcess
	p.resumeProcess = nil
	if err := resumeProcess(); err != nil && p.cmd != nil {
		return fmt.Errorf("resuming %s: %w", p.name, err)
	}
	return nil
}

// restart shuts the server down if it runs, and starts it on the same address.
func (p *serverProcess) restart() error {
	if err := p.shutDown(); err != nil {
		return err
	}
	return p.start()
}

// acceptsConnections reports whether a process listens on an address.
func acceptsConnections(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// findBinary returns the path of a program. Debian installs PostgreSQL in a folder for each
// version; the highest version comes before PATH.
func findBinary(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // fails only for a bad pattern
	best, version := "", -1
	for _, path := range found {
		if v, err := strconv.Atoi(strings.Split(path, "/")[4]); err == nil && v > version {
			best, version = path, v
		}
	}
	if best != "" {
		return best, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		// Debian installs nginx and HAProxy here, which is not on every user's PATH.
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed: run `make deps`, or install the packages of scripts/packages.sh: %w",
			name, err)
	}
	return path, nil
}
