// Command proxy compares the built gateway with nginx. Both proxy the same worker in the same
// run, in turns, and requests without a proxy are the reference. Every response is read and
// checked; an incomplete response fails the run.
//
// It has nine modes:
//
//   - default: requests per second and added latency beside nginx
//   - -cpu: processor time per request; -old adds older builds, -vs other gateways, -watched records
//   - -memory: resident memory per idle stream
//   - -watched: throughput with all traces, records and logs, relative to none
//   - -tabs: processor time per request with open pages of the admin UI, beside none
//   - -hooks: processor time per request with a hook that allows, beside none
//   - -cache: processor time per request with a response cache: misses, exact and semantic hits, beside none
//   - -scale: processor time per request by the number of workers, tenants, keyword rules, sessions and idle streams
//   - -shared: processor time, commands and bytes of gateways that share through Redis, beside one without
//
// The worker, the load generator and each proxy are separate processes on loopback and compete
// for the processors. Therefore only shares and ratios are compared with the budget, not
// requests per second.
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
	"strings"
	"syscall"
	"time"
)

// options are the flags of a run.
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
	netHTTP     bool
	versus      []other
	shape       string
	shared      bool
	tabs        bool
	hooks       bool
	cache       bool
	scale       bool
	redis       string
	streams     int
	asJSON      bool
	bin         string
	nginx       string
}

// other is a gateway of -vs.
type other struct{ name, addr string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs a measurement, or one of the child processes that a measurement starts: worker, load
// or collector.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 2 && args[0] == "worker" {
		return serveWorker(args[1], in, out)
	}
	if len(args) == 1 {
		switch args[0] {
		case "load":
			return serveJobs(in, out)
		case "collector":
			return serveCollector(in, out)
		case "hook-http", "hook-ext_proc":
			return serveHook(args[0][len("hook-"):], in, out)
		}
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if o.watched && !o.cpu {
		return measureWatched(ctx, o, out)
	}
	if o.shared {
		return measureShared(ctx, o, out)
	}
	if o.tabs {
		return measureTabs(ctx, o, out)
	}
	if o.hooks {
		return measureHooks(ctx, o, out)
	}
	if o.cache {
		return measureCache(ctx, o, out)
	}
	if o.scale {
		return measureScale(ctx, o, out)
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
	o := options{pause: ledgerDelay}
	f := flag.NewFlagSet("proxy", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 5, "rounds; the report has their median")
	f.Float64Var(&o.seconds, "seconds", 2, "duration of the load on each target for each request shape in a round")
	f.IntVar(&o.connections, "connections", 32, "connections of the load process")
	f.Float64Var(&o.rate, "rate", 1000, "requests per second of the open loop that measures latency or -cpu")
	f.BoolVar(&o.memory, "memory", false, "measure memory of idle streams instead")
	f.BoolVar(&o.cpu, "cpu", false, "measure processor time per request at -rate instead (streams: a quarter of -rate)")
	f.Func("old", "with -cpu, another built gateway to measure in the same rounds; may be repeated",
		func(path string) error {
			o.old = append(o.old, path)
			return nil
		})
	f.Func("vs", "with -cpu, NAME=HOST:PORT of another gateway that runs on this machine, in front of a worker that the "+
		"command \"worker HOST:PORT\" of this program starts; may be repeated",
		func(text string) error {
			name, addr, ok := strings.Cut(text, "=")
			if !ok {
				return fmt.Errorf("%q is not NAME=HOST:PORT", text)
			}
			o.versus = append(o.versus, other{name, addr})
			return nil
		})
	f.StringVar(&o.shape, "shape", "", "with -cpu or -scale, measure only the loads or curves whose name begins with this")
	f.BoolVar(&o.watched, "watched", false, "measure the cost of traces, records, logs instead; with -cpu, "+
		"also measure a gateway with a decision file and 1% of the requests traced")
	f.BoolVar(&o.netHTTP, "nethttp", false,
		"set fast_http1: false in the gateways of -old; with -memory, also in that of -bin")
	f.BoolVar(&o.shared, "shared", false, "measure what gateways share through Redis at -rate instead")
	f.BoolVar(&o.tabs, "tabs", false, "measure what open pages of the admin UI cost at -rate instead")
	f.BoolVar(&o.hooks, "hooks", false, "measure what a hook costs at -rate instead")
	f.BoolVar(&o.cache, "cache", false, "measure what a response cache costs and saves at -rate instead")
	f.BoolVar(&o.scale, "scale", false, "measure processor time by the number of workers, tenants, rules, sessions and "+
		"idle streams at -rate instead")
	f.StringVar(&o.redis, "redis", "redis-server", "path or name of the redis-server program")
	f.IntVar(&o.streams, "streams", 2000, "idle streams that -memory holds")
	f.BoolVar(&o.asJSON, "json", false, "print the report as JSON")
	f.StringVar(&o.bin, "bin", "bin/tierway", "path of the built gateway")
	f.StringVar(&o.nginx, "nginx", "nginx", "path or name of the nginx program")
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
		return o, errors.New("-old requires -cpu: add -cpu or remove -old")
	case len(o.versus) > 0 && !o.cpu:
		return o, errors.New("-vs requires -cpu: add -cpu or remove -vs")
	case o.streams < 1 || o.streams > 20_000:
		return o, fmt.Errorf("-streams is %d: it must be 1 to 20000", o.streams)
	}
	return o, nil
}

// serveWorker runs the fixed worker until in ends.
func serveWorker(address string, in io.Reader, out io.Writer) error {
	l, err := listenUntil(address, in, out)
	if err != nil {
		return err
	}
	return newFixedWorker().serve(l)
}

// listenUntil listens on an address until in ends, as it does with the parent process. It prints the address.
func listenUntil(address string, in io.Reader, out io.Writer) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := json.NewEncoder(out).Encode(l.Addr().String()); err != nil {
		return nil, fmt.Errorf("printing the address: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		l.Close()
	}()
	return l, nil
}
