package liveness

import (
	"fmt"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// result is what a healthy case shows.
type result struct {
	name             string
	requests, failed int
	longest          time.Duration // of a request
	openings         int           // of breakers
	failedChecks     int           // of workers' health
	ineligible       int           // workers that are not up with a closed breaker at the end
	cost             time.Duration // processor time
	log              string        // of the gateway
}

// violations returns what must not be in a healthy case.
func (r *result) violations() (v []string) {
	for _, bad := range []struct {
		count int
		what  string
	}{
		{r.failed, "requests failed"}, {r.openings, "breakers opened"}, {r.failedChecks, "health checks failed"},
		{r.ineligible, "workers are not up with a closed breaker at the end"},
	} {
		if bad.count > 0 {
			v = append(v, fmt.Sprintf("%d %s", bad.count, bad.what))
		}
	}
	return v
}

// resultTable returns the results of healthy cases as a table.
func resultTable(all []result) string {
	t := newTable("failed", "longest", "opened", "CPU ms", "", "case")
	var violated int
	var cost time.Duration
	for _, r := range all {
		mark := ""
		if len(r.violations()) > 0 {
			mark, violated = "x", violated+1
		}
		cost += r.cost
		t.addRow(fmt.Sprintf("%d/%d", r.failed, r.requests), fmt.Sprintf("%.1f", r.longest.Seconds()), r.openings,
			r.cost.Milliseconds(), mark, r.name)
	}
	return fmt.Sprintf("%s%d cases break a bound, %.1f s of processor time", t, violated, cost.Seconds())
}

// observationTable returns the observations of cells as a table, with their sums.
func observationTable(all []observation) string {
	t := newTable("failed", "refused", "late", "longest", "bound", "before", "after", "eligible", "CPU ms", "", "cell")
	var failed, violated int
	var cost time.Duration
	for _, o := range all {
		mark := ""
		if len(o.violations()) > 0 {
			mark, violated = "x", violated+1
		}
		failed, cost = failed+o.failed, cost+o.cost
		t.addRow(fmt.Sprintf("%d/%d", o.failed, o.requests), o.refused, fmt.Sprintf("%d/%d", o.late, o.lateOf),
			fmt.Sprintf("%.1f", o.longest.Seconds()), fmt.Sprintf("%.1f", o.bound().Seconds()),
			fmt.Sprintf("%.2f", o.before), fmt.Sprintf("%.2f", o.after), o.eligible, o.cost.Milliseconds(), mark, o.cell)
	}
	return fmt.Sprintf("%s%d requests failed, %d cells break a bound, %.1f s of processor time", t, failed, violated,
		cost.Seconds())
}

// table is a text in columns.
type table struct {
	text strings.Builder
	w    *tabwriter.Writer
}

func newTable(columns ...any) *table {
	t := new(table)
	t.w = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', tabwriter.AlignRight)
	t.addRow(columns...)
	return t
}

func (t *table) addRow(columns ...any) {
	for _, c := range columns {
		fmt.Fprintf(t.w, "%v\t", c)
	}
	fmt.Fprintln(t.w)
}

// String returns the table.
func (t *table) String() string {
	t.w.Flush() // a Builder does not fail
	return t.text.String()
}

// processorTime returns the processor time of the test's process.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
