package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/tierscore/curve"
	"tierway/tierscore/training"
)

// labelFlags are the flags of commands that read features and labels.
type labelFlags struct {
	features, labels []string
	tiers            training.Tiers
	evaluateFeedback bool
}

func (f *labelFlags) addTo(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.features, "features", nil,
		"file of features, one request per line; - for standard input; repeat for several files")
	c.Flags().StringArrayVar(&f.labels, "labels", nil,
		"file of labels, one label per line; - for standard input; repeat for several files")
	c.Flags().StringVar(&f.tiers.Small, "small", "small", "name of the tier with the small model")
	c.Flags().StringVar(&f.tiers.Large, "large", "large", "name of the tier with the large model")
	c.Flags().BoolVar(&f.evaluateFeedback, "evaluate-feedback", false,
		"evaluate by feedback about explored requests too; only valid if clients give feedback "+
			"about all answers, or independently of their quality")
}

func (f *labelFlags) check() error {
	if f.tiers.Small == f.tiers.Large {
		return fmt.Errorf("--small and --large are both %q: name two tiers", f.tiers.Small)
	}
	return nil
}

type trainFlags struct {
	labelFlags
	output string
	json   bool
}

func trainCommand() *cobra.Command {
	var f trainFlags
	c := &cobra.Command{
		Use:   "train",
		Short: "Train a tier score on recorded features and labels, and compare it with the default score",
		Example: "  tierway train --features features.jsonl --labels labels.jsonl -o tier.model\n" +
			"  tierway train --features features.jsonl --labels replay.jsonl --labels feedback.jsonl --large gpt -o tier.model",
		Long: "Reads lines of features and of labels, which have the ids of requests in common. About a quarter of each route\n" +
			"is held out to compare the model with the default score. The model is enabled if the lower bound of the 95 %\n" +
			"interval of the difference is above 0. docs/training.md describes the files, the figures and their limits.\n" +
			"Exit status: 0 written and enabled, 1 written and not enabled, 2 error.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.addTo(c)
	c.Flags().StringVarP(&f.output, "output", "o", "", "file of the model")
	c.Flags().BoolVar(&f.json, "json", false, "print the report as JSON")
	for _, name := range []string{"features", "labels", "output"} {
		c.MarkFlagsOneRequired(name)
	}
	return c
}

// trainSeed makes the resamples of a training repeatable.
const trainSeed = 1

func (f trainFlags) run(c *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.output == "-" {
		return errors.New("--output is -: name a file, because a model is binary")
	}
	if err := checkOutput("--output", f.output, slices.Concat(f.features, f.labels)); err != nil {
		return err
	}
	labels := training.NewLabels(f.tiers)
	labels.EvaluateFeedback = f.evaluateFeedback
	if err := eachFile(c, f.labels, labels.Read); err != nil {
		return err
	}
	var data training.Data
	err := eachFile(c, f.features, func(name string, in io.Reader) error { return data.ReadFeatures(name, in, labels) })
	if err != nil {
		return err
	}
	data.Join(labels)
	if labels.Lines+labels.OtherTier == 0 {
		return errors.New("the files of --labels have no line: write a line for each label")
	}
	if labels.Lines == 0 {
		return fmt.Errorf("no label is of the tiers %q and %q, and %d are of other tiers: set --small and --large",
			f.tiers.Small, f.tiers.Large, labels.OtherTier)
	}
	if err := data.CheckUnique(); err != nil {
		return err
	}
	if data.Requests() == 0 && data.OtherKeys > 0 {
		return fmt.Errorf("no label has the id of a feature line with the newest hash_key: %d of %d lines have another one",
			data.OtherKeys, data.Lines)
	}
	if data.Requests() == 0 {
		return fmt.Errorf("no label has the id of a feature line: %d lines of features and %d labels have no id in common",
			data.Lines, labels.Lines)
	}
	model, report, err := data.Train(rand.New(rand.NewPCG(trainSeed, 0)).IntN)
	if err != nil {
		if labels.OtherTier > 0 {
			return fmt.Errorf("%w; %d labels are of other tiers than %q and %q: set --small and --large", err, labels.OtherTier,
				f.tiers.Small, f.tiers.Large)
		}
		return err
	}
	file, err := model.Append(nil)
	if err != nil {
		return err
	}
	if err := replaceFile(f.output, file); err != nil {
		return err
	}
	if f.json {
		err = printJSON(c.OutOrStdout(), report)
	} else {
		err = printTraining(c.OutOrStdout(), &data, labels, report)
	}
	if err != nil || model.Enabled {
		return err
	}
	printMessage(c, "%s is written and not enabled: %s", f.output, report.Reason)
	return exit(1)
}

// checkOutput returns an error unless the file of a flag can be written: as a new file, or in place of a file that is
// not an input.
func checkOutput(flag, path string, inputs []string) error {
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	old, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !old.Mode().IsRegular() {
		return fmt.Errorf("%s %s is not a regular file: name a new one, or one to replace", flag, path)
	}
	for _, input := range inputs {
		if at, err := os.Stat(input); err == nil && os.SameFile(at, old) {
			return fmt.Errorf("%s %s is a file of --features or --labels: name another one", flag, path)
		}
	}
	return nil
}

// eachFile calls read for each file; - is standard input.
func eachFile(c *cobra.Command, paths []string, read func(name string, in io.Reader) error) error {
	for _, path := range paths {
		in, name, err := openInput(c, path)
		if err != nil {
			return err
		}
		err = read(name, in)
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// replaceFile writes a file at once, so that a reader never has a part of it. Every user may read it.
func replaceFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

func printTraining(w io.Writer, data *training.Data, labels *training.Labels, r *training.Report) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("requests", "%d of %d lines of features have labels", r.Requests, data.Lines)
	line("labels", "%d requests of the small tier, %d of the large one, %d of both", r.Small, r.Large, r.Paired)
	printUnused(line, data.Unused(labels))
	switch {
	case r.Explored > 0:
		line("explored", "%d requests", r.Explored)
		if n := data.Unevaluated(); n > 0 {
			line("", "feedback about %d of them does not evaluate; if clients give it about all answers: --evaluate-feedback", n)
		}
	case labels.Feedback > 0:
		line("explored", "no request: %d lines of feedback do not evaluate; set learning.replay", labels.Feedback)
	}
	line("routes", "%d", r.Routes)
	line("time", "%s to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	line("held out", "%d requests, %d of routes with too few other labels", r.HeldOut, r.Unseen)
	if r.Measured {
		for _, score := range []struct {
			name string
			apgr curve.Interval
		}{{"model", r.Learned}, {"default", r.Baseline}, {"difference", r.Difference}} {
			line(score.name, "APGR %.3f, 95 %% interval %.3f to %.3f", score.apgr.Value, score.apgr.Low, score.apgr.High)
		}
	}
	if r.Reason == "" {
		line("result", "the model is better than the default score and enabled")
	} else {
		line("result", "not enabled")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printUnused prints the numbers of lines that were not used, unless they are 0.
func printUnused(line func(name, format string, args ...any), u training.Unused) {
	for _, one := range []struct {
		n    int
		text string
	}{
		{u.OtherTiers, "unused lines of other tiers"},
		{u.OtherTenants, "unused lines of another tenant than the request's"},
		{u.AmbiguousLabels, "unused lines without a tenant, with an id of several tenants"},
		{u.AmbiguousLines, "unused lines of features with the tenant and id of another one"},
		{u.OtherKeys, "unused lines of features with another hash_key than the newest one"},
		{u.Incomplete, "unused lines that end early"},
	} {
		if one.n > 0 {
			line("", "%s: %d", one.text, one.n)
		}
	}
}
