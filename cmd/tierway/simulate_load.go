package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/decisions"
	"tierway/sim"
	"tierway/sim/comparison"
)

func (f *simulateFlags) cells(c *cobra.Command) ([]comparison.Cell, error) {
	for i, rate := range f.rates {
		switch {
		case !(rate >= 0.001 && rate <= 1e6):
			return nil, fmt.Errorf("--rate %v: write a number from 0.001 to 1e6", rate)
		case slices.Contains(f.rates[:i], rate):
			return nil, fmt.Errorf("--rate %v is given twice: remove one of them", rate)
		}
	}
	if f.trace == "" && len(f.decisions) == 0 {
		return f.modeCells()
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
	arrivals, err := f.readTrace(c)
	return comparison.TraceCells("trace", arrivals, f.blockTokens, rates), err
}

func (f *simulateFlags) modeCells() (cells []comparison.Cell, err error) {
	if len(f.modes) == 0 {
		return nil, fmt.Errorf("--mode: write one or more of %s", strings.Join(comparison.ModeNames(), ", "))
	}
	for i, mode := range f.modes {
		mode = strings.TrimSpace(mode)
		of, err := comparison.ModeCells(mode, f.rates)
		if err != nil {
			return nil, fmt.Errorf("--mode: %w", err)
		}
		if slices.Contains(f.modes[:i], mode) {
			return nil, fmt.Errorf("--mode: %q is given twice: remove one of them", mode)
		}
		f.modes[i] = mode
		cells = append(cells, of...)
	}
	return cells, nil
}

func (f *simulateFlags) readTrace(c *cobra.Command) ([]sim.Arrival, error) {
	if f.blockTokens < 1 || f.blockTokens > 1<<20 {
		return nil, fmt.Errorf("--block-tokens %d: write the tokens of one hash, such as %d", f.blockTokens,
			sim.MooncakeTokens)
	}
	if f.spread < 0 || f.spread > time.Hour {
		return nil, fmt.Errorf("--spread %v: write an interval from 0 to 1h, such as 3s", f.spread)
	}
	in, name, err := openInput(c, f.trace)
	if err != nil {
		return nil, fmt.Errorf("--trace %s: %w", name, withoutPath(err))
	}
	defer in.Close()
	arrivals, err := sim.ReadMooncake(in, f.blockTokens, f.requests)
	if err != nil {
		return nil, fmt.Errorf("--trace %s: %w", name, withoutPath(err))
	}
	if warning := uncovered(arrivals, f.blockTokens); warning != "" {
		printMessage(c, "--trace %s: %s", name, warning)
	}
	sim.Spread(arrivals, f.spread)
	return arrivals, nil
}

// uncovered describes the prompts that have whole blocks without a hash; empty if there are none.
func uncovered(arrivals []sim.Arrival, blockTokens int64) string {
	first, short := -1, 0
	for i := range arrivals {
		if r := &arrivals[i].Request; int64(len(r.Chain)) < r.PromptTokens/blockTokens {
			if short++; first < 0 {
				first = i
			}
		}
	}
	if short == 0 {
		return ""
	}
	r := &arrivals[first].Request
	return fmt.Sprintf("request %d: hash_ids covers %d of %d blocks of input_length %d (%d of %d requests are like it): "+
		"is --block-tokens %d right?", first+1, len(r.Chain), (r.PromptTokens+blockTokens-1)/blockTokens, r.PromptTokens,
		short, len(arrivals), blockTokens)
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
	if !slices.ContainsFunc(arrivals, func(a sim.Arrival) bool { return len(a.Request.Chain) > 0 }) {
		printMessage(c, "--decisions: no record has features.chain, so no prompts share a prefix: %s", decisionSources)
	}
	return arrivals, nil
}

func createChart(path string) (func(*comparison.Report) error, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--svg %s: %w", path, withoutPath(err))
	}
	return func(report *comparison.Report) error {
		if err := errors.Join(report.SVG(file), file.Close()); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
		return nil
	}, nil
}

// progressBar shows how much of a long command is done, on a terminal only.
type progressBar struct {
	out   io.Writer // nil: not a terminal
	shown int       // filled places; -1 before the first call
}

const progressPlaces = 40

func newProgressBar(out io.Writer) *progressBar {
	b := &progressBar{shown: -1}
	if terminal(out) {
		b.out = out
	}
	return b
}

func (b *progressBar) show(done, total int) {
	filled := progressPlaces * done / max(1, total)
	if b.out == nil || filled == b.shown {
		return
	}
	b.shown = filled
	fmt.Fprintf(b.out, "\r[%s%s] %d of %d", strings.Repeat("#", filled), strings.Repeat(".", progressPlaces-filled), done,
		total)
}

// clear removes the bar until it is shown again.
func (b *progressBar) clear() {
	if b.out != nil && b.shown >= 0 {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
	b.shown = -1
}
