// Command classify measures what the classifier's rules are worth on labelled
// prompts: for each prompt it is known how well a weak and a strong model
// answered, so the quality that a rule keeps can be told for every share of
// prompts that it sends to the strong one. The presets are asked through the
// classifier that the gateway runs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// options are what a run is asked for.
type options struct {
	data      string
	markdown  bool
	resamples int
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program. Without the data it says so and succeeds: the data is not
// part of the project.
func run(args []string, out io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	sets, err := load(o.data)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "nothing was measured: %v\nname the folder that holds %s, %s and %s with -data\n", err, gsm8kFile, judgementFile, questionFile)
		return nil
	}
	if err != nil {
		return err
	}
	r, err := measure(sets, o.resamples)
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
