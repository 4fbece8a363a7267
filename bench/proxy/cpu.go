package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"tierway/bench/processes"
)

// ledgerDelay is the time until the ledger, which writes once per second, has written the rows
// of a load.
const ledgerDelay = 1500 * time.Millisecond

// cpuReport is what -cpu prints.
type cpuReport struct {
	setup
	Loads []cpuLoad `json:"loads"`
}

// cpuLoad compares all proxies under requests of one shape.
type cpuLoad struct {
	Shape   string      `json:"shape"`
	Rate    float64     `json:"requests_per_second"`
	Targets []cpuTarget `json:"targets"`
}

// cpuTarget is the processor time of one proxy. Ratios compare figures of the same round.
type cpuTarget struct {
	Name       string `json:"name"`
	PerRequest spread `json:"cpu_us_per_request"`
	ByNginx    spread `json:"by_nginx"`
	TierwayBy  spread `json:"tierway_by_it"`
}

// cpu measures the processor time per complete answer of nginx, the gateway and older gateways,
// at a rate far below their capacity.
func (b *bench) cpu(ctx context.Context, o options, out io.Writer) error {
	b.targets = b.targets[nginx:] // without the worker, which is not a proxy
	rep := cpuReport{setup: b.setup}
	for _, s := range shapes() {
		load := job{Key: b.key, Shape: s.name, Connections: o.connections, Seconds: o.seconds, Rate: o.rate * s.pace}
		measured, err := b.rounds(ctx, o, load)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rep.Loads = append(rep.Loads, cpuLoadOf(load, b.targets, measured))
	}
	return printReport(out, o, rep)
}

// cpuLoadOf compares the targets. The first must be nginx, the second the gateway.
func cpuLoadOf(j job, targets []target, rounds [][]result) cpuLoad {
	by := func(a, b int) spread {
		return spreadOf(rounds, func(r []result) float64 { return r[a].CPU / r[b].CPU })
	}
	load := cpuLoad{Shape: j.Shape, Rate: j.Rate}
	for i, t := range targets {
		load.Targets = append(load.Targets, cpuTarget{
			Name:       t.name,
			PerRequest: spreadOf(rounds, func(r []result) float64 { return r[i].CPU }),
			ByNginx:    by(i, 0),
			TierwayBy:  by(1, i),
		})
	}
	return load
}

// runWithCPU is runChecked with the processor time of process pid during the load and the pause
// after it.
func (b *bench) runWithCPU(j job, pid int, pause time.Duration) (result, error) {
	proc := os.DirFS("/proc")
	before, err := processes.CPUTime(proc, pid)
	if err != nil {
		return result{}, err
	}
	r, err := b.runChecked(j)
	if err != nil {
		return r, err
	}
	time.Sleep(pause)
	after, err := processes.CPUTime(proc, pid)
	r.CPU = float64(after-before) / float64(time.Microsecond) / float64(r.Done)
	return r, err
}

// String returns the report as a table.
func (r cpuReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s beside %s: processor time per whole answer, %d cores, %d connections, ",
		r.Tierway, r.Nginx, r.Cores, r.Connections)
	fmt.Fprintf(&b, "median of %d rounds of %g s in turns\n", r.Rounds, r.Seconds)
	width := 0
	for _, t := range r.Loads[0].Targets {
		width = max(width, len(t.Name))
	}
	for _, l := range r.Loads {
		fmt.Fprintf(&b, "\n%s at %g/s\n%-*s  %-26s %-26s %s\n", l.Shape, l.Rate,
			width, "", "µs (min–max)", "÷ nginx (min–max)", "tierway ÷ it (min–max)")
		for _, t := range l.Targets {
			micros := fmt.Sprintf("%.0f (%.0f–%.0f)", t.PerRequest.Median, t.PerRequest.Min, t.PerRequest.Max)
			fmt.Fprintf(&b, "%-*s  %-26s %-26s %s\n", width, t.Name, micros, ratio(t.ByNginx), ratio(t.TierwayBy))
		}
	}
	b.WriteString("\nevery answer was read to its end and whole\n")
	return b.String()
}
