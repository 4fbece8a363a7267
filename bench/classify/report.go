package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// seed makes runs repeatable.
const seed = 1

// line is one scorer on one set.
type line struct {
	name string
	measured
}

// part is the prompts of one category.
type part struct {
	name    string
	prompts int
	gap     float64 // the mean gain
	groups  float64 // the share that the preset groups sends to large
	lesson  float64
	without float64 // the area of the shipped rules on all other categories
}

// result is one set's figures.
type result struct {
	set   set
	all   part
	lines []line
	parts []part
}

// report is a whole run.
type report struct {
	resamples int
	results   []result
}

// measure asks every scorer about every set.
func measure(sets []set, resamples int) (report, error) {
	groups, err := newJudge("groups")
	if err != nil {
		return report{}, err
	}
	lesson, err := newJudge("lesson")
	if err != nil {
		return report{}, err
	}
	r := report{resamples: resamples}
	for _, s := range sets {
		one := result{set: s, all: share("all", s.prompts, groups, lesson)}
		for _, by := range scorers(groups, lesson) {
			one.lines = append(one.lines, line{by.name, bootstrap(outcomes(s.prompts, by), resamples, seed)})
		}
		one.parts = categories(s.prompts, groups, lesson)
		r.results = append(r.results, one)
	}
	return r, nil
}

func outcomes(prompts []prompt, by scorer) []outcome {
	all := make([]outcome, len(prompts))
	for i, p := range prompts {
		all[i] = outcome{by.score(p.text), p.gain}
	}
	return all
}

// share tells how much of some prompts each preset sends to large.
func share(name string, prompts []prompt, groups, lesson judge) part {
	p, n := part{name: name, prompts: len(prompts)}, float64(len(prompts))
	for _, one := range prompts {
		p.gap += one.gain / n
		if groups.large(one.text) {
			p.groups += 1 / n
		}
		if lesson.large(one.text) {
			p.lesson += 1 / n
		}
	}
	return p
}

// categories returns a part a category, in the set's order; none without them.
func categories(prompts []prompt, groups, lesson judge) []part {
	var names []string
	for _, p := range prompts {
		if p.category != "" && !slices.Contains(names, p.category) {
			names = append(names, p.category)
		}
	}
	shipped := scorers(groups, lesson)[0]
	var parts []part
	for _, name := range names {
		var in, out []prompt
		for _, p := range prompts {
			if p.category == name {
				in = append(in, p)
			} else {
				out = append(out, p)
			}
		}
		one := share(name, in, groups, lesson)
		one.without = rank(outcomes(out, shipped)).worth(nil).apgr
		parts = append(parts, one)
	}
	return parts
}

// text is the report as tables.
func (r report) text(markdown bool) string {
	var b strings.Builder
	for _, one := range r.results {
		n := len(one.set.prompts)
		fmt.Fprintf(&b, "%s: %d prompts (%d left out), the strong model's answers are better by %.2f points in the mean; 95 %% of %d resamples in brackets\n\n",
			one.set.name, n, one.set.left, one.all.gap, r.resamples)
		rows := [][]string{{"order of the prompts", "APGR", "95 %", "CPT50", "CPT80"}}
		for _, l := range one.lines {
			rows = append(rows, []string{l.name, fmt.Sprintf("%.3f", l.apgr), fmt.Sprintf("[%.3f, %.3f]", l.area.low, l.area.high), percent(l.cpt50), percent(l.cpt80)})
		}
		writeTable(&b, rows, markdown)
		b.WriteString("\n")
		rows = [][]string{{"sent to large", "prompts", "gap", "groups", "lesson", "APGR of groups without it"}}
		for _, p := range append(slices.Clone(one.parts), one.all) {
			without := ""
			if p.name != one.all.name {
				without = fmt.Sprintf("%.3f", p.without)
			}
			rows = append(rows, []string{p.name, fmt.Sprint(p.prompts), fmt.Sprintf("%.2f", p.gap), percent(p.groups), percent(p.lesson), without})
		}
		writeTable(&b, rows, markdown)
		b.WriteString("\n")
	}
	return b.String()
}

func percent(share float64) string {
	if math.IsNaN(share) {
		return "never"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// writeTable writes rows with their head, the first column to the left and all
// others to the right.
func writeTable(b *strings.Builder, rows [][]string, markdown bool) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		if markdown {
			b.WriteString("| " + strings.Join(row, " | ") + " |\n")
			if n == 0 {
				b.WriteString("|---" + strings.Repeat("|--:", len(row)-1) + "|\n")
			}
			continue
		}
		var cells strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cells.WriteString(cell + pad)
			} else {
				cells.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(cells.String(), " ") + "\n")
	}
}
