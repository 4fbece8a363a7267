package admin

import (
	"context"
	"time"

	"tierway/breaker"
	"tierway/hooks"
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

// hookAttention returns the hooks that fail.
func hookAttention(chain *hooks.Chain) (items []AttentionItem) {
	for _, h := range chain.All() {
		if h.State().Breaker == breaker.Closed.String() {
			continue
		}
		item := AttentionItem{Severity: severityWarning, Subject: "hook " + h.Name, Link: "metrics",
			Message: "The hook fails, and its breaker is open. Requests are not checked by it."}
		if h.OnError == hooks.Block && !h.Shadow {
			item.Severity = severityError
			item.Message = "The hook fails, and its breaker is open. Requests are rejected with 503 until " + h.URL + " answers."
		}
		items = append(items, item)
	}
	return items
}
