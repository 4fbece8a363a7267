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
)

const (
	// watchedShare is the load at which the two gateways are compared, of what the
	// silent one answers at most: a gateway that is not overloaded.
	watchedShare = 0.8
	// watchedFloor is the least part of the silent gateway's answers that the
	// watched one has to give at that load.
	watchedFloor = 0.9
)

// watchedThroughput compares a gateway that is watched with one that is not, in
// requests of one shape.
type watchedThroughput struct {
	Shape    string  `json:"shape"`
	Capacity spread  `json:"silent_capacity_per_second"`
	Offered  spread  `json:"offered_per_second"`
	Silent   spread  `json:"silent_per_second"`
	Watched  spread  `json:"watched_per_second"`
	Ratio    spread  `json:"watched_over_silent"` // at that load
	Most     spread  `json:"watched_capacity_over_silent"`
	Floor    float64 `json:"floor"`
}

// watchedReport is what -watched prints.
type watchedReport struct {
	setup
	Throughput []watchedThroughput `json:"throughput"`
	Collected  collected           `json:"collected"`
	Records    int64               `json:"record_bytes"` // that were written to files
	Lost       lost                `json:"lost"`
}

// lost is the share of what was to be told that found a queue full.
type lost struct {
	Spans   float64 `json:"spans"`
	Records float64 `json:"records"`
}

// collected is what a collector was sent.
type collected struct {
	Posts int64 `json:"posts"`
	Bytes int64 `json:"bytes"`
}

// watched measures what it costs to see everything: in each round the silent
// gateway's capacity, then both gateways at watchedShare of it and the watched
// one's own capacity, in turns.
func watched(ctx context.Context, o options, out io.Writer) error {
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		sink, counts, err := c.listener(ctx, "collector")
		if err != nil {
			return err
		}
		silent, err := c.tierway(ctx, "silent", o.bin, worker, b.key, silentConf())
		if err != nil {
			return err
		}
		seen, err := c.tierway(ctx, "watched", o.bin, worker, b.key, watchedConf(sink, c.dir, "watched"))
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
		time.Sleep(settle) // what is on its way is exported within seconds
		if err := askCollector(ctx, sink, counts, &rep.Collected); err != nil {
			return err
		}
		if rep.Records, err = sizeOf(filepath.Join(c.dir, "watched.jsonl*")); err != nil {
			return err
		}
		if rep.Lost, err = lostBy(ctx, seen.admin); err != nil {
			return err
		}
		if rep.Collected.Posts == 0 || rep.Records == 0 {
			return fmt.Errorf("%d posts of traces and %d bytes of records: the watched gateway is not watched",
				rep.Collected.Posts, rep.Records)
		}
		return errors.Join(show(out, o, rep), rep.missed())
	})
}

// missed is an error where a floor was missed, so that who measures without reading
// is told too.
func (r watchedReport) missed() error {
	var errs []error
	for _, t := range r.Throughput {
		if !(t.Ratio.Median >= t.Floor) { // no number misses it too
			errs = append(errs, fmt.Errorf("%s: watched ÷ silent is %.2f at %g of its capacity; the floor is %.2f", t.Shape,
				t.Ratio.Median, watchedShare, t.Floor))
		}
	}
	return errors.Join(errs...)
}

// watchedRounds measures one shape.
func (b *bench) watchedRounds(ctx context.Context, o options, s shape, silent, seen string) (watchedThroughput, error) {
	t := watchedThroughput{Shape: s.name, Floor: watchedFloor}
	ask := func(addr string, rate, seconds float64) (float64, error) {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("interrupted: %w", err)
		}
		r, err := b.whole(job{Addr: addr, Key: b.key, Shape: s.name, Connections: o.connections, Seconds: seconds,
			Rate: rate})
		return r.PerSec, err
	}
	for _, addr := range []string{silent, seen} {
		if _, err := ask(addr, 0, min(warmUp, o.seconds)); err != nil {
			return t, err
		}
	}
	// Of each round: the silent one's capacity, both at the load, the watched one's.
	rounds := make([][4]float64, o.rounds)
	for i := range rounds {
		r := &rounds[i]
		var err error
		if r[0], err = ask(silent, 0, o.seconds); err != nil {
			return t, err
		}
		at := []string{silent, seen}
		for turn := range at {
			which := (turn + i) % 2
			if r[1+which], err = ask(at[which], watchedShare*r[0], o.seconds); err != nil {
				return t, err
			}
		}
		if r[3], err = ask(seen, 0, o.seconds); err != nil {
			return t, err
		}
	}
	t.fill(rounds)
	return t, nil
}

// fill sums up rounds of: the silent gateway's capacity, what it and the watched
// one answered at the load, the watched one's capacity.
func (t *watchedThroughput) fill(rounds [][4]float64) {
	of := func(value func([4]float64) float64) spread { return spreadOf(rounds, value) }
	t.Capacity = of(func(r [4]float64) float64 { return r[0] })
	t.Offered = of(func(r [4]float64) float64 { return watchedShare * r[0] })
	t.Silent = of(func(r [4]float64) float64 { return r[1] })
	t.Watched = of(func(r [4]float64) float64 { return r[2] })
	t.Ratio = of(func(r [4]float64) float64 { return r[2] / r[1] })
	t.Most = of(func(r [4]float64) float64 { return r[3] / r[0] })
}

// String is the report as a table.
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

// serveCollector takes what exporters post, answers at once and keeps nothing. It
// prints its address, and what it was sent whenever it is asked for /counts.
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
		_, _ = io.Copy(io.Discard, in) // ends when the parent does, however it ends
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
		printed.Encode(collected{Posts: posts.Load(), Bytes: bytes.Load()}) //nolint:errcheck // the parent is gone
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err := s.Serve(l); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// askCollector has the collector print what it was sent.
func askCollector(ctx context.Context, addr string, counts *json.Decoder, into *collected) error {
	if err := answers(ctx, "http://"+addr+"/counts"); err != nil {
		return fmt.Errorf("asking the collector: %w", err)
	}
	if err := counts.Decode(into); err != nil {
		return fmt.Errorf("reading what the collector was sent: %w", err)
	}
	return nil
}

// lostBy asks a gateway's metrics for what it has not told anybody.
func lostBy(ctx context.Context, admin string) (l lost, err error) {
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
	l.Spans = share(string(text), `tierway_trace_spans_total{result="dropped"}`, "tierway_trace_spans_total{")
	l.Records = share(string(text), "tierway_decisions_dropped_total", "tierway_decisions_dropped_total",
		"tierway_decisions_written_total")
	return l, nil
}

// share is what one series has of all whose lines begin so.
func share(metrics, part string, of ...string) float64 {
	sum, some := 0.0, 0.0
	for line := range strings.Lines(metrics) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !slices.ContainsFunc(of, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		if sum += value; name == part {
			some = value
		}
	}
	return some / max(sum, 1)
}

// sizeOf is how many bytes all files of a pattern have.
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
