package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	upWithin  = 15 * time.Second // a child that does not answer by then never does
	endWithin = 5 * time.Second  // a child that has not ended by then is killed
)

// children are the processes that a run started, in that order.
type children struct {
	dir  string // for their configuration and logs
	list []*exec.Cmd
}

// start runs a program whose output goes to name.log. It ends with ctx.
func (c *children) start(ctx context.Context, name, program string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("making a log for %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := c.command(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	c.list = append(c.list, cmd)
	return cmd, nil
}

func (c *children) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endWithin
	return cmd
}

// end waits for all children, whose context the caller has cancelled.
func (c *children) end() {
	for _, cmd := range c.list {
		_ = cmd.Wait() // it was told to end: how it says so does not matter
	}
	c.list = nil
}

// pipe runs this program again as a child that is talked to over pipes.
func (c *children) pipe(ctx context.Context, verb string) (in io.WriteCloser, out io.Reader, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("looking up this program: %w", err)
	}
	cmd := c.command(ctx, self, verb)
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", verb, err)
	}
	c.list = append(c.list, cmd)
	return in, out, nil
}

// worker starts the fixed worker and returns its address.
func (c *children) worker(ctx context.Context) (string, error) {
	addr, _, err := c.listener(ctx, "worker")
	return addr, err
}

// listener starts a child of this program that prints where it listens, and more
// once it is told to end.
func (c *children) listener(ctx context.Context, verb string) (addr string, more *json.Decoder, err error) {
	_, out, err := c.pipe(ctx, verb)
	if err != nil {
		return "", nil, err
	}
	more = json.NewDecoder(out)
	if err := more.Decode(&addr); err != nil {
		return "", nil, fmt.Errorf("reading the %s's address: %w", verb, err)
	}
	return addr, more, nil
}

// load is the load process.
type load struct {
	in  *json.Encoder
	out *json.Decoder
}

func (c *children) load(ctx context.Context) (*load, error) {
	in, out, err := c.pipe(ctx, "load")
	if err != nil {
		return nil, err
	}
	return &load{in: json.NewEncoder(in), out: json.NewDecoder(out)}, nil
}

func (l *load) do(j job) (result, error) {
	var r result
	if err := l.in.Encode(j); err != nil {
		return r, fmt.Errorf("sending a job to the load process: %w", err)
	}
	if err := l.out.Decode(&r); err != nil {
		return r, fmt.Errorf("reading what the load process did: %w", err)
	}
	return r, nil
}

// proxy is one nginx or Tierway that runs.
type proxy struct {
	addr, version string
	pid           int
	admin         string // of Tierway
}

// nginx starts nginx before the worker.
func (c *children) nginx(ctx context.Context, program, worker string) (p proxy, err error) {
	if program, err = exec.LookPath(program); err != nil {
		return p, fmt.Errorf("looking for nginx: %w (apt-get install nginx-light, or name one with -nginx)", err)
	}
	if p.addr, err = freeAddr(); err != nil {
		return p, err
	}
	conf := filepath.Join(c.dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(nginxConf(c.dir, p.addr, worker)), 0o600); err != nil {
		return p, fmt.Errorf("writing nginx's configuration: %w", err)
	}
	said, err := exec.CommandContext(ctx, program, "-v").CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("asking nginx for its version: %w", err)
	}
	cmd, err := c.start(ctx, "nginx", program, "-p", c.dir, "-e", filepath.Join(c.dir, "nginx.err"), "-c", conf)
	if err != nil {
		return p, err
	}
	_, p.version, _ = strings.Cut(strings.TrimSpace(string(said)), "nginx version: ")
	p.pid = cmd.Process.Pid
	return p, c.untilUp(ctx, "nginx", "http://"+p.addr+"/health")
}

// tierway starts a gateway under that name before the worker, with more
// configuration than tierwayConf has.
func (c *children) tierway(ctx context.Context, name, program, worker, key, more string) (g proxy, err error) {
	if g.addr, err = freeAddr(); err != nil {
		return g, err
	}
	if g.admin, err = freeAddr(); err != nil {
		return g, err
	}
	conf := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(conf, []byte(tierwayConf(name, worker, key)+more), 0o600); err != nil {
		return g, fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	said, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return g, fmt.Errorf("asking %s for its version: %w", program, err)
	}
	cmd, err := c.start(ctx, name, program, "serve", "-c", conf, "--listen", g.addr, "--admin-listen", g.admin)
	if err != nil {
		return g, err
	}
	g.version, _, _ = strings.Cut(strings.TrimSpace(string(said)), "\n")
	g.pid = cmd.Process.Pid
	return g, c.untilUp(ctx, name, "http://"+g.addr+"/readyz")
}

// freeAddr is a loopback address that nobody listens on at the moment.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// untilUp waits until url answers 200 and otherwise says what the child logged.
func (c *children) untilUp(ctx context.Context, name, url string) error {
	ctx, cancel := context.WithTimeout(ctx, upWithin)
	defer cancel()
	for {
		last := answers(ctx, url)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(c.dir, name+".log")) // without it the error says less, not something else
			return fmt.Errorf("%s is not up after %s: %w\n%s", name, upWithin, last, log[max(0, len(log)-2000):])
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answers asks url once.
func answers(ctx context.Context, url string) error {
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
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
