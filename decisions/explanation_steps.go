package decisions

import (
	"fmt"
	"math"
	"strconv"

	"tierway/routing"
	"tierway/tenants"
)

// What a queue would do with a request.
const (
	QueuePasses = "go"
	QueueHolds  = "wait"
	QueueShed   = "shed"
)

// QueueStep is what the queue would do with a request.
type QueueStep struct {
	Class     string   `json:"class"`
	Asked     string   `json:"asked_class,omitempty" doc:"The class that was asked for, where the caller may not have it."`
	Would     string   `json:"would" enum:"go,wait,shed"`
	Why       string   `json:"why,omitempty" doc:"Why it does not go."`
	Shed      string   `json:"shed,omitempty" doc:"The bound that keeps it out."`
	Waiting   int      `json:"waiting" doc:"Requests that wait now."`
	Ahead     int      `json:"ahead" doc:"Of them those that may go first, at most: all of its class and of more urgent ones."`
	Estimated *float64 `json:"estimated_wait_ms" doc:"Until its turn, by those ahead and the pool's pace; null: it would not wait, or nothing is known."`
	MaxDepth  int      `json:"max_depth" doc:"So many of the class may wait."`
	MaxWait   float64  `json:"max_wait_ms"`
}

// WorkerStep is how the worker was found.
type WorkerStep struct {
	Choice  *routing.Choice    `json:"choice,omitempty" doc:"What the policy saw, and what it made of it; absent where there was no worker to choose from."`
	Others  []routing.Excluded `json:"others,omitempty" doc:"Workers that the policy was not shown."`
	Learned *routing.Estimates `json:"learned,omitempty" doc:"Rates and lengths that the pool has learned up to now, each with its number of samples."`
	Used    string             `json:"used,omitempty" doc:"Of a past request: the worker that it was given."`
	Again   *Again             `json:"again,omitempty" doc:"Of a past request: the pick decided again."`
}

// Detail is the step in one line.
func (q *QueueStep) Detail() string {
	text := fmt.Sprintf("class %s", q.Class)
	if q.Asked != "" {
		text += fmt.Sprintf(" (%s was asked for)", q.Asked)
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

// Detail is the step in one line.
func (w *WorkerStep) Detail(e *Explanation) string {
	n := 0
	if w.Choice != nil {
		n = w.Choice.Seen
	}
	where := "nobody yet"
	if e.Worker != "" {
		where = e.Worker + ": " + e.Reason
	}
	return fmt.Sprintf("%s by %s, of %d candidates, %d others", where, e.Policy, n, len(w.Others))
}

// LimitUse is how far one limit is used. Money is in the unit that prices and
// budgets are written in.
type LimitUse struct {
	Whose string        `json:"whose" enum:"tenant,key"`
	Limit tenants.Limit `json:"limit"`
	Used  float64       `json:"used" doc:"Requests, tokens, or money in the unit of the configuration."`
	Room  float64       `json:"room" doc:"Of it how much may be used at once: of rpm, rps and tpm the burst, else the limit."`
	Rate  int64         `json:"rate,omitempty" doc:"Of rpm, rps and tpm the limit: what is given back a minute, of rps a second."`
	Asks  float64       `json:"asks,omitempty" doc:"What the request takes of it."`
}

// String names the limit as the configuration writes it, and what is used of it.
func (u LimitUse) String() string {
	if u.Rate > 0 {
		return fmt.Sprintf("%s %d (%s of a burst of %s used)", u.Limit, u.Rate, u.text(u.Used), u.text(u.Room))
	}
	return fmt.Sprintf("%s %s (%s used)", u.Limit, u.text(u.Room), u.text(u.Used))
}

// text writes an amount of the limit without an exponent: of money all that is
// booked, of requests and tokens less than what a second gives back.
func (u LimitUse) text(amount float64) string {
	scale := 1e2
	if u.Money() {
		scale = float64(tenants.Unit)
	}
	return strconv.FormatFloat(math.Round(amount*scale)/scale, 'f', -1, 64)
}

// Money tells whether it is a limit of money.
func (u LimitUse) Money() bool {
	return u.Limit == tenants.LimitDayMoney || u.Limit == tenants.LimitMonthMoney
}

// Again is a recorded pick that was decided again.
type Again struct {
	Worker string `json:"worker" doc:"Whom the policy chooses of the candidates as they were."`
	Reason string `json:"reason"`
	Agrees bool   `json:"agrees" doc:"It is the worker that was used."`
}
