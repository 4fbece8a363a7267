package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tierway/bench/processes"
	"tierway/tenants"
)

const (
	// openTabs is the number of pages that follow the gateway in -tabs, each in a browser of its own. The tabs
	// of one browser share a stream, but each polls.
	openTabs = 20
	// tabsShape is the shape of -tabs.
	tabsShape = "400 B"
	// tabsAdminKey is the admin key of the measured gateway.
	tabsAdminKey = "tabs"
)

// tabsReport is what -tabs prints.
type tabsReport struct {
	setup
	Tabs  int    `json:"tabs"`
	None  spread `json:"cpu_us_per_request_without_tabs"`
	Open  spread `json:"cpu_us_per_request_with_tabs"`
	Ratio spread `json:"with_over_without"`
	P99   spread `json:"p99_with_over_without"`
	Bytes spread `json:"bytes_per_second_and_tab"`
}

// measureTabs measures what open pages of the admin UI cost: the same gateway at -rate requests per second
// without a page and with openTabs pages that follow everything, in turns.
func measureTabs(ctx context.Context, o options, out io.Writer) error {
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		conf := fmt.Sprintf("log: { access: false }\nadmin: { keys: [ { name: tabs, sha256: \"%x\" } ] }\n",
			tenants.Digest(tabsAdminKey))
		p, err := c.startTierway(ctx, "gateway", o.bin, worker, b.key, conf)
		if err != nil {
			return err
		}
		rep := tabsReport{setup: b.setup, Tabs: openTabs}
		rep.Tierway = p.version
		var none, open, ratios, tails, sizes []float64
		for round := -1; round < o.rounds; round++ {
			without, err := tabsRound(ctx, b, p, o, 0)
			if err != nil {
				return err
			}
			with, err := tabsRound(ctx, b, p, o, openTabs)
			if err != nil {
				return err
			}
			if round < 0 { // the first round warms up
				continue
			}
			none, open = append(none, without.cpu), append(open, with.cpu)
			ratios, tails = append(ratios, with.cpu/without.cpu), append(tails, with.p99/without.p99)
			sizes = append(sizes, with.bytes)
		}
		rep.None, rep.Open, rep.Ratio = spreadOfList(none), spreadOfList(open), spreadOfList(ratios)
		rep.P99, rep.Bytes = spreadOfList(tails), spreadOfList(sizes)
		return printReport(out, o, rep)
	})
}

// tabsCosts are the costs of one round.
type tabsCosts struct {
	cpu   float64 // µs per request
	p99   float64 // of the latency
	bytes float64 // per second and tab
}

// tabsRound loads the gateway while the given number of pages is open.
func tabsRound(ctx context.Context, b *bench, p proxy, o options, tabs int) (r tabsCosts, err error) {
	follow, end := context.WithCancel(ctx)
	defer end()
	read, wait, err := openPages(follow, p.admin, tabs)
	if err != nil {
		return r, err
	}
	defer wait()
	defer end()
	proc, from := os.DirFS("/proc"), read.Load()
	before, err := processes.CPUTime(proc, p.pid)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	done, err := b.load.run(job{Addr: p.addr, Key: b.key, Shape: tabsShape, Connections: o.connections,
		Seconds: o.seconds, Rate: o.rate})
	if err != nil {
		return r, err
	}
	if done.Failed > 0 || done.Done == 0 {
		return r, fmt.Errorf("%d answers were complete, %d requests failed: %s", done.Done, done.Failed, done.Failure)
	}
	time.Sleep(o.pause)
	after, err := processes.CPUTime(proc, p.pid)
	r.cpu = float64(after-before) / 1e3 / float64(done.Done)
	r.p99 = done.P99
	r.bytes = float64(read.Load()-from) / time.Since(begun).Seconds() / float64(max(1, tabs))
	return r, err
}

// polls are what the pages poll beside the stream: Overview, Workers, Metrics and Tenants, as their queries in
// web/ui/src/pages do. Each is polled by a quarter of the pages.
var polls = [...]struct {
	path  string // "": nothing, as Workers
	every time.Duration
}{
	{"/admin/metrics?range=5m&name=requests,cpu,ttft_p95", 5 * time.Second},
	{},
	{"/admin/metrics?range=5m", 2 * time.Second},
	{"/admin/tenants?limit=1000&today=true", 10 * time.Second},
}

// poll fetches an address after the duration first, and then in turns until ctx ends. Pages repeat a failed fetch
// in the next turn.
func poll(ctx context.Context, url string, first, every time.Duration, read *atomic.Int64) {
	turn := time.NewTimer(first)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
			turn.Reset(every)
			fetch(ctx, url, read) // the next turn fetches again
		}
	}
}

// fetch reads an address of the admin plane once.
func fetch(ctx context.Context, url string, read *atomic.Int64) error {
	answer, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	read.Add(n) // a cut answer counts up to its end
	return err
}

// get sends a request with the admin key. An answer that is not 200 is an error.
func get(ctx context.Context, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+tabsAdminKey)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("GET %s: status %s", url, answer.Status)
	}
	return answer, nil
}

// openPages opens pages of the admin UI and reads what they get until ctx ends. It returns the number of bytes
// that were read, and a function that waits for the readers.
func openPages(ctx context.Context, admin string, n int) (read *atomic.Int64, wait func(), err error) {
	read = &atomic.Int64{}
	var readers sync.WaitGroup
	for page := range n {
		answer, err := get(ctx, "http://"+admin+"/admin/stream?topics=overview,workers,decisions")
		if err != nil {
			return nil, nil, fmt.Errorf("opening a stream: %w", err)
		}
		if p := polls[page%len(polls)]; p.path != "" {
			if err := fetch(ctx, "http://"+admin+p.path, read); err != nil {
				return nil, nil, fmt.Errorf("opening a page: %w", err)
			}
			// The turns of the pages are spread, so a round that is shorter than a turn has its share of them.
			first := p.every * time.Duration(page) / time.Duration(n)
			readers.Go(func() { poll(ctx, "http://"+admin+p.path, first, p.every, read) })
		}
		readers.Go(func() {
			defer answer.Body.Close()
			lines := bufio.NewReader(answer.Body)
			for {
				line, err := lines.ReadSlice('\n')
				read.Add(int64(len(line)))
				if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
					return
				}
			}
		})
	}
	return read, readers.Wait, nil
}

// String returns the report as a table.
func (r tabsReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: open pages of the admin UI, %d cores, requests of %s at %g/s, median of %d rounds of %g s\n\n",
		r.Tierway, r.Cores, tabsShape, r.Rate, r.Rounds, r.Seconds)
	whole := func(s spread) string { return fmt.Sprintf("%.0f (%.0f–%.0f)", s.Median, s.Min, s.Max) }
	fmt.Fprintf(&b, "%-44s  %s\n", "CPU without a page, µs per request", whole(r.None))
	fmt.Fprintf(&b, "%-44s  %s\n", fmt.Sprintf("CPU with %d pages, µs per request", r.Tabs), whole(r.Open))
	fmt.Fprintf(&b, "%-44s  %s\n", "with ÷ without", ratio(r.Ratio))
	fmt.Fprintf(&b, "%-44s  %s\n", "p99 with ÷ p99 without", ratio(r.P99))
	fmt.Fprintf(&b, "%-44s  %s\n", "bytes per second and page", whole(r.Bytes))
	return b.String()
}
