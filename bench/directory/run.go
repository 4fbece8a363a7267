package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"tierway/bench/processes"
)

// measurement is a run with its results so far.
type measurement struct {
	options
	progress io.Writer

	version string // of the binary
	starts  []startResult
	changes []changeResult
	revokes []revokeResult
	idles   []idleResult
	reloads []reloadResult
}

// cell is a database with its contents.
type cell struct {
	database string
	seeds    seeds
}

// cells returns the databases of a run, those of one kind together and by ascending size.
func (o options) cells() (all []cell) {
	for _, kind := range o.databases {
		for _, n := range o.sizes {
			all = append(all, cell{kind, seeds{keys: n}})
		}
		if o.skewed {
			all = append(all, cell{kind, seeds{keys: o.sizes[len(o.sizes)-1], skewed: true}})
		}
	}
	return all
}

// run measures all cells. A cell that fails does not end the run.
func (m *measurement) run(ctx context.Context) error {
	output, err := exec.CommandContext(ctx, m.binary, "version").Output()
	if err != nil {
		return fmt.Errorf("reading the version of %s: %w", m.binary, err)
	}
	m.version, _, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	var failed error
	for _, c := range m.cells() {
		if err := m.measureCell(ctx, c); err != nil {
			m.say(c, "%v", err)
			failed = errors.Join(failed, fmt.Errorf("%s, keys: %s: %w", c.database, c.seeds, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// measureCell fills a database and measures gateways without Redis, with it, and with many workers.
func (m *measurement) measureCell(ctx context.Context, c cell) (err error) {
	dir, err := os.MkdirTemp("", "tierway-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for databases and logs: %w", err)
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	d, err := newDatabase(ctx, m.binary, c.database, dir, c.seeds)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.remove()) }()
	m.say(c, "filled the database in %s", time.Since(began).Round(time.Millisecond))
	for _, withRedis := range []bool{false, true} {
		if err := m.measureFleet(ctx, c, d, dir, withRedis); err != nil {
			return err
		}
	}
	return m.measureReload(ctx, c, d, dir)
}

// measureFleet measures three gateways: their starts, changes and revocations. Without Redis, it also measures memory
// and idle time.
func (m *measurement) measureFleet(ctx context.Context, c cell, d *database, dir string, withRedis bool) error {
	f, err := newFleet(dir, rand.Reader)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer f.Wait()
	defer cancel()
	redis, window := "", windowWithoutRedis
	if withRedis {
		server, err := f.StartRedis(ctx, "redis", m.redis)
		if err != nil {
			return err
		}
		redis, window = "redis://"+server.Addr, windowWithRedis
	}
	for range gateways {
		if err := f.checkMemory(); err != nil {
			return errors.Join(err, m.addStarts(c, f))
		}
		if err := f.add(ctx, m.binary, d.url, redis, 1); err != nil {
			return err
		}
	}
	if err := sleep(ctx, m.settle); err != nil {
		return err
	}
	if accepted, err := f.allAccept(ctx, &d.secret, true)(); err != nil || !accepted {
		return errors.Join(err, errors.New("a gateway does not accept a key of the database"))
	}
	if !withRedis {
		if err := m.addStarts(c, f); err != nil {
			return err
		}
	}
	if err := f.checkMemory(); err != nil {
		return err
	}
	m.say(c, "started (Redis: %t)", withRedis)
	meter := newMeter(f, window)
	costs, err := meter.measureChanges(ctx, tenantName(0), m.rounds)
	if err != nil {
		return err
	}
	for i, list := range costs {
		m.changes = append(m.changes, changeResult{cell: c, redis: withRedis, change: changeNames()[i], cost: medians(list)})
	}
	m.say(c, "changed (Redis: %t)", withRedis)
	times, err := meter.measureRevocations(ctx, tenantName(0), m.revocations)
	if err != nil {
		return err
	}
	m.revokes = append(m.revokes, revokeResult{cell: c, redis: withRedis, times: times})
	m.say(c, "revoked (Redis: %t)", withRedis)
	if withRedis || m.options.idle == 0 {
		return nil
	}
	idle, err := meter.measureIdle(ctx, m.options.idle)
	m.idles = append(m.idles, idleResult{cell: c, perMinute: idle})
	m.say(c, "idle")
	return err
}

// addStarts keeps what the starts of a fleet cost, and its memory.
func (m *measurement) addStarts(c cell, f *fleet) error {
	r := startResult{cell: c}
	for _, g := range f.list {
		memory, err := processes.ReadMemory(g.pid)
		if err != nil {
			return err
		}
		r.walls, r.cpus = append(r.walls, g.start.wall), append(r.cpus, g.start.cpu)
		r.peakKiB, r.nowKiB = max(r.peakKiB, memory.Peak), max(r.nowKiB, memory.Now)
	}
	m.starts = append(m.starts, r)
	return nil
}

// measureReload measures the reload of one gateway with many workers.
func (m *measurement) measureReload(ctx context.Context, c cell, d *database, dir string) error {
	f, err := newFleet(dir, rand.Reader)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer f.Wait()
	defer cancel()
	if err := f.add(ctx, m.binary, d.url, "", m.workers); err != nil {
		return err
	}
	if err := sleep(ctx, m.settle); err != nil {
		return err
	}
	meter := newMeter(f, windowWithRedis)
	costs, err := meter.measureReloads(ctx, d.url, m.workers, m.rounds)
	if err != nil {
		return err
	}
	m.reloads = append(m.reloads, reloadResult{cell: c, cost: medians(costs)})
	m.say(c, "reloaded")
	return nil
}

// say prints a line about the progress.
func (m *measurement) say(c cell, format string, args ...any) {
	fmt.Fprintf(m.progress, "%s %s, keys: %s: %s\n", time.Now().Format(time.TimeOnly), c.database, c.seeds,
		fmt.Sprintf(format, args...))
}

// setup describes the conditions of the measurement.
func (m *measurement) setup() string {
	return fmt.Sprintf("%s: %d gateways, %d cores, medians of %d changes and %d revocations", m.version, gateways,
		runtime.NumCPU(), m.rounds, m.revocations)
}
