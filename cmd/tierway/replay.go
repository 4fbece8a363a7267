package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/decisions"
	"tierway/replay"
	"tierway/server"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	config, draft, api  string
	decisions           []string
	last                int
	live, json, changes bool
}

func replayCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay",
		Short: "Decide recorded requests again under a draft configuration, and say what would change",
		Example: "  tierway replay -c config.yaml --decisions decisions.jsonl --draft draft.yaml\n" +
			"  tierway replay -c config.yaml --decisions decisions.jsonl.1 --decisions decisions.jsonl\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway replay --live --draft draft.yaml --last 1000",
		Long: "Reads decisions as decisions.file and GET /admin/decisions write them, oldest first, or has a gateway\n" +
			"replay its own. A draft is a complete configuration file. Without one it says whether the configuration\n" +
			"explains the decisions. Nothing is sent.\n" +
			"Exits with 0 when the decisions were replayed, 1 when a configuration has problems, 2 on wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVarP(&f.config, "config", "c", "config.yaml", "the configuration that the decisions were made under")
	c.Flags().StringArrayVar(&f.decisions, "decisions", nil, "a file of decisions, one a line; - is standard input; repeat it for rotated files, oldest first")
	c.Flags().StringVar(&f.draft, "draft", "", "a complete configuration file to try; - is standard input with --live")
	c.Flags().IntVar(&f.last, "last", 0, "replay the newest so many decisions (default: all; with --live 1000)")
	c.Flags().BoolVar(&f.live, "live", false, "have a gateway replay the decisions that it keeps")
	c.Flags().StringVar(&f.api, "api", "http://127.0.0.1:8081", "with --live, the gateway's admin address; its key comes from $"+adminKeyVariable)
	c.Flags().BoolVar(&f.json, "json", false, "write JSON")
	c.Flags().BoolVar(&f.changes, "changes", false, "list all moves between tiers and workers with request ids")
	c.MarkFlagsMutuallyExclusive("decisions", "live")
	c.MarkFlagsMutuallyExclusive("config", "live")
	c.MarkFlagsOneRequired("decisions", "live")
	return c
}

// maxLast bounds --last: those decisions are held in memory, some kilobytes each.
const maxLast = 100_000

// run replays and shows the report.
func (f replayFlags) run(c *cobra.Command) error {
	if f.last < 0 || f.last > maxLast {
		return fmt.Errorf("--last %d: write a number from 1 to %d", f.last, maxLast)
	}
	run := f.offline
	if f.live {
		run = f.ask
	}
	report, answer, err := run(c)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(c.OutOrStdout(), answer)
	}
	return printReplay(c.OutOrStdout(), report, f.draft != "", f.changes)
}

// offline replays files. The answer is the report as JSON.
func (f replayFlags) offline(c *cobra.Command) (*replay.Report, json.RawMessage, error) {
	now, draft, err := f.configurations(c)
	if err != nil {
		return nil, nil, err
	}
	var r replay.Config
	if r.Now, err = server.ReplaySetup(now); err != nil {
		return nil, nil, err
	}
	if draft != nil {
		setup, err := server.ReplaySetup(draft)
		if err != nil {
			return nil, nil, err
		}
		r.Draft = &setup
	}
	again, err := replay.New(r)
	if err != nil {
		return nil, nil, err
	}
	add, flush := again.Add, func() {}
	if f.last > 0 {
		add, flush = newest(f.last, again.Add)
	}
	read, err := f.read(c, add)
	if err != nil {
		return nil, nil, err
	}
	flush()
	report := again.Report()
	read.tell(c)
	answer, err := json.Marshal(report)
	return report, answer, err
}

// newest passes on the last n of the decisions that it is given, once flushed.
func newest(n int, add func(*decisions.Decision)) (keep func(*decisions.Decision), flush func()) {
	var ring []*decisions.Decision
	next := 0
	keep = func(d *decisions.Decision) {
		if len(ring) < n {
			ring = append(ring, d)
			return
		}
		ring[next] = d
		next = (next + 1) % n
	}
	return keep, func() {
		for i := range ring {
			add(ring[(next+i)%len(ring)])
		}
	}
}

// configurations reads the configuration and the draft; nil without one.
func (f replayFlags) configurations(c *cobra.Command) (now, draft *config.File, err error) {
	if now, err = loadConfig(c, f.config); err != nil || f.draft == "" {
		return now, nil, err
	}
	draft, err = loadConfig(c, f.draft)
	return now, draft, err
}

// ask has a gateway replay what it keeps.
func (f replayFlags) ask(c *cobra.Command) (*replay.Report, json.RawMessage, error) {
	a, err := newAdminAPI(f.api, os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	order := server.ReplayOrder{Last: f.last}
	if f.draft != "" {
		text, err := readFile(f.draft, c.InOrStdin())
		if err != nil {
			return nil, nil, fmt.Errorf("reading the draft: %w", err)
		}
		order.Draft = new(string(text))
	}
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	var answer json.RawMessage
	if err := a.call(ctx, http.MethodPost, "/admin/route/replay", order, &answer); err != nil {
		return nil, nil, showProblems(c, err)
	}
	var report replay.Report
	if err := json.Unmarshal(answer, &report); err != nil {
		return nil, nil, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return &report, answer, nil
}
