package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"tierway/bench/processes"
)

// startTimeout is the time for a child to respond; measured starts take below 1 s.
const startTimeout = 15 * time.Second

// children are the processes that a run has started.
type children struct {
	processes.Group
	redis string // URL for the gateways that are started next; empty: no Redis
}

// startWorker starts the fixed worker and returns its address.
func (c *children) startWorker(ctx context.Context) (string, error) {
	addr, _, err := c.startListener(ctx, "worker", "127.0.0.1:0")
	return addr, err
}

// startListener starts a child of this program and returns the address that it prints. more
// reads what the child prints afterwards.
func (c *children) startListener(ctx context.Context, verb ...string) (addr string, more *json.Decoder, err error) {
	_, out, err := c.StartSelf(ctx, verb...)
	if err != nil {
		return "", nil, err
	}
	more = json.NewDecoder(out)
	if err := more.Decode(&addr); err != nil {
		return "", nil, fmt.Errorf("reading the %s's address: %w", verb[0], err)
	}
	return addr, more, nil
}

// load is the load process.
type load struct {
	in  *json.Encoder
	out *json.Decoder
}

func (c *children) startLoad(ctx context.Context) (*load, error) {
	in, out, err := c.StartSelf(ctx, "load")
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
	if p.addr, err = processes.FreeAddr(); err != nil {
		return p, err
	}
	conf := filepath.Join(c.Dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(nginxConf(c.Dir, p.addr, worker)), 0o600); err != nil {
		return p, fmt.Errorf("writing nginx's configuration: %w", err)
	}
	output, err := exec.CommandContext(ctx, program, "-v").CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("asking nginx for its version: %w", err)
	}
	cmd, err := c.Start(ctx, "nginx", program, "-p", c.Dir, "-e", filepath.Join(c.Dir, "nginx.err"), "-c", conf)
	if err != nil {
		return p, err
	}
	_, p.version, _ = strings.Cut(strings.TrimSpace(string(output)), "nginx version: ")
	p.pid = cmd.Process.Pid
	return p, c.WaitUntilUp(ctx, "nginx", "http://"+p.addr+"/health", startTimeout)
}

// startTierway starts a gateway in front of the worker. Its configuration is tierwayConf
// followed by more.
func (c *children) startTierway(ctx context.Context, name, program, worker, key, more string) (proxy, error) {
	return c.startGateway(ctx, name, program, tierwayConf(name, worker, key, c.redis)+more)
}

// startGateway starts a gateway with a configuration.
func (c *children) startGateway(ctx context.Context, name, program, text string) (g proxy, err error) {
	if g.addr, err = processes.FreeAddr(); err != nil {
		return g, err
	}
	if g.admin, err = processes.FreeAddr(); err != nil {
		return g, err
	}
	conf := filepath.Join(c.Dir, name+".yaml")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return g, fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	output, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return g, fmt.Errorf("asking %s for its version: %w", program, err)
	}
	cmd, err := c.Start(ctx, name, program, "serve", "-c", conf, "--listen", g.addr, "--admin-listen", g.admin)
	if err != nil {
		return g, err
	}
	g.version, _, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	g.pid = cmd.Process.Pid
	return g, c.WaitUntilUp(ctx, name, "http://"+g.addr+"/readyz", startTimeout)
}
