package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tierway/bench/processes"
)

const (
	// watchedShare is the load of the comparison, as a share of the silent gateway's capacity.
	// It is below 1, so that the gateways are not overloaded.
	watchedShare = 0.8
	// watchedFloor is the minimum ratio of the watched gateway's throughput to the silent
	// gateway's at that load.
	watchedFloor = 0.9
)

// watchedThroughput compares the watched gateway (traces, records and logs on) with the silent
// one (all off) for requests of one shape.
type watchedThroughput struct {
	Shape    string  `json:"shape"`
	Capacity spread  `json:"silent_capacity_per_second"`
	Offered  spread  `json:"offered_per_second"`
	Silent   spread  `json:"silent_per_second"`
	Watched  spread  `json:"watched_per_second"`
	Ratio    spread  `json:"watched_over_silent"` // at watchedShare
	Most     spread  `json:"watched_capacity_over_silent"`
	Floor    float64 `json:"floor"`
}

// watchedReport is what -watched prints.
type watchedReport struct {
	setup
	Throughput []watchedThroughput `json:"throughput"`
	Collected  collected           `json:"collected"`
	Records    int64               `json:"record_bytes"` // written to files
	Lost       lost                `json:"lost"`
}

// lost holds the shares of spans and records that were dropped because a queue was full.
type lost struct {
	Spans   float64 `json:"spans"`
	Records float64 `json:"records"`
}

// collected counts what the collector received.
type collected struct {
	Posts int64 `json:"posts"`
	Bytes int64 `json:"bytes"`
}

// measureWatched measures the cost of traces, records and logs. Each round measures the silent
// gateway's capacity, both gateways at watchedShare of it in turns, and the watched gateway's
// capacity.
func measureWatched(ctx context.Context, o options, out io.Writer) error {
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		sink, counts, err := c.startListener(ctx, "collector")
		if err != nil {
			return err
		}
		silent, err := c.startTierway(ctx, "silent", o.bin, worker, b.key, silentConf())
		if err != nil {
			return err
		}
		seen, err := c.startTierway(ctx, "watched", o.bin, worker, b.key, watchedConf(sink, c.Dir, "watched", traceAll))
		if err != nil {
			return err
		}
		rep := watchedReport{setup: b.setup}
		rep.Tierway = seen.version
		for _, s := range []shape{shapes()[0], shapes()[2]} {
			t, err := b.watchedRounds(ctx, o, s, silent.addr, seen.addr)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rep.Throughput = append(rep.Throughput, t)
		}
		time.Sleep(settleTime) // the last spans are exported within seconds
		if err := readCounts(ctx, sink, counts, &rep.Collected); err != nil {
			return err
		}
		if rep.Records, err = sizeOf(filepath.Join(c.Dir, "watched.jsonl*")); err != nil {
			return err
		}
		if rep.Lost, err = readLost(ctx, seen.admin); err != nil {
			return err
		}
		if rep.Collected.Posts == 0 || rep.Records == 0 {
			return fmt.Errorf("%d posts of traces and %d bytes of records: the watched gateway does not record everything",
				rep.Collected.Posts, rep.Records)
		}
		return errors.Join(printReport(out, o, rep), rep.checkFloors())
	})
}

// checkFloors returns an error for each missed floor, so that the run fails too.
func (r watchedReport) checkFloors() error {
	var errs []error
	for _, t := range r.Throughput {
		if !(t.Ratio.Median >= t.Floor) { // NaN misses the floor too
			errs = append(errs, fmt.Errorf("%s: watched ÷ silent is %.2f at %g of its capacity; the floor is %.2f", t.Shape,
				t.Ratio.Median, watchedShare, t.Floor))
		}
	}
	return errors.Join(errs...)
}

// watchedRounds measures one shape.
func (b *bench) watchedRounds(ctx context.Context, o options, s shape, silent, seen string) (watchedThroughput, error) {
	t := watchedThroughput{Shape: s.name, Floor: watchedFloor}
	measure := func(addr string, rate, seconds float64) (float64, error) {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("interrupted: %w", err)
		}
		r, err := b.runChecked(job{Addr: addr, Key: b.key, Shape: s.name, Connections: o.connections, Seconds: seconds,
			Rate: rate})
		return r.PerSec, err
	}
	for _, addr := range []string{silent, seen} {
		if _, err := measure(addr, 0, min(warmUp, o.seconds)); err != nil {
			return t, err
		}
	}
	// A round has four figures: the silent gateway's capacity, the throughput of the silent and
	// of the watched gateway at the load, and the watched gateway's capacity.
	rounds := make([][4]float64, o.rounds)
	for i := range rounds {
		r := &rounds[i]
		var err error
		if r[0], err = measure(silent, 0, o.seconds); err != nil {
			return t, err
		}
		at := []string{silent, seen}
		for turn := range at {
			which := (turn + i) % 2
			if r[1+which], err = measure(at[which], watchedShare*r[0], o.seconds); err != nil {
				return t, err
			}
		}
		if r[3], err = measure(seen, 0, o.seconds); err != nil {
			return t, err
		}
	}
	t.setRounds(rounds)
	return t, nil
}

