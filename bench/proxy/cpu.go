package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
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
	Allocated  spread `json:"allocations_per_request"` // 0 if it is not a Tierway
	TierwayBy  spread `json:"tierway_by_it"`
}

// cpu measures the processor time per complete answer of nginx, the gateway and older gateways,
// at a rate far below their capacity.
func (b *bench) cpu(ctx context.Context, o options, out io.Writer) error {
	b.targets = b.targets[nginx:] // without the worker, which is not a proxy
	rep := cpuReport{setup: b.setup}
	for _, s := range cpuShapes() {
		if !strings.HasPrefix(s.name, o.shape) {
			continue
		}
		load := job{Key: b.key, Shape: s.name, Connections: o.connections, Seconds: o.seconds, Rate: o.rate * s.pace}
		measured, err := b.rounds(ctx, o, load)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rep.Loads = append(rep.Loads, cpuLoadOf(load, b.targets, measured))
	}
	if len(rep.Loads) == 0 {
		return fmt.Errorf("no load has a name that begins with %q (-shape)", o.shape)
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
			Allocated:  spreadOf(rounds, func(r []result) float64 { return r[i].Allocated }),
			TierwayBy:  by(1, i),
		})
	}
	return load
}

// runWithCPU is runChecked with the processor time of a target's process, and the memory that it allocates, during
// the load and the pause after it.
func (b *bench) runWithCPU(ctx context.Context, j job, t target, pause time.Duration) (r result, err error) {
	proc := os.DirFS("/proc")
	var allocated [3]float64
	for i := range 2 { // the difference is what reading the number costs
		if allocated[i], err = allocations(ctx, t.admin); err != nil {
			return r, err
		}
	}
	before, err := processes.CPUTime(proc, t.pid)
	if err != nil {
		return r, err
	}
	if r, err = b.runChecked(j); err != nil {
		return r, err
	}
	time.Sleep(pause)
	after, err := processes.CPUTime(proc, t.pid)
	if err != nil {
		return r, err
	}
	r.CPU = float64(after-before) / float64(time.Microsecond) / float64(r.Done)
	allocated[2], err = allocations(ctx, t.admin)
	r.Allocated = (allocated[2] - 2*allocated[1] + allocated[0]) / float64(r.Done)
	return r, err
}

// allocations returns how often a gateway has allocated memory; 0 without its admin plane.
func allocations(ctx context.Context, admin string) (n float64, err error) {
	if admin == "" {
		return 0, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("making a request for metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			n, err = strconv.ParseFloat(value, 64)
		}
	}
	if err = errors.Join(err, lines.Err()); err == nil && n == 0 {
		err = fmt.Errorf("http://%s/metrics has no go_memstats_mallocs_total", admin)
	}
	return n, err
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
		fmt.Fprintf(&b, "\n%s at %g/s\n%-*s  %-22s %-22s %-24s %s\n", l.Shape, l.Rate,
			width, "", "µs (min–max)", "÷ nginx (min–max)", "tierway ÷ it (min–max)", "allocations")
		for _, t := range l.Targets {
			micros := fmt.Sprintf("%.0f (%.0f–%.0f)", t.PerRequest.Median, t.PerRequest.Min, t.PerRequest.Max)
			allocated := "" // nginx has no such count
			if n := t.Allocated.Median; n > 0 {
				allocated = fmt.Sprintf("%.0f", n)
			}
			fmt.Fprintf(&b, "%-*s  %-22s %-22s %-24s %s\n", width, t.Name, micros, ratio(t.ByNginx), ratio(t.TierwayBy),
				allocated)
		}
	}
	b.WriteString("\nevery answer was read to its end and whole\n")
	return b.String()
}
