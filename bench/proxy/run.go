package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"tierway/tenants"
)

// target is one process that the load process sends requests to.
type target struct {
	name, addr string
	pid        int // of a proxy
}

// bench is a run whose children are up.
type bench struct {
	load    *load
	targets []target // direct, nginx, tierway, then what -old names
	key     string
	setup   setup
}

const (
	direct = iota
	nginx
	tierway
)

// withWorker starts the worker and the load process, does what is asked and ends
// them and all that was started beside them.
func withWorker(ctx context.Context, o options,
	do func(ctx context.Context, c *children, b *bench, worker string) error) (err error) {
	dir, err := os.MkdirTemp("", "tierway-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for configuration and logs: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	c := &children{dir: dir}
	defer c.end()
	defer cancel()

	key, err := tenants.NewKey(rand.Reader, tenants.TenantPrefix)
	if err != nil {
		return fmt.Errorf("making a tenant's key: %w", err)
	}
	worker, err := c.worker(ctx)
	if err != nil {
		return err
	}
	b := &bench{key: key, setup: setup{Cores: runtime.NumCPU(), Connections: o.connections, Rounds: o.rounds,
		Seconds: o.seconds, Rate: o.rate}}
	if b.load, err = c.load(ctx); err != nil {
		return err
	}
	return do(ctx, c, b, worker)
}

// withChildren is withWorker with the gateway before the worker, and nginx and older
// gateways where they are measured too. The gateways are watched if that is asked for.
func withChildren(ctx context.Context, o options, do func(*bench) error) error {
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		var before proxy
		var err error
		if !o.memory {
			if before, err = c.nginx(ctx, o.nginx, worker); err != nil {
				return err
			}
		}
		more := func(string) string { return "" }
		if o.watched {
			sink, _, err := c.listener(ctx, "collector")
			if err != nil {
				return err
			}
			more = func(name string) string { return watchedConf(sink, c.dir, name) }
		}
		g, err := c.tierway(ctx, "tierway", o.bin, worker, b.key, more("tierway"))
		if err != nil {
			return err
		}
		b.targets = []target{{"direct", worker, 0}, {"nginx", before.addr, before.pid}, {"tierway", g.addr, g.pid}}
		b.setup.Nginx, b.setup.Tierway = before.version, g.version
		for i, path := range o.old {
			name := fmt.Sprint("old", i+1)
			old, err := c.tierway(ctx, name, path, worker, b.key, more(name))
			if err != nil {
				return err
			}
			b.targets = append(b.targets, target{path, old.addr, old.pid})
		}
		return do(b)
	})
}

// warmUp is asked of each target before each shape counts, and thrown away:
// connections, caches and the first growth of heaps.
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
	return show(out, o, rep)
}

// rounds does a job at every target in every round. Who goes first changes from
// round to round, so that a machine that slows down slows all of them.
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
			now.Addr = b.targets[i].addr
			if round < 0 {
				now.Seconds = min(warmUp, j.Seconds)
			}
			var err error
			if o.cpu {
				results[i], err = b.wholeWithCPU(now, b.targets[i].pid, o.pause)
			} else {
				results[i], err = b.whole(now)
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

// whole does a job of which nothing may fail.
func (b *bench) whole(j job) (result, error) {
	r, err := b.load.do(j)
	if err == nil && (r.Failed > 0 || r.Done == 0) {
		err = fmt.Errorf("%d answers were whole, %d were not: %s", r.Done, r.Failed, r.Failure)
	}
	return r, err
}

// show prints a report as a table, or as JSON with -json.
func show(out io.Writer, o options, report fmt.Stringer) error {
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
