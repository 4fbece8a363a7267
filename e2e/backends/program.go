package backends

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// patience bounds every wait: far more than anything here takes, on a
	// machine that is busy with other tests.
	patience = 30 * time.Second
	// pace is how often a condition is looked at.
	pace = 5 * time.Millisecond
)

// program is a server's process on an address of its own. Its methods are for
// one goroutine. It has no goroutine while it runs, so that tests that look for
// leaks find none.
type program struct {
	name  string
	addr  string           // of the loopback interface
	log   string           // the file that has its output
	make  func() *exec.Cmd // the command, anew for each start
	ready func() error     // nil when it serves
	stop  syscall.Signal   // what ends it in good order
	cmd   *exec.Cmd        // nil: it does not run
	held  func() error     // lets it go on; nil: it is not stopped
}

// freePort returns a port of 127.0.0.1 that nobody listens on. It lies below
// those that the kernel gives to outgoing connections, which could otherwise
// take it while its server is dead.
func freePort() (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(15000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("looking for a free port of 127.0.0.1: a hundred tries found none")
}

// start starts the program and waits until it serves.
func (p *program) start() error {
	if p.cmd != nil {
		return fmt.Errorf("starting %s: it runs", p.name)
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
	err = until(p.name+" to serve", func() error {
		if !running(c.Process.Pid) {
			return errEnded
		}
		return p.ready()
	})
	if err != nil {
		out, _ := os.ReadFile(p.log) // says why, when it is there
		return fmt.Errorf("%w\n%s", errors.Join(err, p.kill()), out)
	}
	return nil
}

// errEnded ends the wait for a program.
var errEnded = errors.New("it has ended")

// until waits for a condition.
func until(what string, holds func() error) error {
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
			return fmt.Errorf("waited %v in vain for %s: %w", patience, what, err)
		}
	}
}

// end ends the program in good order, if it runs.
func (p *program) end() error { return p.finish(p.stop) }

// kill ends the program as a crash would, if it runs.
func (p *program) kill() error { return p.finish(syscall.SIGKILL) }

// finish ends the program by a signal, and waits until its children have ended
// and nobody listens any more.
func (p *program) finish(how syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	c := p.cmd
	family, err := children(c.Process.Pid)
	if err != nil {
		family = nil // where there is no /proc, the port alone tells
	}
	if err := c.Process.Signal(how); err != nil {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	// Who is stopped ends when it goes on. That fails where SIGKILL was sooner.
	err = p.resume()
	if how == syscall.SIGKILL {
		err = nil
	}
	late := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	_ = c.Wait() // a signal is how it should end
	if !late.Stop() {
		err = errors.Join(err, fmt.Errorf("%s did not end within %v after %v", p.name, patience, how))
	}
	p.cmd = nil
	return errors.Join(err, until("the end of "+p.name, func() error {
		for _, pid := range family {
			if running(pid) {
				return fmt.Errorf("its child %d still runs", pid)
			}
		}
		if listens(p.addr) {
			return errors.New("somebody still listens on " + p.addr)
		}
		return nil
	}))
}

// hang stops the program and its children, which keep their connections and say
// nothing.
func (p *program) hang() error {
	if p.cmd == nil || p.held != nil {
		return fmt.Errorf("stopping %s: it does not run", p.name)
	}
	pid := p.cmd.Process.Pid
	resume, err := hold([]int{pid}) // first, so that it has no more children
	if err != nil {
		return err
	}
	family, err := children(pid)
	if err != nil {
		return errors.Join(err, resume())
	}
	p.held = resume
	if len(family) == 0 {
		return nil
	}
	others, err := hold(family)
	if err != nil {
		return errors.Join(err, p.resume())
	}
	p.held = func() error { return errors.Join(others(), resume()) }
	return nil
}

// resume lets a program that hangs go on.
func (p *program) resume() error {
	if p.held == nil {
		return nil
	}
	held := p.held
	p.held = nil
	if err := held(); err != nil && p.cmd != nil {
		return fmt.Errorf("waking %s: %w", p.name, err)
	}
	return nil
}

// restart ends the program if it runs, and starts it on the same address.
func (p *program) restart() error {
	if err := p.end(); err != nil {
		return err
	}
	return p.start()
}

// listens reports whether somebody takes connections there.
func listens(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// binary returns the path of a program on PATH or, as Debian keeps PostgreSQL's,
// in a folder of its version; the highest one counts.
func binary(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is good
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
		return "",
			fmt.Errorf("%s is not installed: run `make deps`, or install Debian's packages redis-server and postgresql: %w",
				name, err)
	}
	return path, nil
}
