package proxy

import (
	"errors"
	"time"

	"tierway/decisions"
	"tierway/queue"
	"tierway/routing"
)

// place finds the worker that the request would be sent to, by the code that books it,
// and books nothing. It returns the stage that refuses the request and its error.
func (n *explainer) place() (stage string, err error) {
	x := n.x
	x.facts = x.s.intake.Gather(&x.parsed, &x.resolution)
	setDeadline(x)
	if err := pinToStored(x); err != nil {
		return decisions.StageWorker, err
	}
	x.facts.Now, x.facts.Wait = time.Now(), n.mayWait()
	if n.Rand != nil { // so that a draft is compared and not a chance
		x.facts.Rand = *n.Rand
	}
	n.drawn = &x.facts.Rand
	p := x.resolution.Pool
	o, err := p.Routing.Preview(&x.facts, p.Draft, x.dispatch.tried...)
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
func (n *explainer) queueStep() *decisions.QueueStep {
	p, class := n.x.resolution.Pool, n.x.parsed.Class
	v := p.WaitQueue.View(n.x.facts.Now)
	q := &decisions.QueueStep{Class: class.String(), Asked: n.x.parsed.AskedClass, Would: decisions.QueuePasses, Waiting: p.WaitQueue.Waiting(),
		MaxDepth: p.Queue.MaxDepth, MaxWait: ms(p.Queue.MaxWait[class])}
	for c := range v.Classes {
		if c <= int(class) {
			q.Ahead += v.Classes[c].Depth
		}
	}
	return q
}

// mayWait reports whether requests of the class wait at all.
func (n *explainer) mayWait() bool {
	p := n.x.resolution.Pool
	return p.Queue.MaxDepth > 0 && p.Queue.MaxWait[n.x.parsed.Class] > 0
}

// wait says what becomes of a request that no worker takes now: it waits, or it is
// refused, and why.
func (n *explainer) wait(err error) (stage string, _ error) {
	x, q, p := n.x, n.queue, n.x.resolution.Pool
	until := x.facts.Now.Add(p.Queue.MaxWait[x.parsed.Class])
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
		q.Would, q.Why = decisions.QueuePasses, ""
		return decisions.StageWorker, noWorker(x.resolution.Pool, err, x.parsed.Class, x.in.Snap.File.Health.Interval)
	}
	var bounds *queue.Config // the queue's own, or the draft's
	if p.Draft != nil {
		bounds = &p.Queue
	}
	var shed *queue.ShedError
	if errors.As(p.WaitQueue.Would(fillTicket(x), bounds, x.facts.Now), &shed) {
		n.note("%s, and the queue would refuse it (%s); %d requests wait now", q.Why, shed.Reason, q.Waiting)
		q.Would, q.Shed = decisions.QueueShed, shed.Reason
		return decisions.StageQueue, shedAnswer(p, &queue.ShedError{Reason: shed.Reason, RetryAfter: time.Second}, x.parsed.Class, x.in.Snap.File.Health.Interval)
	}
	q.Would, n.waits = decisions.QueueHolds, true
	n.note("%s: it would wait in the queue, where %d requests wait now", q.Why, q.Waiting)
	if rate, _ := p.Routing.Throughput(x.facts.Now); rate > 0 {
		q.Estimated = milliseconds(time.Duration(float64(q.Ahead+1) / rate * float64(time.Second)))
	}
	return "", nil
}
