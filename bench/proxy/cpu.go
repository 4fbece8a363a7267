package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// backlogWritten is when the ledger, which writes once a second, has written the
// rows of a load.
const backlogWritten = 1500 * time.Millisecond

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

// cpuTarget is the processor time of one proxy. Ratios are those of one round.
type cpuTarget struct {
	Name       string `json:"name"`
	PerRequest spread `json:"cpu_us_per_request"`
	ByNginx    spread `json:"by_nginx"`
	TierwayBy  spread `json:"tierway_by_it"`
}

// cpu measures the processor time per whole answer of nginx, the gateway and older
// gateways, at a rate that none of them is busy with.
func (b *bench) cpu(ctx context.Context, o options, out io.Writer) error {
	b.targets = b.targets[nginx:] // the worker is no proxy
	rep := cpuReport{setup: b.setup}
	for _, s := range shapes() {
		load := job{Key: b.key, Shape: s.name, Connections: o.connections, Seconds: o.seconds, Rate: o.rate * s.pace}
		measured, err := b.rounds(ctx, o, load)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rep.Loads = append(rep.Loads, cpuLoadOf(load, b.targets, measured))
	}
	return show(out, o, rep)
}

// cpuLoadOf compares the targets, of which nginx is the first and the gateway the
// second.
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

// wholeWithCPU is whole with the processor time of the process pid, which includes
// what the process does in the pause after the load.
func (b *bench) wholeWithCPU(j job, pid int, pause time.Duration) (result, error) {
	proc := os.DirFS("/proc")
	before, err := cpuTime(proc, pid)
	if err != nil {
		return result{}, err
	}
	r, err := b.whole(j)
	if err != nil {
		return r, err
	}
	time.Sleep(pause)
	after, err := cpuTime(proc, pid)
	r.CPU = float64(after-before) / float64(time.Microsecond) / float64(r.Done)
	return r, err
}

// cpuTime is the processor time of a process and its children until now, as proc
// has it. The time of a thread that ended would be missing; neither nginx nor Go ends threads.
func cpuTime(proc fs.FS, pid int) (sum time.Duration, err error) {
	threads, err := fs.Glob(proc, fmt.Sprintf("%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("process %d has no threads: it has ended", pid)
	}
	for _, thread := range threads {
		ran, err := numbers(proc, thread+"/schedstat") // in nanoseconds; stat counts hundredths of a second
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(ran[0])
		children, err := numbers(proc, thread+"/children")
		if err != nil {
			return 0, fmt.Errorf("reading the children of process %d: %w", pid, err)
		}
		for _, child := range children {
			ran, err := cpuTime(proc, child)
			if err != nil {
				return 0, err
			}
			sum += ran
		}
	}
	return sum, nil
}

// numbers are the fields of a file.
func numbers(files fs.FS, name string) (list []int, err error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// String is the report as a table.
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
