package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"tierway/decisions"
	"tierway/routing"
	"tierway/server/admin"
	"tierway/tiers"
)

// printExplanation prints an explanation for a terminal: the outcome on one line, then one line
// per stage. With a draft, it prints both results.
func printExplanation(w io.Writer, e *admin.RouteExplanation) error {
	if err := printLadder(w, &e.Explanation); err != nil || e.Draft == nil {
		return err
	}
	fmt.Fprintln(w, "\nwith the draft:")
	for _, c := range e.Changes {
		fmt.Fprintf(w, "  %s %s: %s\n", c.Op, plain(c.Path), plain(change(c)))
	}
	if err := printLadder(w, e.Draft); err != nil {
		return err
	}
	changed := "nothing"
	if len(e.Changed) > 0 {
		changed = strings.Join(e.Changed, ", ")
	}
	_, err := fmt.Fprintln(w, "the draft changes:", changed)
	return err
}

func printLadder(w io.Writer, e *decisions.Explanation) error {
	fmt.Fprintf(w, "%s: %s\n", e.Outcome, plain(e.Summary))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", name, plain(fmt.Sprintf(format, args...)))
	}
	for i := range e.Steps {
		st := &e.Steps[i]
		mark := "ok"
		switch {
		case st.OK:
		case e.Outcome == decisions.Undetermined:
			mark = "unknown"
		default:
			mark = "rejected"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", st.Stage, mark, plain(st.Detail))
		printTier(line, st.Tier)
		for _, l := range st.Limits {
			line("limit", "%s", limitText(l))
		}
		printWorker(line, e, st.Worker)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(t, "note\t%s\n", plain(n))
	}
	if e.Status != 0 {
		fmt.Fprintf(t, "rejected\t%s\n", plain(rejectionText(e)))
	}
	return t.Flush()
}

// rejectionText returns the response to a rejected request: its status, the limit or queue bound
// that applied, and the body; a past request has only the error code.
func rejectionText(e *decisions.Explanation) string {
	text := fmt.Sprint(e.Status)
	for _, by := range []string{e.Limit, e.Shed} {
		if by != "" {
			text += " by " + by
		}
	}
	if body := strings.TrimSpace(e.Error); body != "" {
		return text + " " + body
	}
	return strings.TrimSpace(text + " " + e.Code)
}

// limitText returns the owner of a limit, its use, and the amount that the request takes.
func limitText(l decisions.LimitUse) string {
	text := fmt.Sprintf("the %s's %s", l.Scope, l)
	if l.WouldUse > 0 { // budgets are charged after use
		text += fmt.Sprintf(", the request takes %.0f", l.WouldUse)
	}
	return text
}

func printTier(line func(name, format string, args ...any), st *decisions.TierStep) {
	if st == nil {
		return
	}
	for _, s := range st.Signals {
		line("signal", "%s", signalText(s))
	}
	for _, m := range st.Moves {
		text := fmt.Sprintf("%s selected %s; overridden by %s", m.Rule, m.Tier, m.By)
		if m.Why != "" {
			text += ": " + m.Tier + " " + m.Why
		}
		line("moved", "%s", text)
	}
	if len(st.List) > 0 {
		line("list", "%s", strings.Join(st.List, ", "))
	}
	for _, t := range st.Targets {
		var not []string
		for _, n := range []struct {
			met  bool
			word string
		}{{t.Allowed, "not allowed"}, {t.Served, "does not serve this dialect"},
			{t.Fits, fmt.Sprintf("exceeds its context of %d tokens", t.Context)}, {t.Up, "no worker is up"}} {
			if !n.met {
				not = append(not, n.word)
			}
		}
		if len(not) > 0 {
			line("tier", "%s: %s", t.Name, strings.Join(not, ", "))
		}
	}
}

func printWorker(line func(name, format string, args ...any), e *decisions.Explanation, st *decisions.WorkerStep) {
	if st == nil {
		return
	}
	chosen := e.Worker
	if st.Redecided != nil { // one of several attempts
		chosen = st.Redecided.Worker
	}
	if reason := reasonOf(e, st); reason != "" {
		line("reason", "%s: %s", reason, reasonWords(reason))
	}
	if c := st.Choice; c != nil {
		if c.KeyOf != "" {
			key, _ := c.Key.MarshalText() // never fails
			line("key", "%s of the %s", key, c.KeyOf)
		}
		for i := range c.Candidates {
			line("candidate", "%s", candidateText(&c.Candidates[i], chosen, scoreUnit(cmp.Or(c.Policy, e.Policy),
				&c.Candidates[i])))
		}
	}
	for _, o := range st.Others {
		line("other", "%s: %s", o.Worker, exclusionWords(o.Why))
	}
	printHandover(line, st)
	if l := st.Learned; l != nil {
		line("learned", "%s", learnedText(l))
	}
}

