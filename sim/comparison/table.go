package comparison

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// best marks the lowest time of a cell.
const best = "*"

// Print prints a table with one row for each policy of each cell.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "load\trate\tpolicy\trequests\tTTFT mean s\tp50\tp99\tduration p99 s\thit rate\tmax/mean tokens\t\n")
	for at := 0; at < len(r.Rows); {
		rows := r.cell(at)
		least := rows[0]
		for i := range rows {
			least.TTFT.Mean, least.TTFT.P50 = min(least.TTFT.Mean, rows[i].TTFT.Mean), min(least.TTFT.P50, rows[i].TTFT.P50)
			least.TTFT.P99, least.E2E.P99 = min(least.TTFT.P99, rows[i].TTFT.P99), min(least.E2E.P99, rows[i].E2E.P99)
		}
		for i := range rows {
			row := &rows[i]
			fmt.Fprintf(t, "%s\t%v\t%s\t%.0f\t%s\t%s\t%s\t%s\t%.1f %%\t%.2f\t\n", row.Load, row.Rate, row.Policy, row.Requests,
				marked(row.TTFT.Mean, least.TTFT.Mean), marked(row.TTFT.P50, least.TTFT.P50),
				marked(row.TTFT.P99, least.TTFT.P99), marked(row.E2E.P99, least.E2E.P99), 100*row.Hits, row.Uneven)
		}
		if at += len(rows); at < len(r.Rows) {
			fmt.Fprint(t, "\t\t\t\t\t\t\t\t\t\t\n")
		}
	}
	return t.Flush()
}

// cell returns the rows of the cell that begins at that index.
func (r *Report) cell(at int) []Row {
	end := at
	for end < len(r.Rows) && r.Rows[end].Load == r.Rows[at].Load && r.Rows[end].Rate == r.Rows[at].Rate {
		end++
	}
	return r.Rows[at:end]
}

// marked formats three significant digits, and marks the least time.
func marked(s, least float64) string {
	digits := 3
	for most := 1.0; digits > 0 && s >= most; most *= 10 {
		digits--
	}
	text := fmt.Sprintf("%.*f", digits, s)
	if s == least {
		return text + best
	}
	return text + " "
}
