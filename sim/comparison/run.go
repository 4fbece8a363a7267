package comparison

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"tierway/sim"
)

// Config is a comparison.
type Config struct {
	Engines  []sim.Engine
	Cells    []Cell
	Policies []Policy
	Seeds    []uint64
	// Progress, unless nil, is called after each run, by one goroutine at a time.
	Progress func(done, total int)
}

// Report is the result of a comparison.
type Report struct {
	Engines []sim.Engine `json:"-"`
	Seeds   []uint64     `json:"seeds"`
	Rows    []Row        `json:"rows"` // by cell, and within a cell in the order of the policies
}

// Row is one policy in one cell. All figures are means over the seeds.
type Row struct {
	Load       string  `json:"load"`
	Rate       float64 `json:"rate"`
	Unit       string  `json:"rate_unit"`
	Policy     string  `json:"policy"`
	Requests   float64 `json:"requests"`
	Unfinished float64 `json:"unfinished"`       // at the end of the simulation, up to which their times count
	Hits       float64 `json:"hit_rate"`         // share of the prompt tokens that the engines had cached
	Uneven     float64 `json:"max_mean_tokens"`  // prompt tokens of the busiest engine, by the mean
	TTFT       Seconds `json:"ttft_seconds"`     // from the arrival to the first token
	E2E        Seconds `json:"duration_seconds"` // from the arrival to the last token
}

// Seconds is a distribution of times.
type Seconds struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

func (s *Seconds) add(t sim.Times, share float64) {
	s.Mean += t.Mean().Seconds() * share
	for _, q := range []struct {
		to *float64
		at float64
	}{{&s.P50, 0.5}, {&s.P90, 0.9}, {&s.P99, 0.99}} {
		*q.to += time.Duration(t.Quantile(q.at)).Seconds() * share
	}
}

// add adds the figures of one seed.
func (r *Row) add(f *sim.Figures, share float64) {
	r.Requests += float64(f.Requests) * share
	r.Unfinished += float64(f.Unfinished) * share
	r.Hits += f.Hits * share
	r.Uneven += f.Uneven * share
	r.TTFT.add(f.TTFT, share)
	r.E2E.add(f.E2E, share)
}

// Run runs all cells under all policies with all seeds, one run per processor at a time. It stops
// early when ctx ends, with its error.
func Run(ctx context.Context, c Config) (*Report, error) {
	if len(c.Cells) == 0 || len(c.Policies) == 0 || len(c.Seeds) == 0 || len(c.Engines) == 0 {
		return nil, errors.New("a comparison needs engines, cells, policies and seeds")
	}
	runs := len(c.Cells) * len(c.Policies) * len(c.Seeds)
	results := make([]outcome, runs)
	next, done := make(chan int), make(chan int)
	var workers sync.WaitGroup
	for range min(runs, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				results[i] = c.runOne(i)
				done <- i
			}
		})
	}
	go func() {
		defer close(done)
		defer workers.Wait()
		defer close(next)
		for i := range runs {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	finished := 0
	for range done {
		if finished++; c.Progress != nil {
			c.Progress(finished, runs)
		}
	}
	if err := ctx.Err(); err != nil && finished < runs {
		return nil, err
	}
	return c.report(results)
}

// outcome is the result of one run.
type outcome struct {
	figures sim.Figures
	err     error
}

// runOne runs the run of that number.
func (c *Config) runOne(i int) (o outcome) {
	cell, policy, seed := c.split(i)
	s := sim.Config{Seed: c.Seeds[seed], Engines: c.Engines}
	c.Policies[policy].configure(&s)
	o.figures, o.err = c.Cells[cell].run(s)
	return o
}

// split returns the indexes of a run's cell, policy and seed.
func (c *Config) split(i int) (cell, policy, seed int) {
	policies, seeds := len(c.Policies), len(c.Seeds)
	return i / seeds / policies, i / seeds % policies, i % seeds
}

func (c *Config) report(results []outcome) (*Report, error) {
	r := &Report{Engines: c.Engines, Seeds: c.Seeds, Rows: make([]Row, len(c.Cells)*len(c.Policies))}
	for i := range results {
		cell, policy, seed := c.split(i)
		at, p := &c.Cells[cell], &c.Policies[policy]
		if err := results[i].err; err != nil {
			return nil, fmt.Errorf("simulating %s under %s with seed %d: %w", at.Name(), p.Name, c.Seeds[seed], err)
		}
		row := &r.Rows[cell*len(c.Policies)+policy]
		row.Load, row.Rate, row.Unit, row.Policy = at.Load, at.Rate, at.Unit, p.Name
		row.add(&results[i].figures, 1/float64(len(c.Seeds)))
	}
	return r, nil
}
