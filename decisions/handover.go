package decisions

import (
	"fmt"
	"slices"
	"strconv"

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
		return fmt.Sprintf("predicted cost %s, or %s on %s itself", secondsText(h.Remote), secondsText(h.Local), worker)
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
		return fmt.Sprintf("predicted cost %s, or %s with %s", secondsText(h.Local), secondsText(h.Remote), h.Worker)
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

// secondsText returns a predicted duration with two or three digits.
func secondsText(s float64) string {
	if s >= 100 {
		return strconv.FormatFloat(s, 'f', 0, 64) + " s"
	}
	return fmt.Sprintf("%.2g s", s)
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

// end returns how the computation ended.
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
