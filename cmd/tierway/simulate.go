package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tierway/decisions"
	"tierway/sim"
	"tierway/sim/comparison"
)

type simulateFlags struct {
	modes, decisions []string
	trace            string
	rates            []float64
	requests         int
	blockTokens      int64

	policies     []string
	seeds        int
	firstSeed    uint64
	engines      int
	prefillRates []float64
	cacheTokens  int64
	reported     int64
	noise        float64
	chunkTokens  int64
	maxInflight  int

	json bool
	svg  string
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Compare routing policies on simulated engines, with built-in or recorded traffic",
		Example: "  tierway simulate\n" +
			"  tierway simulate --mode agentic --rate 0.3,0.6 --policies kv_aware+events,llm_d --chunk-tokens 2048\n" +
			"  tierway simulate --trace conversation_trace.jsonl --rate 0.5,1,2 --cache-tokens 1000000 --svg chart.svg\n" +
			"  tierway simulate --decisions decisions.jsonl --policies chwbl,least_load --json",
		Long: "Runs the gateway's routing and queues in virtual time against simulated engines, and prints the times to first\n" +
			"token of each policy. No request is sent. docs/simulate.md describes the model and its limits.\n\n" +
			"Modes: " + strings.Join(comparison.ModeNames(), ", ") + ".\n" +
			"Policies: " + strings.Join(comparison.PolicyNames(), ", ") + ".\n" +
			"Options of the gateway's policies: +events (engines publish their caches' events), +queue (requests wait for a\n" +
			"free worker in the gateway's queue). An asterisk marks the lowest time of a load.\n" +
			"Exit status: 0 simulated, 2 wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringSliceVar(&f.modes, "mode", []string{"base"}, "built-in traffic")
	c.Flags().StringVar(&f.trace, "trace", "", "file of recorded requests in Mooncake's format, one JSON object per line")
	c.Flags().StringArrayVar(&f.decisions, "decisions", nil,
		"file of decision records, one per line; - for standard input; repeat for rotated files")
	c.Flags().Float64SliceVar(&f.rates, "rate", nil,
		"rates: with --mode arrivals per second (default the mode's own); otherwise multiples of the recorded rate (default 1)")
	c.Flags().IntVar(&f.requests, "requests", 0, "replay only the first N recorded requests (default all)")
	c.Flags().Int64Var(&f.blockTokens, "block-tokens", sim.MooncakeTokens, "with --trace: tokens of one hash of hash_ids")
	c.Flags().StringSliceVar(&f.policies, "policies",
		[]string{"kv_aware", "kv_aware+events", "chwbl", "least_load", "kubeai_chwbl", "loadaware", "lmetric", "dynamo",
			"llm_d", "perfect"},
		"policies to compare")
	c.Flags().IntVar(&f.seeds, "seeds", 3, "number of runs with different random numbers; figures are their means")
	c.Flags().Uint64Var(&f.firstSeed, "first-seed", 1, "seed of the first run; the next runs have the next seeds")
	c.Flags().IntVar(&f.engines, "engines", 8, "number of engines")
	c.Flags().Float64SliceVar(&f.prefillRates, "prefill-rate", []float64{10_000},
		"prompt tokens per second of an engine; several values apply to the engines in turn")
	c.Flags().Int64Var(&f.cacheTokens, "cache-tokens", 300_000, "tokens of an engine's prefix cache")
	c.Flags().Int64Var(&f.reported, "reported-cache-tokens", 0,
		"cache size in the engines' metrics (default the real one; -1: no such metric)")
	c.Flags().Float64Var(&f.noise, "noise", 0, "random variation of the engines' times; 0.2 is about 20 %")
	c.Flags().Int64Var(&f.chunkTokens, "chunk-tokens", 0,
		"tokens of an engine's step, for chunked prefill; 0 prefills whole prompts one after the other")
	c.Flags().IntVar(&f.maxInflight, "max-inflight", 0,
		"with +queue: requests that a worker gets at once (default learned, as in the gateway)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().StringVar(&f.svg, "svg", "", "file for a chart of the times to first token by rate")
	c.MarkFlagsMutuallyExclusive("mode", "trace", "decisions")
	return c
}

func (f *simulateFlags) run(c *cobra.Command) error {
	config, err := f.comparison(c)
	if err != nil {
		return err
	}
	bar := newProgressBar(c.ErrOrStderr())
	config.Progress = bar.show
	report, err := comparison.Run(c.Context(), config)
	bar.clear()
	if err != nil {
		return err
	}
	if f.svg != "" {
		if err := writeChart(f.svg, report); err != nil {
			return err
		}
	}
	if f.json {
		return printJSON(c.OutOrStdout(), report)
	}
	return report.Print(c.OutOrStdout())
}

// comparison checks the flags.
func (f *simulateFlags) comparison(c *cobra.Command) (config comparison.Config, err error) {
	for _, text := range f.policies {
		p, err := comparison.ParsePolicy(text)
		if err != nil {
			return config, fmt.Errorf("--policies: %w", err)
		}
		config.Policies = append(config.Policies, p)
	}
	if f.seeds < 1 || f.seeds > 1000 {
		return config, fmt.Errorf("--seeds %d: write an integer from 1 to 1000", f.seeds)
	}
	for seed := range f.seeds {
		config.Seeds = append(config.Seeds, f.firstSeed+uint64(seed))
	}
	if config.Engines, err = f.fleet(); err != nil {
		return config, err
	}
	config.Cells, err = f.cells(c)
	return config, err
}

// maxSimulated limits the number of engines to those that an index of their caches can have.
const maxSimulated = 64

func (f *simulateFlags) fleet() ([]sim.Engine, error) {
	switch {
	case f.engines < 1 || f.engines > maxSimulated:
		return nil, fmt.Errorf("--engines %d: write an integer from 1 to %d", f.engines, maxSimulated)
	case f.cacheTokens < 0:
		return nil, fmt.Errorf("--cache-tokens %d: write 0 for no cache, or its tokens", f.cacheTokens)
	case f.chunkTokens < 0:
		return nil, fmt.Errorf("--chunk-tokens %d: write 0, or the tokens of a step such as 2048", f.chunkTokens)
	case f.reported < -1:
		return nil, fmt.Errorf("--reported-cache-tokens %d: write -1 for no metric, 0 for the real size, or tokens",
			f.reported)
	case !(f.noise >= 0 && f.noise <= 1):
		return nil, fmt.Errorf("--noise %v: write a number from 0 to 1", f.noise)
	case f.maxInflight < 0:
		return nil, fmt.Errorf("--max-inflight %d: write 0, or the requests of a worker", f.maxInflight)
	}
	for _, rate := range f.prefillRates {
		if !(rate >= 1 && rate <= 1e9) {
			return nil, fmt.Errorf("--prefill-rate %v: write tokens per second, from 1 to 1e9", rate)
		}
	}
	engines := make([]sim.Engine, f.engines)
	for i := range engines {
		engines[i] = sim.Engine{
			Rate: f.prefillRates[i%len(f.prefillRates)], Chunk: f.chunkTokens, MaxInflight: f.maxInflight,
			CacheTokens: f.cacheTokens, ReportedTokens: f.reported, Noise: f.noise,
		}
		if f.cacheTokens == 0 {
			engines[i].CacheTokens = -1
		}
	}
	return engines, nil
}

// cells returns the loads.
func (f *simulateFlags) cells(c *cobra.Command) (cells []comparison.Cell, err error) {
	for _, rate := range f.rates {
		if !(rate >= 0.001 && rate <= 1e6) {
			return nil, fmt.Errorf("--rate %v: write a number from 0.001 to 1e6", rate)
		}
	}
	if f.trace == "" && len(f.decisions) == 0 {
		for _, mode := range f.modes {
			of, err := comparison.ModeCells(mode, f.rates)
			if err != nil {
				return nil, fmt.Errorf("--mode: %w", err)
			}
			cells = append(cells, of...)
		}
		return cells, nil
	}
	rates := f.rates
	if len(rates) == 0 {
		rates = []float64{1}
	}
	if f.requests < 0 {
		return nil, fmt.Errorf("--requests %d: write 0 for all, or the number of requests", f.requests)
	}
	if f.trace == "" {
		arrivals, err := f.readDecisions(c)
		return comparison.TraceCells("decisions", arrivals, sim.BlockTokens, rates), err
	}
	arrivals, err := f.readTrace()
	return comparison.TraceCells("trace", arrivals, f.blockTokens, rates), err
}

func (f *simulateFlags) readTrace() ([]sim.Arrival, error) {
	if f.blockTokens < 1 || f.blockTokens > 1<<20 {
		return nil, fmt.Errorf("--block-tokens %d: write the tokens of one hash, such as %d", f.blockTokens,
			sim.MooncakeTokens)
	}
	file, err := os.Open(f.trace)
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	defer file.Close()
	arrivals, err := sim.ReadMooncake(file, f.blockTokens, f.requests)
	if err != nil {
		return nil, fmt.Errorf("--trace %s: %w", f.trace, err)
	}
	return arrivals, nil
}

func (f *simulateFlags) readDecisions(c *cobra.Command) ([]sim.Arrival, error) {
	var all []*decisions.Decision
	read, err := readDecisionFiles(c, f.decisions, func(d *decisions.Decision) {
		if f.requests == 0 || len(all) < f.requests {
			all = append(all, d)
		}
	})
	if err != nil {
		return nil, err
	}
	read.report(c)
	arrivals, err := comparison.DecisionArrivals(all)
	if err != nil {
		return nil, fmt.Errorf("--decisions: %w", err)
	}
	return arrivals, nil
}

func writeChart(path string, report *comparison.Report) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	if err := report.SVG(file); err != nil {
		file.Close()
		return fmt.Errorf("--svg: writing %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}
