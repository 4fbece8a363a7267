package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"tierway/decisions"
	"tierway/replay"
	"tierway/server/admin"
	"tierway/server/control"
)

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
		Short: "Evaluate recorded requests with a draft configuration, and show what would change",
		Example: "  tierway replay -c config.yaml --decisions decisions.jsonl --draft draft.yaml\n" +
			"  tierway replay -c config.yaml --decisions decisions.jsonl.1 --decisions decisions.jsonl\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway replay --live --draft draft.yaml --last 1000",
		Long: "Reads decision records in the format of decisions.file and GET /admin/decisions, oldest first; with --live,\n" +
			"a gateway replays its own records. A draft is a complete configuration file. Without a draft, the report\n" +
			"shows whether the configuration reproduces the records. No request is sent.\n" +
			"Exit status: 0 replayed, 1 invalid configuration, 2 wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVarP(&f.config, "config", "c", "config.yaml",
		"configuration file that was active when the decisions were recorded")
	c.Flags().StringArrayVar(&f.decisions, "decisions", nil,
		"file of decision records, one per line; - for standard input; repeat for rotated files, oldest first")
	c.Flags().StringVar(&f.draft, "draft", "", "complete configuration file to compare; with --live, - for standard input")
	c.Flags().IntVar(&f.last, "last", 0, "replay only the newest N decisions (default all; with --live 1000)")
	c.Flags().BoolVar(&f.live, "live", false, "let a gateway replay the decisions that it keeps")
	c.Flags().StringVar(&f.api, "api", defaultAdminURL(),
		"with --live: URL of the gateway's admin plane; its key comes from $"+adminKeyVariable)
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().BoolVar(&f.changes, "changes", false, "list all moves between tiers and workers with request IDs")
	c.MarkFlagsMutuallyExclusive("decisions", "live")
	c.MarkFlagsMutuallyExclusive("config", "live")
	c.MarkFlagsOneRequired("decisions", "live")
	return c
}

// maxLast limits --last: the records are kept in memory, some kilobytes each.
const maxLast = 100_000

func (f replayFlags) run(c *cobra.Command) error {
	if f.last < 0 || f.last > maxLast {
		return fmt.Errorf("--last %d: write an integer from 1 to %d", f.last, maxLast)
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

// offline replays files. answer is the report itself.
func (f replayFlags) offline(c *cobra.Command) (report *replay.Report, answer any, err error) {
	var r replay.Config
	now, err := setup(c, f.config)
	if err != nil {
		return nil, nil, err
	}
	r.Now = *now
	if f.draft != "" {
		if r.Draft, err = setup(c, f.draft); err != nil {
			return nil, nil, err
		}
	}
	again, err := replay.New(r)
	if err != nil {
		return nil, nil, err
	}
	var kept []*decisions.Decision // the newest records, with --last
	read, err := readDecisionFiles(c, f.decisions, func(d *decisions.Decision) {
		if f.last == 0 {
			again.Add(d)
			return
		}
		if kept = append(kept, d); len(kept) == 2*f.last {
			kept = slices.Delete(kept, 0, f.last)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	for _, d := range kept[max(0, len(kept)-f.last):] {
		again.Add(d)
	}
	read.report(c)
	report = again.Report()
	return report, report, nil
}

func setup(c *cobra.Command, path string) (*replay.Setup, error) {
	file, err := loadConfig(c, path)
	if err != nil {
		return nil, err
	}
	s, err := control.ReplaySetup(file)
	return &s, err
}

// ask lets a gateway replay its own records.
func (f replayFlags) ask(c *cobra.Command) (report *replay.Report, answer any, err error) {
	a, err := newAdminAPI(f.api, os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	order := admin.ReplayOrder{Last: f.last}
	if f.draft != "" {
		text, err := readFile(c, f.draft, maxConfig)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the draft: %w", err)
		}
		order.Draft = new(string(text))
	}
	report = &replay.Report{}
	answer, err = a.call(c.Context(), http.MethodPost, "/admin/route/replay", order, report)
	if err != nil {
		return nil, nil, showProblems(c, err)
	}
	return report, answer, nil
}
