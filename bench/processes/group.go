// Package processes starts the programs that a measurement compares, and reads their processor time and memory.
package processes

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// pollInterval is the interval at which a URL is read until it returns 200.
const pollInterval = 5 * time.Millisecond

// endTimeout is the time for a child to end before it is killed.
const endTimeout = 5 * time.Second

// Group is the child processes of a measurement. Its methods are not safe for concurrent use.
type Group struct {
	Dir  string // for their configuration and logs
	list []*exec.Cmd
}

// Start runs a program and writes its output to name.log. The program ends with ctx.
func (g *Group) Start(ctx context.Context, name, program string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(g.Dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("making a log for %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := g.command(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	g.list = append(g.list, cmd)
	return cmd, nil
}

func (g *Group) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTimeout
	return cmd
}

// Wait waits until all children have ended. The caller must have cancelled their context.
func (g *Group) Wait() {
	for _, cmd := range g.list {
		_ = cmd.Wait() // it reports the signal as an error
	}
	g.list = nil
}

// StartSelf runs this program again as a child process and returns its standard input and output.
func (g *Group) StartSelf(ctx context.Context, args ...string) (in io.WriteCloser, out io.Reader, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("looking up this program: %w", err)
	}
	cmd := g.command(ctx, self, args...)
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	g.list = append(g.list, cmd)
	return in, out, nil
}

// FreeAddr returns a free loopback address.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// WaitUntilUp waits until url returns 200, at most for patience. The error has the end of the child's log.
func (g *Group) WaitUntilUp(ctx context.Context, name, url string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		last := CheckURL(ctx, url)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(g.Dir, name+".log")) // without the log, the error only lacks the cause
			return fmt.Errorf("%s is not up after %s: %w\n%s", name, patience, last, log[max(0, len(log)-2000):])
		case <-time.After(pollInterval):
		}
	}
}

// CheckURL sends one GET request and returns an error unless the status is 200.
func CheckURL(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: status %s", url, resp.Status)
	}
	return nil
}
