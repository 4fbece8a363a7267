package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"tierway/bench/processes"
	"tierway/tenants"
)

// curve is what -scale measures: the cost of a request by the number of one kind of thing.
type curve struct {
	name  string
	sizes []int // ascending; the first one is the reference
	// conf returns the part of the configuration that differs. dead is an address without a worker.
	conf func(n int, worker, dead string) string
	// What has the size. Each tenant or session sends a request before the rounds.
	keys, sessions, streams bool
}

// curves returns all curves. An idle stream takes two file descriptors of the gateway, of which most systems allow
// 20,000 to a process.
func curves() []curve {
	plain := func(_ int, worker, _ string) string { return onePool("least_load", worker) }
	return []curve{
		{name: "workers of a pool", sizes: []int{1, 20, 200}, conf: func(n int, worker, _ string) string {
			return onePool("least_load", slices.Repeat([]string{worker}, n)...)
		}},
		{name: "tenants", sizes: []int{1, 100, 10_000}, conf: plain, keys: true},
		{name: "keyword rules", sizes: []int{1, 30, 1000}, conf: classified},
		{name: "sessions with a pin", sizes: []int{1, 1000, 100_000}, sessions: true,
			conf: func(_ int, worker, dead string) string {
				return onePool("rendezvous_hash", worker, worker, dead) +
					"health: { interval: 1s, timeout: 1s, down_after: 1 }\n"
			}},
		{name: "idle streams", sizes: []int{0, 1000, 9000}, conf: plain, streams: true},
	}
}

// onePool returns the configuration of one pool with a worker at each address. The URLs differ in their paths, which
// the measured worker ignores.
func onePool(policy string, addresses ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tiers:\n  - name: bench\n    model: %s\n    policy: { name: %s }\n    workers:\n", served, policy)
	for i, addr := range addresses {
		fmt.Fprintf(&b, "      - { name: w%d, url: \"http://%s/%d\" }\n", i, addr, i)
	}
	fmt.Fprintf(&b, "models: { %q: bench }\n", alias)
	return b.String()
}

// classified returns the configuration of two tiers and n keyword rules, of which none matches.
func classified(n int, worker, _ string) string {
	var b strings.Builder
	b.WriteString("tiers:\n")
	for i, tier := range []struct{ name, model string }{{"small", served}, {"large", served + "-large"}} {
		fmt.Fprintf(&b, "  - { name: %s, model: %s, workers: [ { name: %[1]s-0, url: \"http://%[3]s/%[4]d\" } ] }\n",
			tier.name, tier.model, worker, i)
	}
	fmt.Fprintf(&b, "models: { %q: classify }\nclassifier:\n  preset: none\n  keywords:\n", alias)
	for i := range n {
		fmt.Fprintf(&b, "    - { tier: large, name: rule-%d, match: ['\\bproject %04d\\b'] }\n", i, i)
	}
	return b.String()
}

// scaleConf returns the configuration of a gateway with one tenant per key.
func scaleConf(name string, keys []string, more string) string {
	var b strings.Builder
	b.WriteString("auth:\n  required: true\n  keys:\n")
	for i, key := range keys {
		digest := tenants.Digest(key)
		fmt.Fprintf(&b, "    - { name: tenant-%d, sha256: %q }\n", i, hex.EncodeToString(digest[:]))
	}
	fmt.Fprintf(&b, "store: { sql: \"sqlite://%s.db\" }\ndrain: { accept_grace: 0s, timeout: 1s }\n", name)
	return b.String() + more
}

// scaleReport is what -scale prints.
type scaleReport struct {
	setup
	Curves []scaleCurve `json:"curves"`
}

// scaleCurve is the cost of a request by one number.
type scaleCurve struct {
	Name   string       `json:"name"`
	Points []scalePoint `json:"points"`
}

// scalePoint compares one size with the smallest one, in the same rounds.
type scalePoint struct {
	Size       int     `json:"size"`
	PerRequest spread  `json:"cpu_us_per_request"`
	Ratio      spread  `json:"by_smallest"`
	P99        spread  `json:"p99_by_smallest"`
	Resident   float64 `json:"resident_mib"` // after the rounds
}

