package comparison

import (
	"cmp"
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
	// DirectShare is the share of the requests past the gateway, which the figures leave out.
	DirectShare float64
	// Gateways and ShareEvery are those of sim.Config.
	Gateways   int
	ShareEvery time.Duration
	// Handover, unless nil, is how the engines compute prompts for each other. The options of a policy set its Policy
	// and Threshold. Policies of other routers do not know it.
	Handover *sim.Handover
	// Progress, unless nil, is called at the start and after each run.
	Progress func(done, total int)
	// Finished, unless nil, is called with the rows of each cell, in the order of the cells, as soon as
	// the runs of the cell and of those before it have ended. Its error ends the comparison.
	Finished func(rows []Row) error
}

// Report is the result of a comparison.
type Report struct {
	Engines []sim.Engine `json:"-"`
	Seeds   []uint64     `json:"seeds"`
	// Gateways is the number of gateways in front of the engines.
	Gateways int `json:"gateways"`
	// ShareEvery is the interval at which several gateways share their state, in seconds; 0: they share nothing.
	ShareEvery float64 `json:"share_every_seconds"`
	Rows       []Row   `json:"rows"` // by cell, and within a cell in the order of the policies
}

// Row is one policy in one cell. All figures are means over the seeds.
type Row struct {
	Load       string  `json:"load"`
	Rate       float64 `json:"rate"`
	Unit       string  `json:"rate_unit"`
	Policy     string  `json:"policy"`
	Requests   float64 `json:"requests"`
	Unfinished float64 `json:"unfinished"`       // refused, or not ended; times count up to the end of the simulation
	Hits       float64 `json:"hit_rate"`         // share of the prompt tokens that the engines had cached
	Uneven     float64 `json:"max_mean_tokens"`  // prompt tokens of the busiest engine, divided by the mean
	TTFT       Seconds `json:"ttft_seconds"`     // from the arrival to the first token
	E2E        Seconds `json:"duration_seconds"` // from the arrival to the last token
	Stages     *Stages `json:"stages,omitempty"` // nil without a hand-over
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
	if r.Stages != nil {
		r.Stages.add(&f.Stages, share)
	}
}

// Run runs all cells under all policies with all seeds, one run per processor at a time. It stops
// early at the first error, and when ctx ends. Progress and Finished are called by the caller's goroutine.
func Run(ctx context.Context, c Config) (*Report, error) {
	if len(c.Cells) == 0 || len(c.Policies) == 0 || len(c.Seeds) == 0 || len(c.Engines) == 0 {
		return nil, errors.New("a comparison needs engines, cells, policies and seeds")
	}
	runs, stop := context.WithCancel(ctx)
	defer stop()
	k := collector{Config: &c, results: make([]outcome, len(c.Cells)*len(c.Policies)*len(c.Seeds)),
		ended: make([]int, len(c.Cells)), report: &Report{Engines: c.Engines, Seeds: c.Seeds, Gateways: max(1, c.Gateways)}}
	if c.Gateways > 1 {
		k.report.ShareEvery = max(0, cmp.Or(c.ShareEvery, sim.ShareEvery).Seconds())
	}
	k.showProgress()
	var failure error
	for i := range k.start(runs) {
		if failure == nil {
			failure = k.add(i)
		}
		if failure != nil {
			stop() // the other runs that have begun end first
		}
	}
	if failure == nil && k.done < len(k.results) {
		failure = ctx.Err()
	}
	if failure != nil {
		return nil, failure
	}
	return k.report, nil
}

// collector makes rows of the results of runs.
type collector struct {
	*Config
	results []outcome // of each run
	ended   []int     // runs of each cell
	done    int       // runs of all cells
	report  *Report   // with the rows of the first cells
}

// start begins all runs until ctx ends. The channel has the number of each run after its end; it is
// closed at the end of all.
func (k *collector) start(ctx context.Context) <-chan int {
	next, done := make(chan int), make(chan int)
	var workers sync.WaitGroup
	for range min(len(k.results), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				k.results[i] = k.runOne(i)
				done <- i
			}
		})
	}
	go func() {
		defer close(done)
		defer workers.Wait()
		defer close(next)
		for i := range k.results {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// add counts a run that has ended, and reports the cells that are complete.
func (k *collector) add(i int) error {
	cell, policy, seed := k.split(i)
	if err := k.results[i].err; err != nil {
		return fmt.Errorf("simulating %s under %s with seed %d: %w", k.Cells[cell].Name(), k.Policies[policy].Name,
			k.Seeds[seed], err)
	}
	k.done++
	k.ended[cell]++
	k.showProgress()
	for reported := len(k.report.Rows) / len(k.Policies); reported < len(k.Cells); reported++ {
		if k.ended[reported] < len(k.Policies)*len(k.Seeds) {
			break
		}
		rows := k.rows(reported)
		k.report.Rows = append(k.report.Rows, rows...)
		if k.Finished == nil {
			continue
		}
		if err := k.Finished(rows); err != nil {
			return err
		}
	}
	return nil
}

func (k *collector) showProgress() {
	if k.Progress != nil {
		k.Progress(k.done, len(k.results))
	}
}

// rows returns the rows of a complete cell.
func (k *collector) rows(cell int) []Row {
	at, rows := &k.Cells[cell], make([]Row, len(k.Policies))
	for policy := range rows {
		row := &rows[policy]
		row.Load, row.Rate, row.Unit, row.Policy = at.Load, at.Rate, at.Unit, k.Policies[policy].Name
		if k.Handover != nil {
			row.Stages = &Stages{}
		}
		for seed := range k.Seeds {
			row.add(&k.results[(cell*len(rows)+policy)*len(k.Seeds)+seed].figures, 1/float64(len(k.Seeds)))
		}
	}
	return rows
}

// outcome is the result of one run.
type outcome struct {
	figures sim.Figures
	err     error
}

// runOne runs the run of that number.
func (c *Config) runOne(i int) (o outcome) {
	cell, policy, seed := c.split(i)
	s := sim.Config{Seed: c.Seeds[seed], Engines: c.Engines, DirectShare: c.DirectShare,
		Gateways: c.Gateways, ShareEvery: c.ShareEvery, Handover: c.Handover}
	c.Policies[policy].configure(&s)
	o.figures, o.err = c.Cells[cell].run(s)
	return o
}

// split returns the indexes of a run's cell, policy and seed.
func (c *Config) split(i int) (cell, policy, seed int) {
	policies, seeds := len(c.Policies), len(c.Seeds)
	return i / seeds / policies, i / seeds % policies, i % seeds
}
