package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"tierway/bench/processes"
)

const (
	// Gateways without Redis read the revision of the database once per second, and with Redis they exchange loads once
	// per second. A window of whole seconds has the same number of both, so that the time of idle gateways can be
	// subtracted.
	windowWithRedis    = time.Second
	windowWithoutRedis = 2 * time.Second
	quietTime          = 200 * time.Millisecond // the end of a window, in which gateways must be quiet
	quietCPU           = 2 * time.Millisecond   // of a quiet gateway in quietTime, above twice its idle time
	quietTimeout       = 2 * time.Minute
)

// cost is what a change costs: the time until the answer, and the processor time of each gateway.
type cost struct {
	wall time.Duration
	cpu  []time.Duration
}

// total is the processor time of all gateways.
func (c cost) total() (sum time.Duration) {
	for _, t := range c.cpu {
		sum += t
	}
	return sum
}

// meter measures the processor time of gateways in windows of one length.
type meter struct {
	fleet  *fleet
	window time.Duration
	idle   []time.Duration // of each gateway in the last window without a change
}

// newMeter returns a meter of gateways that are quiet since their start.
func newMeter(f *fleet, window time.Duration) *meter { return &meter{fleet: f, window: window} }

// renewIdle measures the idle time that measure subtracts; call it first. Idle time differs over minutes, so each round
// of changes has its own.
func (m *meter) renewIdle(ctx context.Context) error {
	before, err := m.cpu()
	if err != nil {
		return err
	}
	if err := sleep(ctx, m.window); err != nil {
		return err
	}
	after, err := m.cpu()
	if err != nil {
		return err
	}
	m.idle = make([]time.Duration, len(after))
	for i := range after {
		m.idle[i] = after[i] - before[i]
	}
	return nil
}

// cpu returns the processor time of each gateway since its start.
func (m *meter) cpu() ([]time.Duration, error) {
	all := make([]time.Duration, len(m.fleet.list))
	for i, g := range m.fleet.list {
		var err error
		if all[i], err = processes.CPUTime(os.DirFS("/proc"), g.pid); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measure makes a change and returns its cost, in as many windows as the gateways need until the change is in force and
// they are quiet again.
func (m *meter) measure(ctx context.Context, change func() error, inForce func() (bool, error)) (c cost, err error) {
	before, err := m.cpu()
	if err != nil {
		return c, err
	}
	began := time.Now()
	if err := change(); err != nil {
		return c, err
	}
	c.wall = time.Since(began)
	for windows := 1; ; windows++ {
		end := began.Add(time.Duration(windows) * m.window)
		if time.Until(end) < quietTime {
			continue
		}
		if err := sleep(ctx, time.Until(end)-quietTime); err != nil {
			return c, err
		}
		almost, err := m.cpu()
		if err != nil {
			return c, err
		}
		if err := sleep(ctx, time.Until(end)); err != nil {
			return c, err
		}
		after, err := m.cpu()
		if err != nil {
			return c, err
		}
		done := m.quiet(almost, after)
		if done {
			if done, err = inForce(); err != nil {
				return c, err
			}
		}
		if done {
			for i := range after {
				idle := m.idle[i] * time.Duration(windows)
				c.cpu = append(c.cpu, after[i]-before[i]-idle) // may be negative: only the median of many has a meaning
			}
			return c, nil
		}
		if time.Since(began) > quietTimeout {
			return c, fmt.Errorf("%s after a change, it is not in force or the gateways are not quiet", quietTimeout)
		}
	}
}

// measureIdle returns the processor time of each gateway per minute without a change.
func (m *meter) measureIdle(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	before, err := m.cpu()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	after, err := m.cpu()
	if err != nil {
		return nil, err
	}
	for i := range after {
		after[i] = time.Duration(float64(after[i]-before[i]) * float64(time.Minute) / float64(time.Since(began)))
	}
	return after, nil
}

// quiet reports whether all gateways used little time between two readings. The work of an idle window may fall into
// the time between them.
func (m *meter) quiet(from, to []time.Duration) bool {
	for i := range to {
		if to[i]-from[i] > quietCPU+2*m.idle[i] {
			return false
		}
	}
	return true
}

// sleep waits unless the run is interrupted.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}

var errInterrupted = errors.New("interrupted")

// median returns the median of a list that is not empty.
func median(list []time.Duration) time.Duration {
	list = slices.Clone(list)
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// medians are the medians of the parts of costs.
func medians(costs []cost) (c cost) {
	part := func(of func(cost) time.Duration) time.Duration {
		list := make([]time.Duration, 0, len(costs))
		for _, x := range costs {
			list = append(list, of(x))
		}
		return median(list)
	}
	c.wall = part(func(c cost) time.Duration { return c.wall })
	for i := range costs[0].cpu {
		c.cpu = append(c.cpu, part(func(c cost) time.Duration { return c.cpu[i] }))
	}
	return c
}
