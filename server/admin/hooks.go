package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tierway/breaker"
	"tierway/hooks"
	"tierway/telemetry"
)

// HookState is one hook as GET /admin/hooks shows it.
type HookState struct {
	Name      string     `json:"name"`
	Type      string     `json:"type" enum:"http,ext_proc"`
	URL       string     `json:"url"`
	Timeout   float64    `json:"timeout_ms"`
	OnError   string     `json:"on_error" enum:"block,pass"`
	OnReject  string     `json:"on_reject" enum:"block403,block400,pass"`
	Transform bool       `json:"transform"`
	Shadow    bool       `json:"shadow"`
	Inflight  int64      `json:"inflight" doc:"Calls in flight, at most 64."`
	Breaker   string     `json:"breaker" enum:"closed,half_open,open" doc:"open: the hook is not called. half_open: one call at a time tries it."`
	OpenUntil *time.Time `json:"open_until,omitempty" doc:"End of the open state."`
	Cause     string     `json:"cause,omitempty" doc:"Why the breaker changed its state the last time."`
}

func (a *workerAPI) listHooks(context.Context, *struct{}) (*reply[page[HookState]], error) {
	return whole(mapped(a.control.Snapshot().Hooks.All(), hookState)), nil
}

func hookState(h *hooks.Hook) HookState {
	now := h.State()
	st := HookState{Name: h.Name, Type: h.Type, URL: h.URL, Timeout: millis(h.Timeout), OnError: h.OnError,
		OnReject: h.OnReject, Transform: h.Transform, Shadow: h.Shadow, Inflight: now.Inflight, Breaker: now.Breaker,
		Cause: now.Cause}
	if !now.Until.IsZero() {
		st.OpenUntil = &now.Until
	}
	return st
}

// hookNotice is the time for which the last failure is listed while the breaker is closed. Failures may be rare and
// must stay visible.
const hookNotice = 5 * time.Minute

// hookAttention returns an item for each hook with a breaker that is not closed, or with a failure within hookNotice.
func hookAttention(chain *hooks.Chain, now time.Time) (items []AttentionItem) {
	for _, h := range chain.All() {
		st := h.State()
		severity, effect := severityWarning, "continue without it"
		switch {
		case h.Shadow:
			effect = "are not affected, because the hook is a shadow"
		case h.OnError == hooks.Block:
			severity, effect = severityError, "are rejected with 503 hook_unavailable"
		}
		var message string
		switch f := lastFailure(&st); {
		case st.Breaker != breaker.Closed.String():
			message = "Its breaker is " + strings.ReplaceAll(st.Breaker, "_", " ") + timeSuffix(" until ", seconds(st.Until)) + "."
			if st.Counted != nil {
				message += " Last failure: " + st.Counted.Cause + "."
			}
			message += " Until its service answers, requests " + effect + "."
		case f == nil || now.Sub(f.At) > hookNotice:
			continue
		default:
			if f.Result == hooks.Transformed {
				severity, effect = severityError, "are rejected with 404 model_not_found"
			}
			message = fmt.Sprintf("%s, last at %s: %s. Such requests %s. %s", failureWords(f.Result), seconds(f.At), f.Cause,
				effect, wayOut(f, f == st.Counted))
		}
		items = append(items, AttentionItem{Severity: severity, Subject: "hook " + h.Name, Message: message, Link: "metrics"})
	}
	return items
}

// lastFailure returns the last failure; nil without one.
func lastFailure(st *hooks.State) *hooks.Failure {
	if st.Uncounted == nil || st.Counted != nil && st.Counted.At.After(st.Uncounted.At) {
		return st.Counted
	}
	return st.Uncounted
}

func failureWords(r hooks.Result) string {
	switch r {
	case hooks.Refused:
		return "The gateway refuses replies"
	case hooks.Transformed:
		return "A changed model is rejected"
	}
	return "Calls fail"
}

// wayOut returns what an operator can do about a failure. The breaker counts it, or does not.
func wayOut(f *hooks.Failure, counted bool) string {
	switch {
	case counted && f.Result == hooks.TimedOut:
		return "Make the service faster, or raise the timeout of the hook."
	case counted:
		return "Check the service. More failures open the breaker of the hook."
	}
	switch f.Result {
	case hooks.Refused:
		if f.Cause == hooks.CauseTransform {
			return "Set transform: true for the hook, or let its service only allow and reject."
		}
		return "Correct the service: docs/hooks.md states what a hook may change."
	case hooks.Transformed:
		return "Correct the service, or permit the model for the tenant."
	case hooks.Busy:
		return "Make the service faster."
	case hooks.TimedOut:
		return "Raise hooks_timeout, or make the hooks before it faster."
	}
	if f.Cause == hooks.CauseMemory {
		return "Raise max_buffered_bytes."
	}
	return "Check the url and the key of the hook."
}

// hookSamples returns the number of calls by hook and result, and the time of the calls by hook.
func (a *sampler) hookSamples() (out []telemetry.Sample) {
	if a.control.Snapshot().Hooks == nil {
		return nil
	}
	durations := map[string][]uint64{}
	for _, c := range a.options.Counts.HookCalls() {
		calls, called := uint64(0), c.Result != hooks.Busy.String() && c.Result != hooks.Open.String()
		if called && durations[c.Hook] == nil {
			durations[c.Hook] = make([]uint64, len(c.Durations))
		}
		for i, n := range c.Durations {
			if calls += n; called {
				durations[c.Hook][i] += n
			}
		}
		out = append(out, telemetry.Sample{Name: "hook_calls", Unit: "1/s",
			Labels: []string{"hook", c.Hook, "result", c.Result}, Value: float64(calls)})
	}
	for _, hook := range slices.Sorted(maps.Keys(durations)) {
		out = append(out, quantiles("hook", telemetry.HookSeconds(), durations[hook], []string{"hook", hook}, 0.5, 0.95)...)
	}
	return out
}
