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

// place finds the worker that the request would be sent to, by the code that books it,
// and books nothing. It returns the stage that refuses the request and its error.
func (n *explainer) place() (stage string, err error) {
	x := n.x
	x.gatherFacts()
	x.setDeadline()
	if err := x.stayWithStored(); err != nil {
		return stageWorker, err
	}
	x.facts.Now, x.facts.Wait = time.Now(), n.mayWait()
	if n.rand != nil { // so that a draft is compared and not a chance
		x.facts.Rand = *n.rand
	}
	n.drawn = &x.facts.Rand
	p := x.resolution.pool
	o, err := p.routing.Preview(&x.facts, p.draft, x.dispatch.tried...)
	n.outlook, n.queue = &o, n.queueStep()
	if err != nil {
		return n.wait(err)
	}
	if n.queue.Waiting > 0 {
		n.note("%d requests wait in the queue, and are offered a worker in their order", n.queue.Waiting)
	}
	return "", nil
}

// queueStep is the queue as the request would find it.
func (n *explainer) queueStep() *QueueStep {
	p, class := n.x.resolution.pool, n.x.parsed.class
	v := p.queue.View(n.x.facts.Now)
	q := &QueueStep{Class: class.String(), Asked: n.x.parsed.askedClass, Would: queuePasses, Waiting: p.queue.Waiting(),
		MaxDepth: p.Queue.MaxDepth, MaxWait: ms(p.Queue.MaxWait[class])}
	for c := range v.Classes {
		if c <= int(class) {
			q.Ahead += v.Classes[c].Depth
		}
	}
	return q
}

// mayWait tells whether requests of the class wait at all.
func (n *explainer) mayWait() bool {
	p := n.x.resolution.pool
	return p.Queue.MaxDepth > 0 && p.Queue.MaxWait[n.x.parsed.class] > 0
}

// wait says what becomes of a request that no worker takes now: it waits, or it is
// refused, and why.
func (n *explainer) wait(err error) (stage string, _ error) {
	x, q, p := n.x, n.queue, n.x.resolution.pool
	until := x.facts.Now.Add(p.Queue.MaxWait[x.parsed.class])
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
	case n.mayWait() && p.Queue.EngineWait > 0:
		q.Why = "no worker is up"
	default:
		q.Would, q.Why = queuePasses, ""
		return stageWorker, x.resolution.pool.noWorker(err, x.parsed.class, x.snap.file.Health.Interval)
	}
	var bounds *queue.Config // the queue's own, or the draft's
	if p.draft != nil {
		bounds = &p.Queue
	}
	var shed *queue.ShedError
	if errors.As(p.queue.Would(x.fillTicket(), bounds, x.facts.Now), &shed) {
		n.note("%s, and the queue would refuse it (%s); %d requests wait now", q.Why, shed.Reason, q.Waiting)
		q.Would, q.Shed = queueShed, shed.Reason
		return stageQueue, p.shed(&queue.ShedError{Reason: shed.Reason, RetryAfter: time.Second}, x.parsed.class, x.snap.file.Health.Interval)
	}
	q.Would, n.waits = queueHolds, true
	n.note("%s: it would wait in the queue, where %d requests wait now", q.Why, q.Waiting)
	if rate, _ := p.routing.Throughput(x.facts.Now); rate > 0 {
		q.Estimated = milliseconds(time.Duration(float64(q.Ahead+1) / rate * float64(time.Second)))
	}
	return "", nil
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
