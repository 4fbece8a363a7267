package decisions

import (
	"slices"
	"strings"
	"time"
)

// Filter selects records. Absent conditions do not matter; a record has to match all
// the others. The tags describe it as a query and a body of the
// admin API.
type Filter struct {
	Since     time.Time `query:"since" json:"since,omitzero" doc:"RFC 3339; only requests that came then or later."`
	Until     time.Time `query:"until" json:"until,omitzero" doc:"RFC 3339; only requests that came before."`
	Tenant    string    `query:"tenant" json:"tenant,omitempty" maxLength:"63"`
	Tier      string    `query:"tier" json:"tier,omitempty" maxLength:"200" doc:"The tier or pool."`
	Worker    string    `query:"worker" json:"worker,omitempty" maxLength:"200" doc:"One that was asked, the last or before it."`
	Outcome   string    `query:"outcome" json:"outcome,omitempty" enum:"ok,refused,failed,truncated,client_gone"`
	Reason    string    `query:"reason" json:"reason,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Why a worker was chosen, the last or one before it."`
	Rule      string    `query:"rule" json:"rule,omitempty" maxLength:"100" doc:"Why the tier was chosen."`
	Model     string    `query:"model" json:"model,omitempty" maxLength:"300" doc:"As it was asked for, or as the worker was asked for it."`
	Class     string    `query:"class" json:"class,omitempty" enum:"interactive,background,batch"`
	Code      string    `query:"code" json:"code,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Of the error that was answered."`
	Status    int       `query:"status" json:"status,omitempty" minimum:"100" maximum:"599" doc:"As sent; 499: the client left before any."`
	MinMs     float64   `query:"min_ms" json:"min_ms,omitempty" minimum:"0" doc:"Only requests that took as long or longer, in milliseconds."`
	RequestID string    `query:"request_id" json:"request_id,omitempty" maxLength:"128"`
	Search    string    `query:"q" json:"q,omitempty" maxLength:"100" doc:"A part of the request id, tenant, key, model, tier, worker or code, in any case."`
}

// Matches reports whether the filter selects a record.
func (f *Filter) Matches(d *Decision) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(f.Tenant, d.Tenant) && same(f.Tier, d.Tier) && same(f.Outcome, string(d.Result)) && same(f.Rule, d.Rule) &&
		same(f.Class, d.Class) && same(f.Code, d.Code) && same(f.RequestID, d.RequestID) &&
		(f.Model == "" || f.Model == d.Model || f.Model == d.RequestedModel) &&
		(f.Status == 0 || f.Status == d.Status) && d.DurationMs >= f.MinMs &&
		!d.Time.Before(f.Since) && (f.Until.IsZero() || d.Time.Before(f.Until)) &&
		f.asked(d) && f.finds(d)
}

// asked tells whether a worker was asked that is looked for, for the reason that
// is looked for.
func (f *Filter) asked(d *Decision) bool {
	if f.Worker == "" && f.Reason == "" {
		return true
	}
	if len(d.Attempts) == 0 {
		return (f.Worker == "" || f.Worker == d.Worker) && (f.Reason == "" || f.Reason == d.Reason)
	}
	return slices.ContainsFunc(d.Attempts, func(a Attempt) bool {
		return (f.Worker == "" || f.Worker == a.Worker) && (f.Reason == "" || f.Reason == a.Reason)
	})
}

// finds tells whether the text that is searched for stands in the record.
func (f *Filter) finds(d *Decision) bool {
	if f.Search == "" {
		return true
	}
	has := func(text string) bool { return containsFold(text, f.Search) }
	return has(d.RequestID) || has(d.Tenant) || has(d.Key) || has(d.Model) || has(d.RequestedModel) || has(d.Tier) || has(d.Worker) || has(d.Code) ||
		slices.ContainsFunc(d.Attempts, func(a Attempt) bool { return has(a.Worker) })
}

// containsFold tells whether text has part in it, in any case. It allocates
// nothing: a search looks at a hundred thousand records.
func containsFold(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}
