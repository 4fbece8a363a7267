package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"tierway/server/admin"
	"tierway/tierscore/report"
	"tierway/tierscore/training"
)

func printTierReport(w io.Writer, r *admin.TierReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	if u := r.Usage; u != nil {
		printTierUsage(line, u)
	}
	if r.LabelsProblem != "" {
		line("labels", "no report: %s", plain(r.LabelsProblem))
	}
	if r.Labels == nil {
		return t.Flush()
	}
	printLabels(line, r.Labels)
	if err := t.Flush(); err != nil {
		return err
	}
	return printCurves(w, r.Labels)
}

func printTierUsage(line func(name, format string, args ...any), u *admin.TierUsage) {
	line("period", "%s to %s", u.From, dayBefore(u.To))
	for i, s := range u.Tiers {
		name := map[bool]string{true: "tiers"}[i == 0]
		line(name, "%s: %.1f %% of %d requests, cost %s, at the price of %s %s", plain(s.Tier), 100*s.Share, u.Requests,
			s.Money, plain(u.Last), s.AtLast)
	}
	if u.AtLast == 0 {
		line("saved", "unknown: %s has no price", plain(u.Last))
		return
	}
	line("saved", "%s of %s (%.1f %%) against sending all requests to %s", u.Saved, u.AtLast,
		100*float64(u.Saved)/float64(u.AtLast), plain(u.Last))
	line("assumed", "%s", u.Assumption)
}

// dayBefore returns the day before a day, or what the gateway sent in its place.
func dayBefore(day string) string {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return plain(day)
	}
	return at.AddDate(0, 0, -1).Format(time.DateOnly)
}

func printLabels(line func(name, format string, args ...any), r *report.Report) {
	line("labels", "%d of %d lines of features have labels: %d of %s, %d of %s, %d of both (%.1f %%)", r.Requests, r.Lines,
		r.Small, plain(r.SmallTier), r.Large, plain(r.LargeTier), r.Paired, 100*float64(r.Paired)/float64(max(r.Requests, 1)))
	printUnused(line, r.Unused)
	for i, s := range r.Tiers {
		name := map[bool]string{true: "answered"}[i == 0]
		line(name, "%s: %d lines of features (%.1f %%)", plain(s.Tier), s.Requests, 100*s.Share)
	}
	line("curves", "%d requests with labels of replay or exploration, %s to %s", r.Evaluated, r.From.Format(time.RFC3339),
		r.To.Format(time.RFC3339))
	if r.InSample {
		line("model", "in-sample: too few labels are newer than its training, so its curve is too good")
	}
	if m := r.Money; m != nil {
		line("cost", "of 1000 requests, each with %d prompt tokens and %d output tokens at either tier and any score",
			m.PromptTokens, m.OutputTokens)
	}
}

// printCurves prints the quality at each share of the large tier.
func printCurves(w io.Writer, r *report.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nat %s\tscore above", plain(r.LargeTier))
	for _, c := range r.Curves {
		fmt.Fprintf(t, "\t%s", c.Name)
	}
	if r.Money != nil {
		fmt.Fprint(t, "\tcost")
	}
	fmt.Fprintln(t)
	for i, p := range r.Curves[0].Points {
		fmt.Fprintf(t, "%.0f %%\t%s", 100*p.Share, threshold(&p))
		for _, c := range r.Curves {
			q := c.Points[i].Quality
			fmt.Fprintf(t, "\t%.1f %% [%.1f, %.1f]", 100*q.Value, 100*q.Low, 100*q.High)
		}
		if r.Money != nil {
			fmt.Fprintf(t, "\t%s", r.Money.Points[i].Money)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "APGR\t")
	for _, c := range r.Curves {
		text := "no clear gap"
		if c.APGR != nil {
			text = fmt.Sprintf("%.3f [%.3f, %.3f]", c.APGR.Value, c.APGR.Low, c.APGR.High)
		}
		fmt.Fprintf(t, "\t%s", text)
	}
	fmt.Fprintln(t)
	text := "Shares of right answers; brackets contain 95 % intervals."
	if r.Paired < r.Requests {
		text += " Missing labels of the other tier are estimated."
	}
	fmt.Fprintln(t, text)
	return t.Flush()
}

// threshold returns the score that the requests at the large tier exceed.
func threshold(p *training.QualityPoint) string {
	if p.Threshold == nil {
		return "any"
	}
	return fmt.Sprintf("%.3f", *p.Threshold)
}
