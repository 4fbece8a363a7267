package server

import (
	"errors"
	"fmt"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// What a queue would do with a request.
const (
	queuePasses = "go"
	queueHolds  = "wait"
	queueShed   = "shed"
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
	Choice  *routing.Choice    `json:"choice,omitempty" doc:"What the policy saw, and what it made of it; absent where there was nobody to choose from."`
	Others  []routing.Passed   `json:"others,omitempty" doc:"Workers that the policy was not shown."`
	Learned *routing.Estimates `json:"learned,omitempty" doc:"Rates and lengths that the pool has learned up to now, each with its number of samples."`
	Used    string             `json:"used,omitempty" doc:"Of a past request: the worker that it was given."`
	Again   *Again             `json:"again,omitempty" doc:"Of a past request: the pick decided again."`
}

// explainOnly says which worker the request would be sent to, by the code that
// books it, and books nothing.
func (x *exchange) explainOnly() error {
	x.explanation.walk.charged = true
	x.setDeadline()
	if err := x.stayWithStored(); err != nil {
		return err
	}
	x.facts.Now, x.facts.Wait = time.Now(), x.mayWait()
	if e := x.explanation; e.rand == nil {
		e.rand = new(x.facts.Rand)
	} else { // so that a draft is compared and not a chance
		x.facts.Rand = *e.rand
	}
	o, err := x.pool.routing.Preview(&x.facts, x.draftPool(), x.tried...)
	x.explainChoice(&o)
	q := x.queueStep()
	x.explanation.walk.queue = q
	if err != nil {
		return x.explainWaiting(err, q)
	}
	x.explanation.Outcome = wouldRoute
	if q.Waiting > 0 {
		x.note("%d requests wait in the queue, and are offered a worker in their order", q.Waiting)
	}
	return nil
}

// explainChoice writes down where the request would go.
func (x *exchange) explainChoice(o *routing.Outlook) {
	e := x.explanation
	w := &WorkerStep{Others: o.Others, Learned: new(x.pool.routing.Estimates())}
	if len(o.Choice.Candidates) > 0 {
		w.Choice = &o.Choice
	}
	e.walk.worker = w
	e.Worker, e.Reason, e.RunnerUp, e.Candidates = o.Worker, string(o.Reason), o.Choice.RunnerUp, o.Choice.Candidates
}

// queueStep is the queue as the request would find it.
func (x *exchange) queueStep() *QueueStep {
	v := x.pool.queue.View(x.facts.Now)
	q := &QueueStep{Class: x.d.Class, Asked: x.d.AskedClass, Would: queuePasses, Waiting: x.pool.queue.Waiting(),
		MaxDepth: x.pool.Queue.MaxDepth, MaxWait: ms(x.pool.Queue.MaxWait[x.class])}
	for c := range v.Classes {
		if c <= int(x.class) {
			q.Ahead += v.Classes[c].Depth
		}
	}
	return q
}

// mayWait tells whether requests of the class wait at all.
func (x *exchange) mayWait() bool {
	return x.pool.Queue.MaxDepth > 0 && x.pool.Queue.MaxWait[x.class] > 0
}

// explainWaiting says what becomes of a request that no worker takes now: it
// waits, or it is refused, and why.
func (x *exchange) explainWaiting(err error, q *QueueStep) error {
	until := x.facts.Now.Add(x.pool.Queue.MaxWait[x.class])
	if x.patience.Before(until) {
		until = x.patience
	}
	var cooled *routing.CooledError
	switch {
	case errors.Is(err, routing.ErrFull):
		q.Why = "every worker is full"
	case errors.Is(err, routing.ErrHeld):
		q.Why = "the worker to wait for is full"
	case errors.As(err, &cooled) && cooled.Until.Before(until):
		q.Why = "every worker rests"
	case x.mayWait() && x.pool.Queue.EngineWait > 0:
		q.Why = "no worker is up"
	default:
		q.Would, q.Why = queuePasses, ""
		return x.noWorker(err)
	}
	if reason := x.wouldShed(); reason != "" {
		x.note("%s, and the queue would refuse it (%s); %d requests wait now", q.Why, reason, q.Waiting)
		q.Would, q.Shed, x.d.Shed = queueShed, reason, reason
		return x.shed(&queue.ShedError{Reason: reason, RetryAfter: time.Second})
	}
	q.Would = queueHolds
	x.note("%s: it would wait in the queue, where %d requests wait now", q.Why, q.Waiting)
	if rate, _ := x.pool.routing.Throughput(x.facts.Now); rate > 0 {
		q.Estimated = milliseconds(time.Duration(float64(q.Ahead+1) / rate * float64(time.Second)))
	}
	x.explanation.Outcome = wouldQueue
	return nil
}

// note adds to what a reader should know.
func (x *exchange) note(format string, args ...any) {
	x.explanation.Notes = append(x.explanation.Notes, fmt.Sprintf(format, args...))
}

// wouldShed returns the bound of the queue that would keep the request out, "" for
// none. The queue decides, under a draft by the draft's bounds.
func (x *exchange) wouldShed() string {
	var bounds *queue.Config
	if x.draft != nil {
		bounds = &x.pool.Queue
	}
	var shed *queue.ShedError
	if errors.As(x.pool.queue.Would(x.fillTicket(), bounds, x.facts.Now), &shed) {
		return shed.Reason
	}
	return ""
}

// detail is the step in one line.
func (q *QueueStep) detail() string {
	text := fmt.Sprintf("class %s", q.Class)
	if q.Asked != "" {
		text += fmt.Sprintf(" (%s was asked for)", q.Asked)
	}
	switch q.Would {
	case queueHolds:
		text += fmt.Sprintf(": %s, it would wait behind at most %d", q.Why, q.Ahead)
		if q.Estimated != nil {
			text += fmt.Sprintf(", about %.0f ms", *q.Estimated)
		}
	default:
		text += fmt.Sprintf(", %d wait", q.Waiting)
	}
	return text
}

// detail is the step in one line.
func (w *WorkerStep) detail(e *Explanation) string {
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
