package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"tierway/tierscore/curve"
)

// seed makes runs repeatable.
const seed = 1

// fewCategories is how many categories of a set are listed one by one.
const fewCategories = 10

// result is one set's figures.
type result struct {
	set     set
	shares  [len(presets)]shares
	shipped preset                   // as the gateway is shipped
	groups  preset                   // preset groups
	graded  [len(strongShares)]value // of preset graded, by the share of large
	orders  []line                   // empty if another set has the same prompts
}

// preset is a labelled set under a preset.
type preset struct {
	routed []routed
	upper  value // if medium and large answer as the strong model
	lower  value // if only large does
}

// presets are the presets of the shares, the one of the shipped configuration first.
var presets = [...]string{"graded", "groups", "lesson"}

// report is a whole run.
type report struct {
	resamples int
	results   []result
}

// gateways are the measured ones.
type gateways struct {
	presets [len(presets)]gateway
	shares  [len(strongShares)]gateway // preset graded with a share of large alone
}

func newGateways() (g gateways, err error) {
	for i, name := range presets {
		section := "" // as shipped
		if i > 0 {
			section = fmt.Sprintf("classifier: { preset: %s }\n", name)
		}
		if g.presets[i], err = newGateway(section); err != nil {
			return g, err
		}
	}
	for i, share := range strongShares {
		section := fmt.Sprintf("classifier: { preset: graded, share: { large: %v } }\n", share)
		if g.shares[i], err = newGateway(section); err != nil {
			return g, err
		}
	}
	return g, nil
}

// measure routes every set as the gateway does. Of labelled sets it measures what that
// is worth, and what orders of the prompts are: the main ones or all.
func measure(sets []set, resamples int, orders bool) (report, error) {
	g, err := newGateways()
	if err != nil {
		return report{}, err
	}
	r := report{resamples: resamples}
	for _, s := range sets {
		one, err := g.measure(s, resamples, orders)
		if err != nil {
			return report{}, err
		}
		r.results = append(r.results, one)
	}
	return r, nil
}

// measure is measure for one set.
func (g *gateways) measure(s set, resamples int, orders bool) (one result, err error) {
	one.set = s
	for i, by := range g.presets {
		sent, err := by.route(s.prompts)
		if err != nil {
			return one, err
		}
		one.shares[i] = sharesOf(sent)
		switch i {
		case 0:
			one.shipped.routed = sent
		case 1:
			one.groups.routed = sent
		}
	}
	if s.points == 0 {
		return one, nil
	}
	for _, p := range []*preset{&one.shipped, &one.groups} {
		p.upper, p.lower = valueOf(p.routed, 1, resamples, seed), valueOf(p.routed, 2, resamples, seed)
	}
	for i, by := range g.shares {
		sent, err := by.route(s.prompts)
		if err != nil {
			return one, err
		}
		one.graded[i] = valueOf(sent, 2, resamples, seed)
	}
	if inChats := slices.ContainsFunc(s.prompts, func(p promptRow) bool { return p.before != "" }); !inChats {
		one.orders, err = ordersOf(s.prompts, resamples, orders)
	}
	return one, err
}

// text is the report as tables.
func (r report) text(markdown bool) string {
	var b strings.Builder
	rows := [][]string{{"set", "prompts"}}
	for _, name := range presets {
		rows[0] = append(rows[0], name+": small", "medium", "large")
	}
	for _, one := range r.results {
		row := []string{one.set.title(), fmt.Sprint(len(one.set.prompts))}
		for _, share := range slices.Concat(one.shares[0][:], one.shares[1][:], one.shares[2][:]) {
			row = append(row, percent(share))
		}
		rows = append(rows, row)
	}
	writeTable(&b, rows, markdown)
	fmt.Fprintf(&b, "\n")
	rows = [][]string{{"set", "preset: as strong", "sent there", "score less random", "in each category", "gap recovered"}}
	for _, one := range r.results {
		for i, p := range []preset{one.shipped, one.groups} {
			if p.upper.up > 0 {
				rows = append(rows, one.set.worth(presets[i]+": medium, large", p.upper))
			}
			if p.lower.up > 0 {
				rows = append(rows, one.set.worth(presets[i]+": large", p.lower))
			}
		}
	}
	writeTable(&b, rows, markdown)
	r.writeGraded(&b, markdown)
	r.writeOrders(&b, markdown)
	for _, one := range r.results {
		one.writeCategories(&b, markdown)
	}
	return b.String()
}

