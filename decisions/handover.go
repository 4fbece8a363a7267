package decisions

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tierway/routing"
)

// HandoverText returns in one line which worker computes a prompt, and why. worker is the decode worker. It is
// empty without a hand-over.
func HandoverText(h *routing.HandoverChoice, worker string) string {
	switch {
	case h == nil || worker == "":
		return ""
	case h.Decision == routing.HandoverRemote && h.Worker == "":
		return "no prefill worker takes the request, and " + worker + " computes no prompts"
	case h.Decision == routing.HandoverRemote:
		return fmt.Sprintf("computed by %s, handed to %s: %s", h.Worker, worker, remoteWhy(h, worker))
	}
	return fmt.Sprintf("computed by %s itself: %s", worker, localWhy(h))
}

// remoteWhy returns why another worker computes the prompt.
func remoteWhy(h *routing.HandoverChoice, worker string) string {
	switch h.Why {
	case routing.HandoverCost:
		return costText(h.Remote, h.Local, "on "+worker+" itself")
	case routing.HandoverThreshold:
		return fmt.Sprintf("%d uncached tokens reach uncached_threshold", h.Uncached)
	case routing.HandoverOnlyWay:
		return worker + " computes no prompts"
	}
	return h.Why
}

// localWhy returns why the decode worker computes the prompt.
func localWhy(h *routing.HandoverChoice) string {
	switch h.Why {
	case routing.HandoverCost:
		return costText(h.Local, h.Remote, "with "+h.Worker)
	case routing.HandoverThreshold:
		return fmt.Sprintf("%d uncached tokens, by uncached_threshold", h.Uncached)
	case routing.HandoverWhole:
		return "one worker must serve both stages of this request"
	case routing.HandoverOnlyWay:
		return "it takes no computed prompts"
	case routing.HandoverNoPrefill:
		return "no prefill worker takes the request"
	}
	return h.Why
}

// costText compares the predicted cost of a decision with that of the other one, in seconds.
func costText(cost, other float64, where string) string {
	a, b := Distinct(cost, other, 2)
	if a == b {
		return fmt.Sprintf("predicted cost %s s, and the same %s", a, where)
	}
	return fmt.Sprintf("predicted cost %s s, or %s s %s", a, b, where)
}

// mostDigits is the maximum of digits that Distinct compares. Predictions are less exact than six digits.
const mostDigits = 6

// Distinct returns the texts of two numbers, rounded to the fewest digits by which they differ, at least to digits.
// Both are equal if the numbers are, or if more than six digits would be needed.
func Distinct(a, b float64, digits int) (x, y string) {
	for n := digits; n <= mostDigits; n++ {
		if x, y = rounded(a, n), rounded(b, n); x != y {
			return x, y
		}
	}
	return rounded(a, digits), rounded(b, digits)
}

// rounded returns a number with that many digits, or with those before the point if they are more.
func rounded(v float64, digits int) string {
	decimals := 0
	if v != 0 && !math.IsInf(v, 0) && !math.IsNaN(v) {
		decimals = max(0, digits-1-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if decimals > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Text returns in one line how the prompt of the attempt a was computed, and how long both stages took.
func (h *Handover) Text(a *Attempt) string {
	if len(h.Prefills) == 0 {
		return h.Result
	}
	last := &h.Prefills[len(h.Prefills)-1]
	text := h.Result + ": "
	for i := range h.Prefills {
		p := &h.Prefills[i]
		if i > 0 {
			text += ", then "
		}
		text += fmt.Sprintf("%s %s in %.0f ms", p.Worker, p.end(), p.EndAtMs-p.AtMs)
	}
	switch {
	case h.DecodeAtMs == 0:
	case a.FirstAtMs > h.DecodeAtMs:
		text += fmt.Sprintf("; %s sent the first part of the answer after %.0f ms", a.Worker, a.FirstAtMs-h.DecodeAtMs)
	case a.EndAtMs > h.DecodeAtMs:
		text += fmt.Sprintf("; %s ended after %.0f ms", a.Worker, a.EndAtMs-h.DecodeAtMs)
	}
	if last.Usage.Prompt > 0 {
		text += fmt.Sprintf("; %s had %d of %d prompt tokens cached", last.Worker, last.Usage.Cached, last.Usage.Prompt)
	}
	return text
}

// uses reports whether the worker was to compute the prompt for another one.
func (h *Handover) uses(worker string) bool {
	return h != nil && slices.ContainsFunc(h.Prefills, func(p Prefill) bool { return p.Worker == worker })
}

func (p *Prefill) end() string {
	if p.Error == "" && p.ErrorType == "" {
		return "computed the prompt"
	}
	why := p.ErrorType
	if why == "" {
		why = strconv.Itoa(p.Status)
	}
	return "failed (" + why + ")"
}
