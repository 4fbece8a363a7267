// Command directory measures what the directory of tenants and keys costs gateways, by its size: the start, a change,
// a revocation, and a reload.
//
// For each database and each number of keys it fills a database and starts three gateways in turn. All changes go
// through the admin API of the first one, and the other two follow. The program uses the command line, the admin API
// and SQL only, so that -binary may be a build of another commit.
//
// The processor time of a change is that of all three gateways until they are quiet again, without the time of idle
// gateways. The machine has to serve the databases, the gateways and this program, so only ratios are comparable
// between machines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tierway/e2e/backends"
)

// options are the flags of a run.
type options struct {
	binary      string
	redis       string
	databases   []string
	sizes       []int
	skewed      bool
	rounds      int
	revocations int
	workers     int
	idle        time.Duration
	settle      time.Duration
	markdown    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and prints the report to out, and its progress to progress. After an error it prints what was measured.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	m := &measurement{options: o, progress: progress}
	measure := func() int {
		err = m.run(ctx)
		return 0
	}
	if !slices.Contains(o.databases, postgres) {
		measure()
	} else if backends.Main(backends.RunnerFunc(measure)) != 0 && err == nil {
		err = errors.New("starting or ending PostgreSQL failed")
	}
	_, printErr := io.WriteString(out, m.report(o.markdown))
	return errors.Join(err, printErr)
}

func parseOptions(args []string) (options, error) {
	o := options{databases: []string{sqlite, postgres}, sizes: []int{100, 10_000, 100_000, 1_000_000}}
	f := flag.NewFlagSet("directory", flag.ContinueOnError)
	f.StringVar(&o.binary, "binary", "bin/tierway", "path of the built gateway")
	f.StringVar(&o.redis, "redis", "redis-server", "path or name of the redis-server program")
	f.Func("databases", "databases, separated by commas (default sqlite,postgres)", func(text string) error {
		o.databases = strings.Split(text, ",")
		for _, name := range o.databases {
			if name != sqlite && name != postgres {
				return fmt.Errorf("%q is neither %s nor %s", name, sqlite, postgres)
			}
		}
		return nil
	})
	f.Func("sizes", "numbers of keys, separated by commas (default 100,10000,100000,1000000)",
		func(text string) (err error) {
			o.sizes, err = parseSizes(text)
			return err
		})
	f.BoolVar(&o.skewed, "skewed", true, "measure the last size also with half of the keys in one tenant")
	f.IntVar(&o.rounds, "rounds", 20, "changes of each kind; the report has their median")
	f.IntVar(&o.revocations, "revocations", 10, "timed revocations; the report has median and maximum")
	f.IntVar(&o.workers, "workers", 2000, "workers of the gateway that is reloaded")
	f.DurationVar(&o.idle, "idle", 2*time.Minute, "time without a change to measure idle gateways; 0s: not measured")
	f.DurationVar(&o.settle, "settle", 10*time.Second, "time from the last start until the memory is read")
	f.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	short := f.Bool("short", false, "a run of 4 minutes: SQLite with 100 and 10,000 keys, 5 changes of each kind")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *short {
		o.databases, o.sizes, o.skewed = []string{sqlite}, []int{100, 10_000}, false
		o.rounds, o.revocations, o.idle, o.settle = 5, 3, 0, 2*time.Second
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.rounds < 1 || o.rounds > 1000:
		return o, fmt.Errorf("-rounds is %d: it must be 1 to 1000", o.rounds)
	case o.revocations < 1 || o.revocations > 1000:
		return o, fmt.Errorf("-revocations is %d: it must be 1 to 1000", o.revocations)
	case o.workers < 1 || o.workers > maxWorkers:
		return o, fmt.Errorf("-workers is %d: it must be 1 to %d", o.workers, maxWorkers)
	case o.idle < 0 || o.settle < 0:
		return o, errors.New("-idle and -settle must not be negative")
	}
	return o, nil
}

// parseSizes returns ascending numbers of keys.
func parseSizes(text string) (sizes []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 2 || n > 10_000_000 {
			return nil, fmt.Errorf("%q is not a number from 2 to 10000000", part)
		}
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}
