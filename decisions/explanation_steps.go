package decisions

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tierway/routing"
	"tierway/tenants"
)

// Outcomes of the queue stage.
const (
	QueuePasses = "go"
	QueueHolds  = "wait"
	QueueShed   = "shed"
)

// QueueStep is the outcome of the queue stage.
type QueueStep struct {
	Class     string   `json:"class"`
	Asked     string   `json:"asked_class,omitempty" doc:"The requested class, if the caller may not use it."`
	Would     string   `json:"would" enum:"go,wait,shed"`
	Why       string   `json:"why,omitempty" doc:"Why the request is not dispatched at once."`
	Shed      string   `json:"shed,omitempty" doc:"The bound that rejects the request."`
	Waiting   int      `json:"waiting" doc:"Requests in the queue."`
	Ahead     int      `json:"ahead" doc:"Upper bound of the waiting requests that are dispatched first: all of its class and of more urgent classes."`
	Estimated *float64 `json:"estimated_wait_ms" doc:"Estimated wait, from the requests ahead and the pool's pace; null if it would not wait or the pace is unknown."`
	MaxDepth  *int     `json:"max_depth,omitempty" doc:"Maximum number of waiting requests of the class. Absent for a past request that another generation of the configuration decided."`
	MaxWait   *float64 `json:"max_wait_ms,omitempty" doc:"Wait limit of the class. Absent like max_depth."`
}

// WorkerStep is the outcome of the worker stage.
type WorkerStep struct {
	Choice    *routing.Choice    `json:"choice,omitempty" doc:"The candidates and the choice; absent if there was no worker to choose from."`
	Others    []routing.Excluded `json:"others,omitempty" doc:"Workers that were not candidates."`
	Prefill   []routing.Excluded `json:"prefill_others,omitempty" doc:"Workers that were no candidates for computing the prompt for another worker. Absent in a tier without handover."`
	Handover  *Handover          `json:"handover,omitempty" doc:"Past requests only: how the prompt was computed, with the durations of both stages. Absent in a tier without handover."`
	Took      string             `json:"handover_text,omitempty" doc:"handover in one line."`
	Learned   *routing.Estimates `json:"learned,omitempty" doc:"Rates and lengths that the pool has learned, each with its number of samples."`
	Used      string             `json:"used,omitempty" doc:"Past requests only: the worker that served it."`
	Redecided *RedecidedPick     `json:"again,omitempty" doc:"Past requests only: the result of deciding the recorded pick again."`
}

// Detail returns the step in one line.
func (q *QueueStep) Detail() string {
	text := fmt.Sprintf("class %s", q.Class)
	if q.Asked != "" {
		text += fmt.Sprintf(" (requested: %s)", q.Asked)
	}
	switch q.Would {
	case QueueHolds:
		text += fmt.Sprintf(": %s, it would wait behind at most %d", q.Why, q.Ahead)
		if q.Estimated != nil {
			text += fmt.Sprintf(", about %.0f ms", *q.Estimated)
		}
	default:
		text += fmt.Sprintf(", %d wait", q.Waiting)
	}
	return text
}

// Detail returns the step in one line.
func (w *WorkerStep) Detail(e *Explanation) string {
	n := 0
	if w.Choice != nil {
		n = w.Choice.Seen
	}
	where := "no worker yet"
	if e.Worker != "" {
		where = e.Worker + ": " + e.Reason
	}
	text := fmt.Sprintf("%s by %s, candidates: %d, excluded: %d", where, policyOf(e.Policy, w.Choice), n, len(w.Others))
	if handover := HandoverText(e.Handover, e.Worker); handover != "" {
		text += "; " + handover
	}
	return text
}

// policyOf returns the policy that made the choice, with its rule. configured is the policy of the tier or pool.
func policyOf(configured string, c *routing.Choice) string {
	if c == nil {
		return configured
	}
	by := cmp.Or(c.Policy, configured)
	if c.Rule > 0 {
		by += fmt.Sprintf(" (policy_rules[%d])", c.Rule-1)
	}
	return by
}

// LimitUse is the state of one limit. Money has the unit of prices and budgets in the
// configuration.
type LimitUse struct {
	Scope    string        `json:"scope" enum:"tenant,key"`
	Limit    tenants.Limit `json:"limit"`
	Used     float64       `json:"used" doc:"Requests, tokens, or money in the unit of the configuration."`
	Room     float64       `json:"room" doc:"Capacity: the burst of rpm, rps and tpm; otherwise the limit."`
	Rate     int64         `json:"rate,omitempty" doc:"Refill of rpm and tpm per minute, of rps per second; absent for other limits."`
	WouldUse float64       `json:"would_use,omitempty" doc:"What the request would use."`
}

// String returns the limit as the configuration writes it, and its use.
func (u LimitUse) String() string {
	if u.Rate > 0 {
		return fmt.Sprintf("%s %d (%s of a burst of %s used)", u.Limit, u.Rate, u.text(u.Used), u.text(u.Room))
	}
	return fmt.Sprintf("%s %s (%s used)", u.Limit, u.text(u.Room), u.text(u.Used))
}

// text formats an amount of the limit without an exponent. Money keeps all booked digits; requests
// and tokens are rounded to less than one second's refill.
func (u LimitUse) text(amount float64) string {
	scale := 1e2
	if u.Money() {
		scale = float64(tenants.Unit)
	}
	return strconv.FormatFloat(math.Round(amount*scale)/scale, 'f', -1, 64)
}

// Money reports whether the limit is a limit of money.
func (u LimitUse) Money() bool {
	return u.Limit == tenants.LimitDayMoney || u.Limit == tenants.LimitMonthMoney
}

// Names reports whether the worker of a record is the candidate. The record names the server of a candidate if the
// engine chose the rank.
func Names(recorded, candidate string) bool {
	rank, of := strings.CutPrefix(candidate, recorded+"@")
	_, err := strconv.ParseUint(rank, 10, 16)
	return candidate == recorded || of && recorded != "" && err == nil
}

// RedecidedPick is the result of deciding a recorded pick again.
type RedecidedPick struct {
	Worker string `json:"worker" doc:"The worker that the policy chooses among the recorded candidates."`
	Reason string `json:"reason"`
	Agrees bool   `json:"agrees" doc:"It is the worker that served the request."`
}
