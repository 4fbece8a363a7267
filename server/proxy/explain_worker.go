package proxy

import (
	"errors"
	"time"

	"tierway/decisions"
	"tierway/queue"
	"tierway/routing"
	"tierway/server/control"
)

// previewWorker previews the pool of the request, and the further targets of its list while these would
// not serve it. It returns the stage that refuses the request, and its error.
func (n *explainer) previewWorker() (stage string, err error) {
	x, notes := n.x, n.notes
	why, stage, err := n.previewPool()
	if why == "" || !mayFallBack(&x.resolution, &x.parsed, x.own) {
		return stage, err
	}
	for first := x.resolution; ; {
		to, ok := x.s.intake.FallBack(&x.in, &x.caller, &x.parsed, x.resolution, why)
		if x.resolution = to; !ok {
			first.Note, first.Moves = to.Note, to.Moves
			x.resolution, n.notes = first, notes
			_, stage, err = n.previewPool()
			return stage, err
		}
		if why, stage, err = n.previewPool(); why == "" {
			return stage, err
		}
	}
}

// previewPool selects the worker for the request with the code that books workers, but books nothing. It
// returns the stage that refuses the request, and its error. why is the result of whyUnserved.
func (n *explainer) previewPool() (why, stage string, err error) {
	x := n.x
	region := x.in.Snap.ExplainedRegion(x.in.HTTP.Header)
	x.facts = x.s.intake.Gather(x.in.HTTP.Context(), &x.caller, &x.parsed, &x.resolution, region, false)
	x.deadline, x.patience = deadlines(&x.in, x.parsed.Class)
	if err := x.pinToStored(); err != nil {
		return "", decisions.StageWorker, err
	}
	p := x.resolution.Pool
	x.facts.Now, x.facts.Wait = time.Now(), p.Queue.Waits(int(x.parsed.Class))
	if n.Rand != nil { // a replay uses the recorded random number, so that only the draft makes a difference
		x.facts.Rand = *n.Rand
	}
	n.drawn = &x.facts.Rand
	if known := p.KnownRegion(region); known != "" {
		n.addNote("the region of the request is %s", known)
	}
	n.noteCaches(p)
	o, err := p.Routing.Preview(&x.facts, p.Draft, x.dispatch.tried...)
	n.preview, n.queue = &o, n.queueStep()
	n.noteWeights(p)
	if err != nil {
		return n.previewQueue(err)
	}
	if n.queue.Waiting > 0 {
		n.addNote("%d requests wait in the queue and are dispatched first", n.queue.Waiting)
	}
	return "", "", nil
}

// noteCaches adds notes about workers whose cache is not known from events although these are read.
func (n *explainer) noteCaches(p *control.Pool) {
	if !p.UsesCaches() {
		return
	}
	for _, w := range p.LiveWorkers(n.x.facts.Now) {
		switch v := &w.KV; {
		case v.Streams == 0 || v.Known:
		case v.Live:
			n.addNote("the KV-cache events of %s do not name its whole cache (%d blocks are known): the history of the "+
				"gateway decides", w.ID, v.Blocks)
		case v.Fault == "":
			n.addNote("the KV-cache events of %s have not been read: the history of the gateway decides", w.ID)
		default:
			n.addNote("the KV-cache events of %s are down (%s): the history of the gateway decides", w.ID, v.Fault)
		}
	}
}

// noteWeights adds notes about candidates with a lower effective weight.
func (n *explainer) noteWeights(p *control.Pool) {
	var live []control.LiveWorker
	for _, c := range n.preview.Choice.Candidates {
		if c.Effective == 0 {
			continue
		}
		if live == nil {
			live = p.LiveWorkers(n.x.facts.Now)
		}
		for i := range live {
			if live[i].ID == c.Worker {
				n.addNote("%s counts with %.3g of its weight %d: %.0f %% of its recent requests succeeded (health_weight)",
					c.Worker, c.Effective, c.Weight, 100*live[i].SuccessRatio)
			}
		}
	}
}

// queueStep returns the state of the queue that the request would enter.
func (n *explainer) queueStep() *decisions.QueueStep {
	p, class := n.x.resolution.Pool, n.x.parsed.Class
	v := p.WaitQueue.View(n.x.facts.Now)
	q := &decisions.QueueStep{
		Class:    class.String(),
		Asked:    n.x.parsed.AskedClass,
		Would:    decisions.QueuePasses,
		Waiting:  p.WaitQueue.Waiting(),
		MaxDepth: new(p.Queue.MaxDepth),
		MaxWait:  new(ms(p.Queue.MaxWait[class])),
	}
	for c := range v.Classes {
		if c <= int(class) {
			q.Ahead += v.Classes[c].Depth
		}
	}
	return q
}

// previewQueue previews the queue's decision about a request for which the pool returned poolErr: the
// request waits or is rejected. The results are those of previewPool.
func (n *explainer) previewQueue(poolErr error) (why, stage string, err error) {
	x, q, p := n.x, n.queue, n.x.resolution.Pool
	bounds := &p.Queue
	if p.Draft == nil {
		bounds = nil // the bounds in force
	}
	o := p.WaitQueue.Preview(x.fillTicket(), bounds, poolErr, x.facts.Now)
	var shed *queue.ShedError
	switch {
	case errors.As(o.Err, &shed):
		q.Would, q.Why, q.Shed = decisions.QueueShed, waitReason(poolErr), shed.Reason
		n.addNote("%s, and the queue would reject the request (%s); %d requests wait now", q.Why, shed.Reason, q.Waiting)
		return whyUnserved(shed), decisions.StageQueue, shedAnswer(p, &queue.ShedError{Reason: shed.Reason,
			RetryAfter: time.Second},
			x.parsed.Class, x.in.Snap.File.Health.Interval)
	case o.Err != nil:
		return whyUnserved(o.Err), decisions.StageWorker, noWorker(p, o.Err, x.parsed.Class, x.in.Snap.File.Health.Interval)
	}
	q.Would, q.Why, q.Estimated, n.waits = decisions.QueueHolds, waitReason(poolErr), milliseconds(o.Wait), true
	n.addNote("%s: the request would wait in the queue; %d requests wait now", q.Why, q.Waiting)
	return "", "", nil
}

// waitReason returns the reason why no worker takes the request now.
func waitReason(poolErr error) string {
	var backoff *routing.BackoffError
	switch {
	case errors.Is(poolErr, routing.ErrFull):
		return "every worker is full"
	case errors.Is(poolErr, routing.ErrBestWorkerFull):
		return "the best worker is full"
	case errors.As(poolErr, &backoff):
		return "every worker is in backoff"
	}
	return "no worker is up"
}
