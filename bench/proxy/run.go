package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"tierway/bench/processes"
	"tierway/tenants"
)

// target is one process that the load process sends requests to.
type target struct {
	name, addr string
	pid        int    // 0 for the worker
	admin      string // of its admin plane; empty: not a Tierway
	shape      string // of its requests; empty: that of the job
	keys       int    // as Keys of a job
	sessions   int    // as Sessions of a job
}

// bench is a run with its child processes up.
type bench struct {
	load    *load
	targets []target // direct, nginx, tierway, then those of -old, -watched and -vs
	key     string
	setup   setup
}

const (
	direct = iota
	nginx
	tierway
)

// withWorker starts the worker and the load process and calls do. Afterwards it ends all child
// processes, including those that do started.
func withWorker(ctx context.Context, o options,
	do func(ctx context.Context, c *children, b *bench, worker string) error) (err error) {
	dir, err := os.MkdirTemp("", "tierway-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for configuration and logs: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	c := &children{Group: processes.Group{Dir: dir}}
	defer c.Wait()
	defer cancel()

	key, err := tenants.NewKey(rand.Reader, tenants.TenantPrefix)
	if err != nil {
		return fmt.Errorf("making a tenant's key: %w", err)
	}
	worker, err := c.startWorker(ctx)
	if err != nil {
		return err
	}
	b := &bench{key: key, setup: setup{Cores: runtime.NumCPU(), Connections: o.connections, Rounds: o.rounds,
		Seconds: o.seconds, Rate: o.rate}}
	if b.load, err = c.startLoad(ctx); err != nil {
		return err
	}
	return do(ctx, c, b, worker)
}

// withChildren is withWorker with the gateway in front of the worker. It also starts nginx
// (except for -memory), the gateways of -old and, with -watched, one that records its requests.
func withChildren(ctx context.Context, o options, do func(*bench) error) error {
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		var before proxy
		var err error
		if !o.memory {
			if before, err = c.startNginx(ctx, o.nginx, worker); err != nil {
				return err
			}
		}
		conf := ""
		if o.netHTTP && o.memory {
			conf = withoutFastHTTP1
		}
		g, err := c.startTierway(ctx, "tierway", o.bin, worker, b.key, conf)
		if err != nil {
			return err
		}
		b.targets = []target{{name: "direct", addr: worker}, {name: "nginx", addr: before.addr, pid: before.pid},
			{name: "tierway", addr: g.addr, pid: g.pid, admin: g.admin}}
		b.setup.Nginx, b.setup.Tierway = before.version, g.version
		for i, path := range o.old {
			name := fmt.Sprint("old", i+1)
			conf := ""
			if o.netHTTP {
				conf = withoutFastHTTP1
			}
			old, err := c.startTierway(ctx, name, path, worker, b.key, conf)
			if err != nil {
				return err
			}
			b.targets = append(b.targets, target{name: path, addr: old.addr, pid: old.pid, admin: old.admin})
		}
		if o.watched && !o.memory {
			sink, _, err := c.startListener(ctx, "collector")
			if err != nil {
				return err
			}
			seen, err := c.startTierway(ctx, "watched", o.bin, worker, b.key, watchedConf(sink, c.Dir, "watched", traceFew))
			if err != nil {
				return err
			}
			b.targets = append(b.targets, target{name: "watched", addr: seen.addr, pid: seen.pid, admin: seen.admin})
		}
		for _, v := range o.versus {
			pid, err := processes.ListeningProcess(os.DirFS("/proc"), v.addr)
			if err != nil {
				return fmt.Errorf("looking for the process of %s (-vs): %w", v.name, err)
			}
			b.targets = append(b.targets, target{name: v.name, addr: v.addr, pid: pid})
		}
		return do(b)
	})
}

const withoutFastHTTP1 = "fast_http1: false\n"

// warmUp is the duration in seconds of the load on each target before the rounds of a shape. Its
// results are discarded: it opens connections, fills caches and grows heaps.
const warmUp = 0.5

// speed measures requests per second for each shape, then latency at a fixed rate.
func (b *bench) speed(ctx context.Context, o options, out io.Writer) error {
	rep := report{setup: b.setup}
	for _, s := range shapes() {
		measured, err := b.rounds(ctx, o, job{Key: b.key, Shape: s.name, Connections: o.connections, Seconds: o.seconds})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rep.Throughput = append(rep.Throughput, throughputOf(s, measured))
	}
	measured, err := b.rounds(ctx, o, job{Key: b.key, Shape: shapes()[0].name, Connections: o.connections,
		Seconds: o.seconds, Rate: o.rate})
	if err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	rep.Latency = latencyOf(measured)
	return printReport(out, o, rep)
}

// rounds runs a job on every target in every round. The order of the targets changes from round
// to round, so that a machine that slows down affects all of them.
func (b *bench) rounds(ctx context.Context, o options, j job) ([][]result, error) {
	all := make([][]result, o.rounds)
	for round := -1; round < o.rounds; round++ {
		results := make([]result, len(b.targets))
		for turn := range b.targets {
			i := (turn + round + 1) % len(b.targets)
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("interrupted: %w", err)
			}
			now := j
			now.Addr, now.Shape = b.targets[i].addr, cmp.Or(b.targets[i].shape, j.Shape)
			now.Keys, now.Sessions = b.targets[i].keys, b.targets[i].sessions
			if round < 0 {
				now.Seconds = min(warmUp, j.Seconds)
			}
			var err error
			if o.cpu {
				results[i], err = b.runWithCPU(ctx, now, b.targets[i], o.pause)
			} else {
				results[i], err = b.runChecked(now)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.targets[i].name, err)
			}
		}
		if round >= 0 {
			all[round] = results
		}
	}
	return all, nil
}

// runChecked runs a job. It returns an error if a request failed or none was answered.
func (b *bench) runChecked(j job) (result, error) {
	r, err := b.load.run(j)
	if err == nil && (r.Failed > 0 || r.Done == 0) {
		err = fmt.Errorf("%d answers were complete, %d requests failed: %s", r.Done, r.Failed, r.Failure)
	}
	return r, err
}

// printReport prints a report as a table, or as JSON with -json.
func printReport(out io.Writer, o options, report fmt.Stringer) error {
	if o.asJSON {
		return encode(out, report)
	}
	_, err := io.WriteString(out, report.String())
	return err
}

func encode(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}
