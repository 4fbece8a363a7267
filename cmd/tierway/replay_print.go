package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"tierway/replay"
)

var skippedTexts = map[string]string{
	replay.SkippedUnrouted:   "not routed: no model requested, or ended before a tier was selected",
	replay.SkippedRefused:    "rejected before a tier was selected",
	replay.SkippedKeywords:   "decided by keywords that the records do not contain",
	replay.SkippedScore:      "decided by a score that the records do not contain",
	replay.SkippedShare:      "before a share of the draft starts, after 200 prompts of a tenant and alias",
	replay.SkippedTier:       "the configuration does not reproduce their tier",
	replay.SkippedLimited:    "rejected by a limit",
	replay.SkippedUnplaced:   "reached no worker",
	replay.SkippedPool:       "their tier is not in the configuration",
	replay.SkippedIncomplete: "their records do not list all candidates",
	replay.SkippedWorkers:    "the draft has no worker for them",
	replay.SkippedWorker:     "the configuration does not reproduce their worker",
}

// printReplay prints a report for a terminal; changes adds all moves.
func printReplay(w io.Writer, r *replay.Report, drafted, changes bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("records", "%d, %s to %s, from %s", r.Records, r.From.Format(time.DateTime), r.To.Format(time.DateTime),
		counted(r.Generations, "configuration"))
	for _, s := range r.Skipped {
		line("skipped", "%d: %s", s.N, cmp.Or(skippedTexts[s.Name], plain(s.Name)))
	}
	if len(r.Groups) > 0 {
		line("keywords", "new or changed in the draft, so no record contains them: %s", plain(strings.Join(r.Groups, ", ")))
	}
	line("reproduced", "%s of the tiers, %s of the workers", part(r.TiersReproduced), part(r.WorkersReproduced))
	if drafted {
		moved := 0
		for _, m := range r.ChangedTier {
			moved += m.N
		}
		line("tier", "%s would change", part(replay.Part{N: moved, Of: r.Decided}))
		left := moved
		for _, m := range first(r.ChangedTier, changes) {
			left -= m.N
			line("", "%d %s → %s%s", m.N, plain(m.From), orRefused(m.To), examples(m.Examples, m.N, changes))
		}
		leftOut(line, left, changes)
		line("worker", "%s would change%s", part(replay.Part{N: r.ChangedWorker, Of: r.Redecided}), by(r.ChangedBy))
		left = r.ChangedWorker
		for _, m := range first(r.WorkerMoves, changes) {
			left -= m.N
			line("", "%d %s: %s → %s%s", m.N, plain(m.Tier), plain(m.From), plain(m.To), examples(m.Examples, m.N, changes))
		}
		leftOut(line, left, changes)
	}
	printReplayHandovers(line, r.Handovers, drafted)
	printReplayNumbers(line, r, drafted)
	if err := t.Flush(); err != nil {
		return err
	}
	return printReplayTiers(w, r, drafted)
}

// printReplayHandovers prints which workers compute the prompts; h is nil without hand-overs.
func printReplayHandovers(line func(name, format string, args ...any), h *replay.Handovers, drafted bool) {
	if h == nil {
		return
	}
	text := fmt.Sprintf("%d computed by a prefill worker, %d by the decode worker", h.Remote.Now, h.Local.Now)
	if drafted {
		text = fmt.Sprintf("%d → %d computed by a prefill worker, %d → %d by the decode worker", h.Remote.Now,
			h.Remote.Draft, h.Local.Now, h.Local.Draft)
	}
	line("hand-overs", "%s; %s reproduced", text, part(h.Reproduced))
	if drafted {
		line("", "%d would change, %d would get another prefill worker", h.Changed, h.ChangedWorker)
	}
	if h.Undecided > 0 {
		line("", "%d undecided: the records lack the loads of the prefill workers", h.Undecided)
	}
}

