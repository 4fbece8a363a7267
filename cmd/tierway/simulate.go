package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/sim"
	"tierway/sim/comparison"
	"tierway/workers"
)

type simulateFlags struct {
	modes, decisions []string
	trace            string
	rates            []float64
	requests         int
	blockTokens      int64
	spread           time.Duration

	policies     []string
	seeds        int
	firstSeed    uint64
	engines      int
	prefillRates []float64
	cacheTokens  int64
	reported     int64
	noise        float64
	direct       float64
	chunkTokens  int64
	maxInflight  int
	gateways     int
	shareEvery   time.Duration
	handover     string
	roles        []string
	transferRate float64

	json bool
	svg  string
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Compare routing policies on simulated engines, with built-in or recorded traffic",
		Example: "  tierway simulate --mode agentic --rate 0.3 --policies kv_aware,chwbl,llm_d --seeds 1\n" +
			"  tierway simulate --mode base,burst --policies kv_aware+events,llm_d --chunk-tokens 2048\n" +
			"  tierway simulate --handover nixl --chunk-tokens 2048 --policies kv_aware,kv_aware+threshold=1,kv_aware+whole\n" +
			"  tierway simulate --trace conversation_trace.jsonl --rate 0.5,1,2 --cache-tokens 1000000 --svg chart.svg\n" +
			"  tierway simulate --decisions decisions.jsonl --policies chwbl,least_load --json",
		Long: "Runs the gateway's routing and queues in virtual time against simulated engines, and prints the times to first\n" +
			"token of each policy. No request is sent. docs/simulate.md describes the model and its limits.\n\n" +
			"Modes: " + strings.Join(comparison.ModeNames(), ", ") + ".\n" +
			"Policies: " + strings.Join(comparison.PolicyNames(), ", ") + "; all for those of the gateway.\n" +
			"Options of the gateway's policies: +events (engines publish their caches' events), +queue (requests wait for a\n" +
			"free worker in the gateway's queue). With --handover also +threshold=N (as uncached_threshold; 0: always local,\n" +
			"1: always remote), +prefill=POLICY (as prefill_policy) and +whole (the same engines without roles).\n" +
			"An asterisk marks the lowest time of a load, and times within 2.5 % of it.\n" +
			"Without flags, ten policies serve the mode base with three seeds, which takes about half a minute.\n" +
			"Exit status: 0 simulated, 2 wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringSliceVar(&f.modes, "mode", []string{"base"}, "built-in traffic")
	c.Flags().StringVar(&f.trace, "trace", "",
		"file of recorded requests in Mooncake's format, one JSON object per line; - for standard input")
	c.Flags().StringArrayVar(&f.decisions, "decisions", nil,
		"file of decision records, one per line; - for standard input; repeat for rotated files")
	c.Flags().Float64SliceVar(&f.rates, "rate", nil,
		"`rates`: with --mode arrivals per second (default the mode's own); otherwise multiples of the recorded rate (default 1)")
	c.Flags().IntVar(&f.requests, "requests", 0, "replay only the first N recorded requests (default all)")
	c.Flags().Int64Var(&f.blockTokens, "block-tokens", sim.MooncakeTokens, "with --trace: tokens of one hash of hash_ids")
	c.Flags().DurationVar(&f.spread, "spread", 0, "with --trace: `interval` to which its timestamps are rounded; "+
		"each request comes a random part of it later")
	c.Flags().StringSliceVar(&f.policies, "policies",
		[]string{"kv_aware", "kv_aware+events", "chwbl", "least_load", "kubeai_chwbl", "loadaware", "lmetric", "dynamo",
			"llm_d", "perfect"},
		"policies to compare; with --handover the default is kv_aware,kv_aware+whole")
	c.Flags().IntVar(&f.seeds, "seeds", 3, "number of runs with different random numbers; figures are their means")
	c.Flags().Uint64Var(&f.firstSeed, "first-seed", 1, "seed of the first run; the next runs have the next seeds")
	c.Flags().IntVar(&f.engines, "engines", 8, "number of engines")
	c.Flags().Float64SliceVar(&f.prefillRates, "prefill-rate", []float64{10_000},
		"prompt tokens per second of an engine, its `rate`; several values apply to the engines in turn")
	c.Flags().Int64Var(&f.cacheTokens, "cache-tokens", 300_000, "tokens of an engine's prefix cache")
	c.Flags().Int64Var(&f.reported, "reported-cache-tokens", 0,
		"cache size in the engines' metrics (default the real one; -1: no such metric)")
	c.Flags().Float64Var(&f.noise, "noise", 0, "random variation of the engines' times; 0.2 is about 20 %")
	c.Flags().Float64Var(&f.direct, "direct", 0,
		"share of the requests that go past the gateway, to the engines in turn; the figures leave them out")
	c.Flags().Int64Var(&f.chunkTokens, "chunk-tokens", 0,
		"tokens of an engine's step, for chunked prefill; 0 prefills whole prompts one after the other")
	c.Flags().IntVar(&f.maxInflight, "max-inflight", 0,
		"with +queue: requests that a worker gets at once (default learned, as in the gateway)")
	c.Flags().IntVar(&f.gateways, "gateways", 1,
		"number of gateways, among which a load balancer divides the requests at random")
	c.Flags().DurationVar(&f.shareEvery, "share-every", sim.ShareEvery,
		"with --gateways: `interval` at which the gateways share loads and caches; 0 shares nothing")
	c.Flags().StringVar(&f.handover, "handover", "",
		"how prefill engines hand prompts over to decode engines: "+strings.Join(handovers, ", "))
	c.Flags().StringSliceVar(&f.roles, "roles", []string{workers.RolePrefill, workers.RoleDecode},
		"with --handover: prefill, decode or both; several `roles` apply to the engines in turn")
	c.Flags().Float64Var(&f.transferRate, "transfer-rate", sim.TransferRate,
		"with --handover: prompt tokens per second that a transfer moves, its `rate`")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().StringVar(&f.svg, "svg", "", "file for a chart of the times to first token by rate")
	c.MarkFlagsMutuallyExclusive("mode", "trace", "decisions")
	c.Flags().Lookup("rate").DefValue = "" // its usage states the defaults
	c.Flags().Lookup("prefill-rate").DefValue = "10000"
	c.Flags().Lookup("roles").DefValue = "prefill,decode"
	return c
}

