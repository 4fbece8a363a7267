package tenants

import (
	"cmp"
	"slices"
	"time"
)

// Limit is the name of one limit of Limits, as in config.yaml.
type Limit string

// The limits in the order of precedence: first those for which a short wait does not help.
const (
	LimitDayTokens   Limit = "day_tokens"
	LimitMonthTokens Limit = "month_tokens"
	LimitDayMoney    Limit = "day_money"
	LimitMonthMoney  Limit = "month_money"
	LimitTokenBurst  Limit = "token_burst" // the reservation alone exceeds it: no wait helps
	LimitRPM         Limit = "rpm"
	LimitRPS         Limit = "rps"
	LimitTPM         Limit = "tpm"
	LimitConcurrent  Limit = "concurrent"
)

// Budget reports whether the limit is a budget.
func (l Limit) Budget() bool {
	return l == LimitDayTokens || l == LimitMonthTokens || l == LimitDayMoney || l == LimitMonthMoney
}

// limitNames has all limits in their order.
var limitNames = [...]Limit{LimitDayTokens, LimitMonthTokens, LimitDayMoney, LimitMonthMoney, LimitTokenBurst,
	LimitRPM, LimitRPS, LimitTPM, LimitConcurrent}

// LimitNames returns the names of all limits, in their order.
func LimitNames() []Limit { return slices.Clone(limitNames[:]) }

// Charge is the reservation of one request in the limits of its caller.
type Charge struct {
	Caller       *Caller
	At           time.Time // time of admission: budgets are booked to its UTC day and month
	Tokens       int64     // reservation: the prompt's estimate plus the expected output
	IgnoreBudget bool      // degraded: admitted although a budget is spent
	admittedIn   windows   // set at admission
	states       []*state  // of the caller's subjects, in their order; found at the first use
	firstStates  [2]*state // initial array of states, which saves an allocation
}

// setLimits records the limits of the caller in the states of its subjects. share is the number of gateways that
// divide them.
func (c *Charge) setLimits(states []*state, share int) {
	for i, s := range states {
		s.limits, s.share = c.Caller.Subjects[i].Limits, share
	}
}

// windows are the indexes of a UTC day and month; 0 is not set.
type windows struct{ day, month int }

// setWindows records to which windows the usage is booked: those of At, or later ones that have begun already.
func (c *Charge) setWindows(states []*state) {
	w := windows{Day(c.At), Month(c.At)}
	for _, s := range states {
		w.day, w.month = max(w.day, s.currentDay(c.At)), max(w.month, s.currentMonth(c.At))
	}
	c.admittedIn = w
}

// day returns the day to which the usage is booked.
func (c *Charge) day() int { return cmp.Or(c.admittedIn.day, Day(c.At)) }

// month returns the month to which the usage is booked.
func (c *Charge) month() int { return cmp.Or(c.admittedIn.month, Month(c.At)) }

// Used is the real usage of a request.
type Used struct {
	Tokens int64 // prompt plus output
	Money  Money
	Refund bool // nothing was sent to a worker: the request itself is not counted
}

// Admission is the result of a charge: whether the request is admitted, and what remains of the limits
// of its caller.
type Admission struct {
	Refused  Limit         // the limit that refuses; empty: admitted
	Scope    string        // owner of that limit: "tenant" or "key"
	Wait     time.Duration // until a retry may pass; for a budget, until its window ends
	Requests Meter         // the request limit with the least remaining
	Tokens   Meter         // the token limit with the least remaining
}

// Meter has the values of the x-ratelimit headers for one limit.
type Meter struct {
	Set       bool          // the subject has such a limit
	Limit     int64         // per minute; for requests without rpm, per second
	Remaining int64         // never negative
	Reset     time.Duration // until the whole limit is available
}

// Spent is a subject's usage of its budgets in one window.
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
