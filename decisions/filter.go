package decisions

import (
	"slices"
	"strings"
	"time"
)

// Filter selects records. A record matches if it meets every condition that is set. The tags
// describe the filter as query and body of the admin API.
type Filter struct {
	Since     time.Time `query:"since" json:"since,omitzero" doc:"RFC 3339; requests that arrived at this time or later."`
	Until     time.Time `query:"until" json:"until,omitzero" doc:"RFC 3339; requests that arrived before this time."`
	Tenant    string    `query:"tenant" json:"tenant,omitempty" maxLength:"63"`
	Tier      string    `query:"tier" json:"tier,omitempty" maxLength:"200" doc:"The tier or pool."`
	Worker    string    `query:"worker" json:"worker,omitempty" maxLength:"200" doc:"Worker of any attempt, or one that computed its prompt."`
	Outcome   string    `query:"outcome" json:"outcome,omitempty" enum:"ok,refused,failed,truncated,client_gone"`
	Reason    string    `query:"reason" json:"reason,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Reason for the worker of any attempt."`
	Rule      string    `query:"rule" json:"rule,omitempty" maxLength:"100" doc:"Rule that selected the tier."`
	Model     string    `query:"model" json:"model,omitempty" maxLength:"300" doc:"Model name as requested, or as sent to the worker."`
	Class     string    `query:"class" json:"class,omitempty" enum:"interactive,background,batch"`
	Code      string    `query:"code" json:"code,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Code of the returned error."`
	Status    int       `query:"status" json:"status,omitempty" minimum:"100" maximum:"599" doc:"Status as sent; 499 if the client left before any."`
	MinMs     float64   `query:"min_ms" json:"min_ms,omitempty" minimum:"0" doc:"Minimum duration in milliseconds."`
	RequestID string    `query:"request_id" json:"request_id,omitempty" maxLength:"128"`
	Search    string    `query:"q" json:"q,omitempty" maxLength:"100" doc:"Part of the request id, tenant, key, address, model, tier, worker or code; case is ignored."`
}

// Matches reports whether the filter selects a record.
func (f *Filter) Matches(d *Decision) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(f.Tenant, d.Tenant) && same(f.Tier, d.Tier) && same(f.Outcome, string(d.Result)) && same(f.Rule, d.Rule) &&
		same(f.Class, d.Class) && same(f.Code, d.Code) && same(f.RequestID, d.RequestID) &&
		(f.Model == "" || f.Model == d.Model || f.Model == d.RequestedModel) &&
		(f.Status == 0 || f.Status == d.Status) && d.DurationMs >= f.MinMs &&
		!d.Time.Before(f.Since) && (f.Until.IsZero() || d.Time.Before(f.Until)) &&
		f.matchesAttempt(d) && f.matchesSearch(d)
}

// matchesAttempt reports whether an attempt has the worker and the reason of the filter.
func (f *Filter) matchesAttempt(d *Decision) bool {
	if f.Worker == "" && f.Reason == "" {
		return true
	}
	if len(d.Attempts) == 0 {
		return (f.Worker == "" || f.Worker == d.Worker) && (f.Reason == "" || f.Reason == d.Reason)
	}
	return slices.ContainsFunc(d.Attempts, func(a Attempt) bool {
		return (f.Worker == "" || f.Worker == a.Worker || a.Handover.uses(f.Worker)) &&
			(f.Reason == "" || f.Reason == a.Reason)
	})
}

// matchesSearch reports whether a searched field contains the search text.
func (f *Filter) matchesSearch(d *Decision) bool {
	if f.Search == "" {
		return true
	}
	has := func(text string) bool { return containsFold(text, f.Search) }
	return has(d.RequestID) || has(d.Tenant) || has(d.Key) || has(d.KeyHint) || has(d.ClientIP) || has(d.Model) ||
		has(d.RequestedModel) || has(d.Tier) || has(d.Worker) || has(d.Code) ||
		slices.ContainsFunc(d.Attempts, func(a Attempt) bool { return has(a.Worker) })
}

// containsFold reports whether text contains part, ignoring case. It does not allocate, because a
// search reads up to a hundred thousand records.
func containsFold(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}