func (f *simulateFlags) run(c *cobra.Command) error {
	config, err := f.comparison(c)
	if err != nil {
		return err
	}
	chart := func(*comparison.Report) error { return nil }
	if f.svg != "" { // a wrong path is an error before the simulation
		if chart, err = createChart(f.svg); err != nil {
			return err
		}
	}
	bar := newProgressBar(c.ErrOrStderr())
	config.Progress = bar.show
	if !f.json {
		f.printGateways(c.OutOrStdout())
		table := comparison.NewTable(c.OutOrStdout(), config.Cells, config.Policies, f.printRoles(c.OutOrStdout(), config)...)
		config.Finished = func(rows []comparison.Row) error {
			bar.clear()
			return table.Print(rows)
		}
	}
	report, err := comparison.Run(c.Context(), config)
	bar.clear()
	if err != nil {
		return err
	}
	if f.json {
		if err := printJSON(c.OutOrStdout(), report); err != nil {
			return err
		}
	}
	return chart(report)
}

// printGateways prints a line above the table if there are several gateways.
func (f *simulateFlags) printGateways(out io.Writer) {
	switch {
	case f.gateways == 1:
	case f.shareEvery == 0:
		fmt.Fprintf(out, "%d gateways that share nothing\n\n", f.gateways)
	default:
		fmt.Fprintf(out, "%d gateways that share loads and caches every %v\n\n", f.gateways, f.shareEvery)
	}
}

func (f *simulateFlags) comparison(c *cobra.Command) (config comparison.Config, err error) {
	if f.handover != "" && !c.Flags().Changed("policies") {
		f.policies = []string{"kv_aware", "kv_aware+whole"}
	}
	if config.Policies, err = comparison.ParsePolicies(f.policies); err != nil {
		return config, fmt.Errorf("--policies: %w", err)
	}
	if f.seeds < 1 || f.seeds > 1000 {
		return config, fmt.Errorf("--seeds %d: write an integer from 1 to 1000", f.seeds)
	}
	for seed := range f.seeds {
		config.Seeds = append(config.Seeds, f.firstSeed+uint64(seed))
	}
	if err := f.checkUse(c, config.Policies); err != nil {
		return config, err
	}
	if err := f.setGateways(&config); err != nil {
		return config, err
	}
	if config.DirectShare = f.direct; !(f.direct >= 0 && f.direct < 1) {
		return config, fmt.Errorf("--direct %v: write a number from 0 to below 1", f.direct)
	}
	if config.Engines, err = f.fleet(); err != nil {
		return config, err
	}
	if err := f.setRoles(c, &config); err != nil {
		return config, err
	}
	config.Cells, err = f.cells(c)
	return config, err
}

// checkUse rejects flags that have no effect beside the others.
func (f *simulateFlags) checkUse(c *cobra.Command, policies []comparison.Policy) error {
	queued := func(p comparison.Policy) bool { return p.Queue }
	switch changed := c.Flags().Changed; {
	case changed("requests") && f.trace == "" && len(f.decisions) == 0:
		return errors.New("--requests has no effect on built-in traffic: remove it, or add --trace or --decisions")
	case changed("block-tokens") && f.trace == "":
		return errors.New("--block-tokens has no effect without --trace: remove it, or add --trace")
	case changed("spread") && f.trace == "":
		return errors.New("--spread has no effect without --trace: remove it, or add --trace")
	case changed("max-inflight") && !slices.ContainsFunc(policies, queued):
		return errors.New("--max-inflight has no effect without a queue: remove it, or add +queue to a policy, " +
			"such as --policies kv_aware+queue")
	case changed("share-every") && f.gateways == 1:
		return errors.New("--share-every has no effect on one gateway: remove it, or add --gateways 3")
	}
	return nil
}

// maxGateways is the largest number of gateways: more make no sense for at most 64 engines.
const maxGateways = 64

func (f *simulateFlags) setGateways(config *comparison.Config) error {
	if f.gateways < 1 || f.gateways > maxGateways {
		return fmt.Errorf("--gateways %d: write an integer from 1 to %d", f.gateways, maxGateways)
	}
	if f.shareEvery < 0 || f.shareEvery > 0 && f.shareEvery < time.Millisecond {
		return fmt.Errorf("--share-every %v: write 0 to share nothing, or an interval of at least 1ms", f.shareEvery)
	}
	if at := slices.IndexFunc(config.Policies, comparison.Policy.Foreign); f.gateways > 1 && at >= 0 {
		return fmt.Errorf("--gateways %d: policy %q of another router runs with one gateway: "+
			"write --policies with policies of this gateway, such as kv_aware,chwbl", f.gateways, config.Policies[at].Name)
	}
	config.Gateways, config.ShareEvery = f.gateways, f.shareEvery
	if f.shareEvery == 0 {
		config.ShareEvery = -1
	}
	return nil
}

// maxSimulated is the largest number of engines in an index of their caches.
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
	if n := len(f.prefillRates); n > f.engines {
		return nil, fmt.Errorf("--prefill-rate has %d values for --engines %d: write at most one for each engine", n,
			f.engines)
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
