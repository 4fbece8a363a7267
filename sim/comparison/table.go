package comparison

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// near is the factor of the lowest time of a cell up to which times are marked. Differences below it
// are within the spread of a few seeds.
const near = 1.025

// nearMark follows marked times.
const nearMark = "*"

// Table prints the rows of a comparison cell by cell. Its columns have fixed widths, so that each cell
// can be printed as soon as its runs have ended.
type Table struct {
	out     io.Writer
	columns []column
	perfect int  // index of the policy perfect; -1 if it is not compared
	stages  bool // the engines have roles
	begun   bool
}

type column struct {
	header string
	width  int
}

// NewTable returns a table for those cells and policies. It prints nothing before the first row. With roles, the
// columns of Stages replace that of prompt tokens. If perfect is one of the policies, the last column is the
// difference of the mean TTFT from that of perfect, in percent.
func NewTable(out io.Writer, cells []Cell, policies []Policy, roles ...string) *Table {
	t := &Table{out: out, columns: []column{{"load", 0}, {"rate", 0}, {"policy", 0}, {"requests", 0}, {"TTFT mean s", 0},
		{"p50 s", 6}, {"p99 s", 6}, {"duration p99 s", 0}, {"hit rate", 0}}}
	if t.stages = len(roles) > 0; t.stages {
		t.columns = append(t.columns, stageColumns(roles)...)
	} else {
		t.columns = append(t.columns, column{"max/mean tokens", 0})
	}
	if t.perfect = slices.IndexFunc(policies, func(p Policy) bool { return p.Name == "perfect" }); t.perfect >= 0 {
		t.columns = append(t.columns, column{"vs perfect", 0})
	}
	for i := range t.columns {
		t.columns[i].width = max(t.columns[i].width, len(t.columns[i].header))
	}
	for i := range cells {
		t.columns[0].width = max(t.columns[0].width, len(cells[i].Load))
		t.columns[1].width = max(t.columns[1].width, len(fmt.Sprint(cells[i].Rate)))
	}
	for i := range policies {
		t.columns[2].width = max(t.columns[2].width, len(policies[i].Name))
	}
	return t
}

// Print prints the rows of one cell, after an empty line unless it is the first one.
func (t *Table) Print(rows []Row) error {
	var b strings.Builder
	if t.begun {
		b.WriteString("\n")
	} else {
		headers := make([]string, len(t.columns))
		for i := range t.columns {
			headers[i] = t.columns[i].header
		}
		t.line(&b, headers)
	}
	t.begun = true
	least := leastTimes(rows)
	for i := range rows {
		row := &rows[i]
		texts := []string{row.Load, fmt.Sprint(row.Rate), row.Policy, fmt.Sprintf("%.0f", row.Requests),
			marked(row.TTFT.Mean, least.TTFT.Mean), marked(row.TTFT.P50, least.TTFT.P50),
			marked(row.TTFT.P99, least.TTFT.P99), marked(row.E2E.P99, least.E2E.P99),
			fmt.Sprintf("%.1f %%", 100*row.Hits)}
		if t.stages {
			texts = append(texts, row.Stages.texts()...)
		} else {
			texts = append(texts, fmt.Sprintf("%.2f", row.Uneven))
		}
		if t.perfect >= 0 {
			distance := math.Round(1000*(row.TTFT.Mean/rows[t.perfect].TTFT.Mean-1)) / 10
			texts = append(texts, fmt.Sprintf("%+.1f %%", distance+0)) // no negative zero
		}
		t.line(&b, texts)
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// line appends a line of right-aligned texts.
func (t *Table) line(b *strings.Builder, texts []string) {
	for i, text := range texts {
		fmt.Fprintf(b, "  %*s", t.columns[i].width, text)
	}
	b.WriteString("\n")
}

// leastTimes returns the lowest of each time.
func leastTimes(rows []Row) Row {
	least := rows[0]
	for i := range rows {
		least.TTFT.Mean, least.TTFT.P50 = min(least.TTFT.Mean, rows[i].TTFT.Mean), min(least.TTFT.P50, rows[i].TTFT.P50)
		least.TTFT.P99, least.E2E.P99 = min(least.TTFT.P99, rows[i].TTFT.P99), min(least.E2E.P99, rows[i].E2E.P99)
	}
	return least
}

// marked formats three significant digits, and marks times near the lowest one.
func marked(s, least float64) string {
	digits := 3
	for power := 1.0; digits > 0 && s >= power; power *= 10 {
		digits--
	}
	text := fmt.Sprintf("%.*f", digits, s)
	if s <= near*least {
		return text + nearMark
	}
	return text + " "
}
