package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"tierway/server/admin"
	"tierway/tenants"
	"tierway/tierscore"
	"tierway/tierscore/report"
)

func tiersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tiers",
		Short: "Report the quality and the cost of the tiers",
		Example: "  tierway tiers report --features features.jsonl --labels labels.jsonl\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway tiers report --live",
	}
	return group(c, tiersReportCommand())
}

type tiersReportFlags struct {
	labelFlags
	config, model, svg, api    string
	promptTokens, outputTokens int64
	live, json                 bool
}

func tiersReportCommand() *cobra.Command {
	var f tiersReportFlags
	c := &cobra.Command{
		Use:   "report",
		Short: "Report quality and cost by the share of requests at the large tier, and what the tiers have saved",
		Example: "  tierway tiers report --features features.jsonl --labels labels.jsonl -c config.yaml --svg curves.svg\n" +
			"  tierway tiers report --features features.jsonl --labels labels.jsonl --model tier.model\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway tiers report --live",
		Long: "Reads lines of features and of labels, as tierway train does. The report has the share of right answers at 11\n" +
			"shares of requests at the large tier, in the order of the default score, of the length, at random, and of a\n" +
			"model. A model is measured on the requests after its training, if their labels suffice.\n" +
			"--config adds the cost of 1,000 requests. --live adds the shares of the tiers and their savings from the ledger\n" +
			"of a gateway, and its prices and mean tokens for the cost. Without --features, it also has the curves of the\n" +
			"gateway's own labels, which are at most a minute old, or older if its files are large. docs/training.md\n" +
			"describes the report.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.addTo(c)
	c.Flags().StringVar(&f.model, "model", "", "model of tierway train, which adds its curve")
	c.Flags().StringVarP(&f.config, "config", "c", "", "configuration file with the prices of the tiers")
	c.Flags().Int64Var(&f.promptTokens, "prompt-tokens", 1000, "with --config: tokens of the prompt of a request")
	c.Flags().Int64Var(&f.outputTokens, "output-tokens", 300, "with --config: tokens of the answer of a request")
	c.Flags().StringVar(&f.svg, "svg", "", "write the curves as a picture to this file")
	c.Flags().BoolVar(&f.live, "live", false,
		"add the usage of a gateway's tiers in the last 30 UTC days, and without --features the curves of its labels")
	c.Flags().StringVar(&f.api, "api", defaultAdminURL(),
		"with --live: URL of the gateway's admin plane; its key comes from $"+adminKeyVariable)
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.MarkFlagsRequiredTogether("features", "labels")
	c.MarkFlagsOneRequired("features", "live")
	c.MarkFlagsMutuallyExclusive("config", "live")
	return c
}

// maxRequestTokens limits --prompt-tokens and --output-tokens, so that no sum overflows.
const maxRequestTokens = 10_000_000

func (f tiersReportFlags) run(c *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	for name, n := range map[string]int64{"prompt": f.promptTokens, "output": f.outputTokens} {
		if n < 0 || n > maxRequestTokens {
			return fmt.Errorf("--%s-tokens %d: write an integer from 0 to %d", name, n, maxRequestTokens)
		}
	}
	if f.svg != "" {
		if err := checkOutput("--svg", f.svg, slices.Concat(f.features, f.labels)); err != nil {
			return err
		}
	}
	var all admin.TierReport
	if f.live {
		a, err := newAdminAPI(f.api, os.LookupEnv)
		if err != nil {
			return err
		}
		if _, err := a.call(c.Context(), http.MethodGet, "/admin/tiers/report", nil, &all); err != nil {
			return err
		}
	}
	if len(f.features) > 0 {
		labels, err := f.read(c)
		if err != nil {
			return err
		}
		if labels.Money, err = f.money(c, all.Usage); err != nil {
			return err
		}
		all.Labels, all.LabelsProblem = labels, ""
	}
	if f.svg != "" {
		if all.Labels == nil {
			return errors.New("--svg: there are no curves without labels: name files of --features and --labels")
		}
		if err := replaceFile(f.svg, all.Labels.SVG()); err != nil {
			return err
		}
	}
	if f.json {
		return printJSON(c.OutOrStdout(), all)
	}
	return printTierReport(c.OutOrStdout(), &all)
}

func (f tiersReportFlags) read(c *cobra.Command) (*report.Report, error) {
	var model *tierscore.Model
	var open []io.Closer
	defer func() {
		for _, file := range open {
			file.Close()
		}
	}()
	files := func(paths []string) (all []report.File, err error) {
		for _, path := range paths {
			in, name, err := openInput(c, path)
			if err != nil {
				return nil, err
			}
			open, all = append(open, in), append(all, report.File{Name: name, In: in})
		}
		return all, nil
	}
	features, err := files(f.features)
	if err != nil {
		return nil, err
	}
	labels, err := files(f.labels)
	if err != nil {
		return nil, err
	}
	if f.model != "" {
		err := eachFile(c, []string{f.model}, func(_ string, in io.Reader) (err error) {
			model, err = tierscore.Read(in)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("--model %s: %w", f.model, err)
		}
	}
	in := report.Input{Features: features, Labels: labels, Tiers: f.tiers, Model: model,
		EvaluateFeedback: f.evaluateFeedback}
	return report.Read(in, rand.New(rand.NewPCG(trainSeed, 0)).IntN)
}

// money returns the cost by the prices of the configuration or of the gateway; nil without prices.
func (f tiersReportFlags) money(c *cobra.Command, usage *admin.TierUsage) (*report.Money, error) {
	if usage != nil {
		return usage.MoneyOf(f.tiers.Small, f.tiers.Large), nil
	}
	if f.config == "" {
		return nil, nil
	}
	file, err := loadConfig(c, f.config)
	if err != nil {
		return nil, err
	}
	prices := map[string]tenants.Price{}
	for _, t := range file.Tiers {
		prices[t.Name] = tenants.Price{}
		if t.Price != nil {
			prices[t.Name] = *t.Price
		}
	}
	small, known := prices[f.tiers.Small]
	large, also := prices[f.tiers.Large]
	if !known || !also {
		return nil, fmt.Errorf("%s does not have the tiers %q and %q: set --small and --large", f.config, f.tiers.Small,
			f.tiers.Large)
	}
	return report.NewMoney(f.promptTokens, f.outputTokens, small, large), nil
}
