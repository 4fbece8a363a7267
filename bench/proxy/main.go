// Command proxy measures the built gateway beside nginx: both stand before the
// same worker in the same run, in turns, and each is compared with asking that
// worker directly. Every answer is read to its end and checked; one that is not
// whole fails the run.
//
// Worker, load and each proxy are processes of their own on loopback. With two
// cores they compete for them, which is why only shares and ratios are compared
// with the budget, never requests per second.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are what a run is asked for.
type options struct {
	rounds      int
	seconds     float64
	connections int
	rate        float64
	memory      bool
	cpu         bool
	old         []string
	pause       time.Duration // before -cpu reads a target's processor time after a load
	watched     bool
	streams     int
	asJSON      bool
	bin         string
	nginx       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program: a measurement, or one of the three children that it starts.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 {
		switch args[0] {
		case "worker":
			return serveWorker(in, out)
		case "load":
			return serveJobs(in, out)
		case "collector":
			return serveCollector(in, out)
		}
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if o.watched && !o.cpu {
		return watched(ctx, o, out)
	}
	if o.memory {
		return withChildren(ctx, o, func(b *bench) error { return b.memory(o, out) })
	}
	if o.cpu {
		return withChildren(ctx, o, func(b *bench) error { return b.cpu(ctx, o, out) })
	}
	return withChildren(ctx, o, func(b *bench) error { return b.speed(ctx, o, out) })
}

func parseOptions(args []string) (options, error) {
	o := options{pause: backlogWritten}
	f := flag.NewFlagSet("proxy", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 5, "rounds, of which the median counts")
	f.Float64Var(&o.seconds, "seconds", 2, "how long each target is asked for each shape in a round")
	f.IntVar(&o.connections, "connections", 32, "connections of the load process")
	f.Float64Var(&o.rate, "rate", 1000, "requests a second of the open loop that measures latency or -cpu")
	f.BoolVar(&o.memory, "memory", false, "measure memory of idle streams instead")
	f.BoolVar(&o.cpu, "cpu", false, "measure processor time per request at -rate instead; streams at a quarter of it")
	f.Func("old", "with -cpu, another built gateway to measure in the same rounds; may be repeated",
		func(path string) error {
			o.old = append(o.old, path)
			return nil
		})
	f.BoolVar(&o.watched, "watched", false, "measure what traces, records and logs cost instead; with -cpu, turn them on")
	f.IntVar(&o.streams, "streams", 2000, "idle streams that -memory holds")
	f.BoolVar(&o.asJSON, "json", false, "print the report as JSON")
	f.StringVar(&o.bin, "bin", "bin/tierway", "the built gateway")
	f.StringVar(&o.nginx, "nginx", "nginx", "nginx")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.rounds < 1 || o.rounds > 1000:
		return o, fmt.Errorf("-rounds is %d: it must be 1 to 1000", o.rounds)
	case o.seconds < 0.05 || o.seconds > 60:
		return o, fmt.Errorf("-seconds is %g: it must be 0.05 to 60", o.seconds)
	case o.connections < 1 || o.connections > 10_000:
		return o, fmt.Errorf("-connections is %d: it must be 1 to 10000", o.connections)
	case o.rate < 1:
		return o, fmt.Errorf("-rate is %g: it must be at least 1", o.rate)
	case len(o.old) > 0 && !o.cpu:
		return o, errors.New("-old is measured with -cpu only: add -cpu or remove -old")
	case o.streams < 1 || o.streams > 20_000:
		return o, fmt.Errorf("-streams is %d: it must be 1 to 20000", o.streams)
	}
	return o, nil
}

// serveWorker runs the fixed worker, whose address it prints, until in ends.
func serveWorker(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if err := json.NewEncoder(out).Encode(l.Addr().String()); err != nil {
		return fmt.Errorf("printing the address: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // ends when the parent does, however it ends
		l.Close()
	}()
	return newFixedWorker().serve(l)
}