// setRounds sets the figures of t from the rounds of watchedRounds.
func (t *watchedThroughput) setRounds(rounds [][4]float64) {
	of := func(value func([4]float64) float64) spread { return spreadOf(rounds, value) }
	t.Capacity = of(func(r [4]float64) float64 { return r[0] })
	t.Offered = of(func(r [4]float64) float64 { return watchedShare * r[0] })
	t.Silent = of(func(r [4]float64) float64 { return r[1] })
	t.Watched = of(func(r [4]float64) float64 { return r[2] })
	t.Ratio = of(func(r [4]float64) float64 { return r[2] / r[1] })
	t.Most = of(func(r [4]float64) float64 { return r[3] / r[0] })
}

// String returns the report as a table.
func (r watchedReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s watched (every request traced, recorded to a file and logged) ÷ silent: %d cores, %d "+
		"connections, median of %d rounds of %g s in turns\n\n",
		r.Tierway, r.Cores, r.Connections, r.Rounds, r.Seconds)
	fmt.Fprintf(&b, "%-8s %10s %14s %10s %10s   %-26s %-6s %s\n", "requests", "silent/s", "80 % offered/s", "silent/s",
		"watched/s", "watched ÷ silent (min–max)", "floor", "at full load")
	for _, t := range r.Throughput {
		fmt.Fprintf(&b, "%-8s %10.0f %14.0f %10.0f %10.0f   %-26s %.2f %s %s\n", t.Shape, t.Capacity.Median, t.Offered.Median,
			t.Silent.Median, t.Watched.Median, ratio(t.Ratio), t.Floor, verdict(t.Ratio.Median >= t.Floor), ratio(t.Most))
	}
	fmt.Fprintf(&b, "\nthe collector was sent %d posts, %.1f MB; records written: %.1f MB; lost because a queue was "+
		"full: %.1f %% of the spans, %.1f %% of the records\n",
		r.Collected.Posts, float64(r.Collected.Bytes)/1e6, float64(r.Records)/1e6, 100*r.Lost.Spans, 100*r.Lost.Records)
	b.WriteString("every answer was read to its end and whole\n")
	return b.String()
}

// serveCollector runs a trace collector that counts and discards what it receives, until in
// ends. It prints its address, and its counts on every GET /counts.
func serveCollector(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	printed := json.NewEncoder(out)
	if err := printed.Encode(l.Addr().String()); err != nil {
		return fmt.Errorf("printing the address: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // returns when the parent process ends
		l.Close()
	}()
	var posts, bytes atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		posts.Add(1)
		bytes.Add(n)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	mux.HandleFunc("GET /counts", func(http.ResponseWriter, *http.Request) {
		printed.Encode(collected{Posts: posts.Load(), Bytes: bytes.Load()}) // the parent is gone
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err := s.Serve(l); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// readCounts makes the collector print its counts and reads them.
func readCounts(ctx context.Context, addr string, counts *json.Decoder, into *collected) error {
	if err := processes.CheckURL(ctx, "http://"+addr+"/counts"); err != nil {
		return fmt.Errorf("requesting the collector's counts: %w", err)
	}
	if err := counts.Decode(into); err != nil {
		return fmt.Errorf("reading the collector's counts: %w", err)
	}
	return nil
}

// readLost reads the shares of dropped spans and records from a gateway's metrics.
func readLost(ctx context.Context, admin string) (l lost, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return l, fmt.Errorf("making a request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return l, fmt.Errorf("reading the watched gateway's metrics: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return l, fmt.Errorf("reading the watched gateway's metrics: %w", err)
	}
	l.Spans = seriesShare(string(text), `tierway_trace_spans_total{result="dropped"}`, "tierway_trace_spans_total{")
	l.Records = seriesShare(string(text), "tierway_decisions_dropped_total", "tierway_decisions_dropped_total",
		"tierway_decisions_written_total")
	return l, nil
}

// seriesShare returns the value of the series part divided by the sum of all series that begin
// with one of the prefixes.
func seriesShare(metrics, part string, prefixes ...string) float64 {
	sum, some := 0.0, 0.0
	for line := range strings.Lines(metrics) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		if sum += value; name == part {
			some = value
		}
	}
	return some / max(sum, 1)
}

// sizeOf returns the total size of the files that match a pattern, in bytes.
func sizeOf(pattern string) (sum int64, err error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", pattern, err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return 0, fmt.Errorf("looking at a file of records: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}