// measureScale measures the processor time per request of gateways of all sizes of each curve, at -rate requests per
// second in turns.
func measureScale(ctx context.Context, o options, out io.Writer) error {
	o.cpu = true
	rep := scaleReport{}
	for _, c := range curves() {
		if !strings.HasPrefix(c.name, o.shape) {
			continue
		}
		err := withWorker(ctx, o, func(ctx context.Context, all *children, b *bench, worker string) error {
			measured, err := measureCurve(ctx, o, c, all, b, worker)
			rep.setup = b.setup
			rep.Curves = append(rep.Curves, measured)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if len(rep.Curves) == 0 {
		return fmt.Errorf("no curve has a name that begins with %q (-shape)", o.shape)
	}
	return printReport(out, o, rep)
}

func measureCurve(ctx context.Context, o options, c curve, all *children, b *bench, worker string) (scaleCurve, error) {
	dead, err := processes.FreeAddr()
	if err != nil {
		return scaleCurve{}, err
	}
	for _, n := range c.sizes {
		t, err := startSize(ctx, o, c, n, all, b, worker, dead)
		if err != nil {
			return scaleCurve{}, fmt.Errorf("%d: %w", n, err)
		}
		b.targets = append(b.targets, t)
	}
	rounds, err := b.rounds(ctx, o, job{Shape: shapes()[0].name, Connections: o.connections, Seconds: o.seconds,
		Rate: o.rate})
	if err != nil {
		return scaleCurve{}, err
	}
	measured := scaleCurveOf(c, rounds)
	for i := range measured.Points {
		memory, err := processes.ReadMemory(b.targets[i].pid)
		if err != nil {
			return scaleCurve{}, err
		}
		measured.Points[i].Resident = float64(memory.Now) / 1024
	}
	return measured, nil
}

// startSize starts a gateway of one size, with its sessions or streams.
func startSize(ctx context.Context, o options, c curve, n int, all *children, b *bench, worker, dead string) (t target,
	err error) {
	t = target{name: fmt.Sprint(n), keys: 1}
	if c.keys {
		t.keys = n
	}
	keys, err := keysOf(t.keys)
	if err != nil {
		return t, err
	}
	name := "size-" + t.name
	g, err := all.startGateway(ctx, name, o.bin, scaleConf(name, keys, c.conf(n, worker, dead)))
	if err != nil {
		return t, err
	}
	b.setup.Tierway, t.addr, t.pid, t.admin = g.version, g.addr, g.pid, g.admin
	if c.sessions {
		t.sessions = n
	}
	if c.keys || c.sessions {
		_, err = b.runChecked(job{Addr: t.addr, Keys: t.keys, Sessions: t.sessions, Shape: shapes()[0].name,
			Connections: o.connections, Count: n})
	}
	if c.streams && n > 0 {
		// The streams last until this load process ends, or has another job.
		var holder *load
		if holder, err = all.startLoad(ctx); err == nil {
			_, err = (&bench{load: holder}).runChecked(job{Addr: t.addr, Key: keys[0], Hold: n})
		}
	}
	return t, err
}

// scaleCurveOf compares the results of all sizes with those of the first one.
func scaleCurveOf(c curve, rounds [][]result) scaleCurve {
	measured := scaleCurve{Name: c.name}
	for i, n := range c.sizes {
		measured.Points = append(measured.Points, scalePoint{
			Size:       n,
			PerRequest: spreadOf(rounds, func(r []result) float64 { return r[i].CPU }),
			Ratio:      spreadOf(rounds, func(r []result) float64 { return r[i].CPU / r[0].CPU }),
			P99:        spreadOf(rounds, func(r []result) float64 { return r[i].P99 / r[0].P99 }),
		})
	}
	return measured
}

// String returns the report as tables.
func (r scaleReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: processor time per whole answer, %d cores, %g requests of 400 B per second, ", r.Tierway, r.Cores,
		r.Rate)
	fmt.Fprintf(&b, "median of %d rounds of %g s in turns\n", r.Rounds, r.Seconds)
	for _, c := range r.Curves {
		fmt.Fprintf(&b, "\n%-20s %-18s %-18s %-18s %s\n", c.Name, "µs (min–max)", "÷ smallest", "p99 ÷ smallest", "MiB")
		for _, p := range c.Points {
			micros := fmt.Sprintf("%.0f (%.0f–%.0f)", p.PerRequest.Median, p.PerRequest.Min, p.PerRequest.Max)
			fmt.Fprintf(&b, "%-20d %-18s %-18s %-18s %.0f\n", p.Size, micros, ratio(p.Ratio), ratio(p.P99), p.Resident)
		}
	}
	return b.String()
}