// printHandover prints which worker computes the prompt and why, the pick of the prefill worker, and what happened.
func printHandover(line func(name, format string, args ...any), st *decisions.WorkerStep) {
	if st.Choice != nil && st.Choice.Handover != nil {
		h := st.Choice.Handover
		line("hand-over", "%s", handoverText(h))
		chosen := ""
		if h.Decision == routing.HandoverRemote {
			chosen = h.Worker
		}
		if h.Reason != "" {
			line("prefill", "%s is the best worker for it: %s: %s", h.Worker, h.Reason, reasonWords(string(h.Reason)))
		}
		if p := h.Prefill; p != nil {
			for i := range p.Candidates {
				line("prefill candidate", "%s", candidateText(&p.Candidates[i], chosen,
					scoreUnit(p.Policy, &p.Candidates[i])))
			}
		}
	}
	for _, o := range st.Prefill {
		line("prefill other", "%s: %s", o.Worker, exclusionWords(o.Why))
	}
	if st.Handover != nil {
		for i := range st.Handover.Prefills {
			printRetriedPrefill(line, &st.Handover.Prefills[i])
		}
	}
	if st.Took != "" {
		line("prompt", "%s", st.Took)
	}
}

// printRetriedPrefill prints the selection of a prefill worker after another one has failed.
func printRetriedPrefill(line func(name, format string, args ...any), p *decisions.Prefill) {
	c := p.Choice
	if c == nil {
		return
	}
	line("prefill retry", "%s replaces the failed prefill worker: %s: %s", p.Worker, p.Reason, reasonWords(p.Reason))
	for i := range c.Candidates {
		line("retry candidate", "%s", candidateText(&c.Candidates[i], p.Worker, scoreUnit(c.Policy, &c.Candidates[i])))
	}
}

// handoverText returns a decision which worker computes the prompt, with its costs.
func handoverText(h *routing.HandoverChoice) string {
	text := fmt.Sprintf("%s, %s; %d uncached tokens", h.Decision, handoverWords(h.Why), h.Uncached)
	if h.Remote > 0 || h.Local > 0 {
		remote, local := decisions.Distinct(h.Remote, h.Local, 3)
		text += fmt.Sprintf("; predicted cost %s s if another worker computes them, of which %.3g s for the transfer, and "+
			"%s s if the decode worker does", remote, h.Transfer, local)
	}
	return text
}

// reasonOf returns the code of the reason for the chosen worker; "" without one.
func reasonOf(e *decisions.Explanation, st *decisions.WorkerStep) string {
	if st.Redecided != nil {
		return st.Redecided.Reason
	}
	return e.Reason
}

// candidateText returns one worker with its score; unit is the unit of the score.
func candidateText(c *routing.Candidate, chosen, unit string) string {
	text := fmt.Sprintf("%s, score %.4g%s", c.Worker, c.Score, unit)
	c.Terms.All(func(name string, value float64) { text += fmt.Sprintf(", %s %.3g%s", name, value, unit) })
	text += fmt.Sprintf("; %d requests in flight, %d prompt tokens to read, %d output tokens to generate", c.Inflight,
		c.PendingTokens, c.OutputTokens)
	if c.Overlap > 0 {
		source := "the gateway's history"
		switch {
		case c.Events:
			source = "events"
		case c.LMCacheTokens == c.Overlap:
			source = "LMCache's controller"
		}
		text += fmt.Sprintf(", %d tokens of the prompt cached according to %s", c.Overlap, source)
	}
	if c.LMCacheKeys > 0 {
		text += fmt.Sprintf(", %d keys in LMCache", c.LMCacheKeys)
	}
	if c.Effective > 0 {
		text += fmt.Sprintf("; weight %.3g of %d, because it fails requests", c.Effective, c.Weight)
	}
	if c.Excluded != "" {
		text += "; excluded: " + exclusionWords(c.Excluded)
	}
	if c.Worker == chosen {
		text += "  <- chosen"
	}
	return text
}

// signalText returns the tier that one signal selects, and its value.
func signalText(s tiers.Signal) string {
	if s.NotCounted != "" {
		return fmt.Sprintf("%s selects no tier: %.0f does not count, %s", s.Rule, s.Value, s.NotCounted)
	}
	asks := "selects no tier"
	if s.Tier != "" {
		asks = "selects " + s.Tier
	}
	text := fmt.Sprintf("%s %s", s.Rule, asks)
	if s.Threshold > 0 {
		compared := "does not exceed"
		if s.Tier != "" {
			compared = "exceeds"
		}
		if s.Rule == "keyword" {
			compared = "of"
		}
		text += fmt.Sprintf(": %g %s %g", s.Value, compared, s.Threshold)
	}
	if s.Exact {
		text += ", counted"
	}
	if len(s.Matched) > 0 {
		text += ", matched " + strings.Join(s.Matched, ", ")
	}
	return text
}
