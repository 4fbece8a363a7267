// Command classify measures the quality of the classifier's rules. It resolves prompts with the
// gateway's configuration, request reader and rules, and reports the share of each tier.
//
// Labelled prompts have the scores of a weak and a strong model. For them it compares the mean
// score of the routed prompts with that of a random router with the same shares.
// docs/tiers.md shows the results, also of rankings of prompts by several scores; flag -orders adds more
// of them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// options are the flags of a run.
type options struct {
	data      string
	markdown  bool
	orders    bool
	train     bool
	deploy    bool
	resamples int
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs the program. The labelled prompts are not part of the project: without them it measures
// only the ordinary prompts and prints a note.
func run(args []string, out io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	sets, err := load(o.data)
	if errors.Is(err, fs.ErrNotExist) && (o.train || o.deploy) {
		return fmt.Errorf("%w: name the folder of the labelled prompts with -data", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "no labelled prompts were measured: %v\nname the folder that holds %s, %s, %s and %s with -data\n\n",
			err, gsm8kFile, examFile, judgementFile, questionFile)
	} else if err != nil {
		return err
	}
	switch {
	case o.train:
		return writeTraining(sets, o.resamples, o.markdown, out)
	case o.deploy:
		return writeDeployments(sets, o.resamples, o.markdown, out)
	}
	r, err := measure(append(sets, ordinary()...), o.resamples, o.orders)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, r.text(o.markdown))
	return err
}

func parseOptions(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("classify", flag.ContinueOnError)
	f.StringVar(&o.data, "data", "../shared/data", "the folder of the labelled prompts")
	f.BoolVar(&o.markdown, "markdown", false, "print tables in Markdown")
	f.BoolVar(&o.orders, "orders", false, "rank the prompts by further scores, which no routing goes by")
	f.BoolVar(&o.train, "train", false, "print only what scores are worth that learn from labels of a part of the prompts")
	f.BoolVar(&o.deploy, "deployment", false,
		"print only the figures of a simulated deployment that repeats a part of its requests and learns from their labels")
	f.IntVar(&o.resamples, "resamples", 2000, "resamples that the 95 % intervals are made of")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.resamples < 40 || o.resamples > 100_000:
		return o, fmt.Errorf("-resamples is %d: it must be 40 to 100000, for a 95 %% interval", o.resamples)
	}
	return o, nil
}
