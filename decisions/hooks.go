package decisions

import (
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"tierway/openai"
	"tierway/telemetry"
)

// HooksText returns the calls of hooks in the form of the header x-tierway-hooks: the name of a hook that allowed the
// request, and name:result otherwise. The result of a shadow is only in records.
func HooksText(list []Hook) string { return string(appendHookResults(nil, list, false)) }

// appendHookResults appends the calls of hooks. Their names and results need no escaping.
func appendHookResults(b []byte, list []Hook, shadows bool) []byte {
	for i := range list {
		h := &list[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, h.Name...)
		if h.Shadow {
			b = append(b, ":shadow"...)
		}
		if h.Result != "allowed" && (shadows || !h.Shadow) {
			b = append(append(b, ':'), h.Result...)
		}
	}
	return b
}

// HooksDetail returns the calls of hooks as the end of a step's detail.
func HooksDetail(list []Hook) string {
	if len(list) == 0 {
		return ""
	}
	return ", hooks: " + HooksText(list)
}

// EndedAtHooks reports whether a hook ended the request.
func (d *Decision) EndedAtHooks() bool { return HookEnd(d.Code, d.Hooks) != "" }

// HookEnd describes which of the called hooks ended a request with that code, and how; "" if none did. It omits the
// reason of a rejection, which may repeat the prompt.
func HookEnd(code string, list []Hook) string {
	if len(list) == 0 {
		return ""
	}
	last := &list[len(list)-1]
	switch openai.Code(code) {
	case openai.CodeRejectedByHook:
		return "the hook " + last.Name + " rejects it"
	case openai.CodeHookUnavailable:
		return "the hook " + last.Name + " fails (" + last.Result + "): " + last.Error
	}
	return ""
}

// appendHooks appends the calls of hooks and their duration. The result of a shadow follows its name.
func appendHooks(b []byte, list []Hook) []byte {
	if len(list) == 0 {
		return b
	}
	took := 0.0
	for i := range list {
		took += list[i].DurationMs
	}
	b = append(appendHookResults(append(appendKey(b, "hooks"), '"'), list, true), '"')
	return appendNumber(b, "hooks_ms", took)
}

// hookSpan returns the span of the call n of a hook, counted from 0.
func (t Trace) hookSpan(a *attrs, n int) telemetry.Span {
	h := &t.Hooks[n]
	s := telemetry.Span{Name: "hook " + h.Name, Start: t.at(h.AtMs), End: t.at(h.AtMs + h.DurationMs),
		Error: h.Error != ""}
	if n < len(t.HookCalls) {
		s.Begun = t.HookCalls[n]
	}
	a.text("tierway.hook", h.Name)
	a.text("tierway.hook.result", h.Result)
	a.yes("tierway.hook.shadow", h.Shadow)
	if s.Error {
		a.text(semconv.ErrorTypeKey, h.Result)
	}
	s.Attributes = a.next()
	return s
}
