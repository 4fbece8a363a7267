package tenants

import (
	"slices"
	"time"
)

// Limit names one limit of Limits, as config.yaml does.
type Limit string

// The limits, in the order in which they are told: what no waiting helps first.
const (
	LimitDayTokens   Limit = "day_tokens"
	LimitMonthTokens Limit = "month_tokens"
	LimitDayMoney    Limit = "day_money"
	LimitMonthMoney  Limit = "month_money"
	LimitTokenBurst  Limit = "token_burst" // the reservation alone is over it: no waiting helps
	LimitRPM         Limit = "rpm"
	LimitRPS         Limit = "rps"
	LimitTPM         Limit = "tpm"
	LimitConcurrent  Limit = "concurrent"
)

// Budget reports whether the limit is a budget.
func (l Limit) Budget() bool {
	return l == LimitDayTokens || l == LimitMonthTokens || l == LimitDayMoney || l == LimitMonthMoney
}

// limitNames are all limits in their order.
var limitNames = [...]Limit{LimitDayTokens, LimitMonthTokens, LimitDayMoney, LimitMonthMoney, LimitTokenBurst,
	LimitRPM, LimitRPS, LimitTPM, LimitConcurrent}

// LimitNames returns the names of all limits, in their order.
func LimitNames() []Limit { return slices.Clone(limitNames[:]) }

// Charge is what one request takes of its caller's limits when it is admitted.
type Charge struct {
	Caller       *Caller
	At           time.Time // of admission: budgets are booked to its UTC day and month
	Tokens       int64     // reserved: the prompt's estimate and what the answer may take
	IgnoreBudget bool      // degraded: admitted although a budget is spent
}

// Used is what a request has really used.
type Used struct {
	Tokens int64 // of prompt and answer
	Money  Money
	Refund bool // nothing was sent to a worker: the request itself counts for nothing
}

// Admission says whether a request is admitted, and what its caller has left.
type Admission struct {
	Refused  Limit         // the limit that refuses; empty: admitted
	Scope    string        // tenant or key: whose limit refuses
	Wait     time.Duration // until a retry may pass; of a budget, until its window ends
	Requests Meter         // of the request limit that has least left
	Tokens   Meter         // of the tokens a minute that have least left
}

// Meter is what x-ratelimit headers say of one limit.
type Meter struct {
	Set       bool          // there is such a limit
	Limit     int64         // a minute; of requests without rpm, a second
	Remaining int64         // never negative
	Reset     time.Duration // until all of it is there again
}

// Spent is what a subject has used of its budgets in one window.
type Spent struct {
	Tokens int64
	Money  Money
}

// Day returns the UTC day of a time, counted from 1970-01-01.
func Day(t time.Time) int { return int(t.Unix() / 86400) }

// Month returns the UTC month of a time, counted from January of the year 0.
func Month(t time.Time) int {
	t = t.UTC()
	return t.Year()*12 + int(t.Month()) - 1
}