// title is a set's name with which part of it was seen.
func (s set) title() string {
	if s.seen == "" {
		return s.name
	}
	return s.name + " (" + s.seen + ")"
}

// worth is a row about a labelled set.
func (s set) worth(tiers string, v value) []string {
	return []string{s.title(), tiers, percent(v.up), s.score(v.over), s.score(v.within), percent(v.recovered)}
}

// score is a difference of scores in the set's points, with its interval.
func (s set) score(i curve.Interval) string {
	factor := 1.0
	if s.points == 100 { // right or wrong
		factor = 100
	}
	if math.IsNaN(i.Value) {
		return ""
	}
	number := func(f float64) string {
		text := fmt.Sprintf("%+.2f", factor*f)
		if strings.Trim(text, "+-0.") == "" {
			return text[1:] // no sign of nothing
		}
		return text
	}
	return fmt.Sprintf("%s of %g [%s, %s]", number(i.Value), s.points, number(i.Low), number(i.High))
}

// writeCategories writes the shares of each category of a labelled set that has few, under preset groups.
func (one result) writeCategories(b *strings.Builder, markdown bool) {
	var names []string
	of := map[string][]routed{}
	for _, r := range one.groups.routed {
		if of[r.category] == nil {
			names = append(names, r.category)
		}
		of[r.category] = append(of[r.category], r)
	}
	if one.set.points == 0 || len(names) < 2 || len(names) > fewCategories {
		return
	}
	rows := [][]string{{one.set.title(), "prompts", "gap", "groups: small", "medium", "large"}}
	for _, name := range names {
		gap := 0.0
		for _, r := range of[name] {
			gap += r.gain / float64(len(of[name]))
		}
		s := sharesOf(of[name])
		rows = append(rows, []string{name, fmt.Sprint(len(of[name])), fmt.Sprintf("%.2f", gap),
			percent(s[0]), percent(s[1]), percent(s[2])})
	}
	b.WriteString("\n")
	writeTable(b, rows, markdown)
}

// writeGraded writes what preset graded is worth at several shares of large.
func (r report) writeGraded(b *strings.Builder, markdown bool) {
	rows := [][]string{{"set", "preset graded, share", "sent there", "score less random", "in each category",
		"gap recovered"}}
	for _, one := range r.results {
		for i, v := range one.graded {
			if one.set.points > 0 {
				rows = append(rows, one.set.worth(fmt.Sprintf("large: %v", strongShares[i]), v))
			}
		}
	}
	b.WriteString("\n")
	writeTable(b, rows, markdown)
}

// writeOrders writes what orders of the prompts are worth.
func (r report) writeOrders(b *strings.Builder, markdown bool) {
	rows := [][]string{{"set", "in the order of", "APGR", "CPT50", "CPT80"}}
	for _, share := range strongShares {
		rows[0] = append(rows[0], "score less random at "+percent(share))
	}
	for _, one := range r.results {
		for _, l := range one.orders {
			row := []string{one.set.title(), l.name, fmt.Sprintf("%.3f [%.3f, %.3f]", l.apgr.Value, l.apgr.Low, l.apgr.High),
				percentBetween(l.cpt50), percentBetween(l.cpt80)}
			for _, over := range l.over {
				row = append(row, one.set.score(over))
			}
			rows = append(rows, row)
		}
	}
	b.WriteString("\n")
	writeTable(b, rows, markdown)
}

// percentBetween is a share with its interval.
func percentBetween(i curve.Interval) string {
	return fmt.Sprintf("%s [%.0f, %.0f]", percent(i.Value), 100*i.Low, 100*i.High)
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