func printReplayNumbers(line func(name, format string, args ...any), r *replay.Report, drafted bool) {
	beside := func(now, draft string) string {
		if !drafted {
			return now
		}
		return now + " → " + draft
	}
	hit := "unknown: no record contains the blocks of a prompt"
	if r.Hit != nil {
		hit = beside(percent(r.Hit.Now), percent(r.Hit.Draft)) + ", estimated"
	}
	if r.RealHit != nil {
		hit += "; measured " + percent(*r.RealHit)
	}
	if r.Predicted != nil {
		hit += "; predicted by the gateway " + percent(*r.Predicted)
	}
	line("hit rate", "%s", hit)
	now, draft := r.Regret.Now, r.Regret.Draft
	line("regret", "mean %s ms, p95 %s ms, estimated", beside(number(now.Mean), number(draft.Mean)),
		beside(number(now.P95), number(draft.P95)))
	wrong := beside(percent(now.Wrong), percent(draft.Wrong)) + " of the decisions, estimated"
	if r.Realised != nil {
		wrong += fmt.Sprintf("; %s of %d streams, measured", percent(*r.Realised), r.RealisedOf)
	}
	line("wrong by 20 %", "%s", wrong)
	if r.Cost != nil {
		line("cost", "%s", beside(number(r.Cost.Now), number(r.Cost.Draft)))
	}
	if n := r.Unknown.OtherPolicy; n > 0 {
		line("other policy", "%d were decided by a policy other than the configuration's: kept unless the draft changes "+
			"the policy or removes their worker", n)
	}
	if drafted && r.Unknown.Rights > 0 {
		line("unknown", "the rights of %d: evaluated without restrictions", r.Unknown.Rights)
	}
	if drafted && r.Unknown.Counts > 0 {
		line("not counted", "the prompts of %d near a threshold: evaluated with the estimated token count", r.Unknown.Counts)
	}
	if drafted && r.Unknown.Bounds > 0 {
		line("not bounded", "%d by all limits and saturation thresholds of the draft: evaluated with the data of the records",
			r.Unknown.Bounds)
	}
}

func printReplayTiers(w io.Writer, r *replay.Report, drafted bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !drafted {
		fmt.Fprint(t, "\nTIER\tREQUESTS\tPROMPT TOKENS\t\n")
		for _, row := range r.ByTier {
			fmt.Fprintf(t, "%s\t%d\t%d\t\n", orRefused(row.Tier), row.Requests.Now, row.Prompt.Now)
		}
		return t.Flush()
	}
	fmt.Fprint(t, "\nTIER\tREQUESTS\tDRAFT\tPROMPT TOKENS\tDRAFT\tCHANGE\t\n")
	for _, row := range r.ByTier {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t\n", orRefused(row.Tier), row.Requests.Now, row.Requests.Draft,
			row.Prompt.Now, row.Prompt.Draft,
			grown(row.Prompt.Now, row.Prompt.Draft))
	}
	return t.Flush()
}

// shownMoves is the number of moves that are printed without --changes.
const shownMoves = 5

func first[T any](list []T, all bool) []T {
	if all {
		return list
	}
	return list[:min(len(list), shownMoves)]
}

// leftOut prints the number of requests in moves that are not shown.
func leftOut(line func(name, format string, args ...any), n int, all bool) {
	switch {
	case n <= 0:
	case all:
		line("", "%d in moves of fewer requests", n)
	default:
		line("", "%d in moves of fewer requests: --changes lists them", n)
	}
}

// examples returns the request IDs that a report keeps of n requests.
func examples(ids []string, n int, show bool) string {
	if !show {
		return ""
	}
	more := ""
	if n > len(ids) {
		more = fmt.Sprintf(" and %d more", n-len(ids))
	}
	return " (" + plain(strings.Join(ids, ", ")) + more + ")"
}

func by(reasons []replay.Count) string {
	var parts []string
	for _, r := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", r.N, plain(r.Name)))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

func part(p replay.Part) string {
	if p.Of == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d (%s)", p.N, p.Of, percent(float64(p.N)/float64(p.Of)))
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// number formats three significant digits, or all digits before the point.
func number(n float64) string {
	switch {
	case n >= 100:
		return fmt.Sprintf("%.0f", n)
	case n >= 1:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

// grown returns the relative change of a number.
func grown(before, after int64) string {
	switch {
	case before == after:
		return "0 %"
	case before == 0:
		return "new"
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(after)/float64(before)-1))
}

func orRefused(tier string) string { return cmp.Or(plain(tier), "(refused)") }
