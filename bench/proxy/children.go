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
	startTimeout = 15 * time.Second // for a child to respond; measured starts take below 1 s
	endTimeout   = 5 * time.Second  // for a child to end before it is killed
)

// children are the processes that a run has started, in the order of their start.
type children struct {
	dir   string // for their configuration and logs
	redis string // URL for the gateways that are started next; empty: no Redis
	list  []*exec.Cmd
}

// start runs a program and writes its output to name.log. The program ends with ctx.
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
	cmd.WaitDelay = endTimeout
	return cmd
}

// wait waits until all children have ended. The caller must have cancelled their context.
func (c *children) wait() {
	for _, cmd := range c.list {
		_ = cmd.Wait() // it reports the signal as an error
	}
	c.list = nil
}

// startSelf runs this program again as a child process and returns its standard input and output.
func (c *children) startSelf(ctx context.Context, verb string) (in io.WriteCloser, out io.Reader, err error) {
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

// startWorker starts the fixed worker and returns its address.
func (c *children) startWorker(ctx context.Context) (string, error) {
	addr, _, err := c.startListener(ctx, "worker")
	return addr, err
}

// startListener starts a child of this program and returns the address that it prints. more
// reads what the child prints afterwards.
func (c *children) startListener(ctx context.Context, verb string) (addr string, more *json.Decoder, err error) {
	_, out, err := c.startSelf(ctx, verb)
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

func (c *children) startLoad(ctx context.Context) (*load, error) {
	in, out, err := c.startSelf(ctx, "load")
	if err != nil {
		return nil, err
	}
	return &load{in: json.NewEncoder(in), out: json.NewDecoder(out)}, nil
}

func (l *load) run(j job) (result, error) {
	var r result
	if err := l.in.Encode(j); err != nil {
		return r, fmt.Errorf("sending a job to the load process: %w", err)
	}
	if err := l.out.Decode(&r); err != nil {
		return r, fmt.Errorf("reading the load process's result: %w", err)
	}
	return r, nil
}

// proxy is a running nginx or Tierway.
type proxy struct {
	addr, version string
	pid           int
	admin         string // only of Tierway
}

// startNginx starts nginx in front of the worker.
func (c *children) startNginx(ctx context.Context, program, worker string) (p proxy, err error) {
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
	output, err := exec.CommandContext(ctx, program, "-v").CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("asking nginx for its version: %w", err)
	}
	cmd, err := c.start(ctx, "nginx", program, "-p", c.dir, "-e", filepath.Join(c.dir, "nginx.err"), "-c", conf)
	if err != nil {
		return p, err
	}
	_, p.version, _ = strings.Cut(strings.TrimSpace(string(output)), "nginx version: ")
	p.pid = cmd.Process.Pid
	return p, c.waitUntilUp(ctx, "nginx", "http://"+p.addr+"/health")
}

// startTierway starts a gateway in front of the worker. Its configuration is tierwayConf
// followed by more.
func (c *children) startTierway(ctx context.Context, name, program, worker, key, more string) (proxy, error) {
	return c.startGateway(ctx, name, program, tierwayConf(name, worker, key, c.redis)+more)
}

// startGateway starts a gateway with a configuration.
func (c *children) startGateway(ctx context.Context, name, program, text string) (g proxy, err error) {
	if g.addr, err = freeAddr(); err != nil {
		return g, err
	}
	if g.admin, err = freeAddr(); err != nil {
		return g, err
	}
	conf := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return g, fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	output, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return g, fmt.Errorf("asking %s for its version: %w", program, err)
	}
	cmd, err := c.start(ctx, name, program, "serve", "-c", conf, "--listen", g.addr, "--admin-listen", g.admin)
	if err != nil {
		return g, err
	}
	g.version, _, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	g.pid = cmd.Process.Pid
	return g, c.waitUntilUp(ctx, name, "http://"+g.addr+"/readyz")
}

// freeAddr returns a free loopback address.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// waitUntilUp waits until url returns 200. The error has the end of the child's log.
func (c *children) waitUntilUp(ctx context.Context, name, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		last := checkURL(ctx, url)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(c.dir, name+".log")) // without the log, the error only lacks the cause
			return fmt.Errorf("%s is not up after %s: %w\n%s", name, startTimeout, last, log[max(0, len(log)-2000):])
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkURL sends one GET request and returns an error unless the status is 200.
func checkURL(ctx context.Context, url string) error {
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
