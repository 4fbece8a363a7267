package sim

import (
	"errors"
	"fmt"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// gateway is one gateway: a pool with all engines, and its admission.
type gateway struct {
	simulation      *Simulation
	pool            *routing.Pool
	admission       admission
	dispatchPlanned bool      // a dispatch is planned for this moment
	streams         []streams // by the engine's index
	sharedState
}

// streams are the streams of a gateway that an engine is answering. Their tokens arrive with each of its steps.
type streams struct {
	running int
	last    *routing.Lease // of the one that began last
}

// receiveTokens reports the tokens that have arrived up to now.
func (g *gateway) receiveTokens() {
	for _, s := range g.streams {
		if s.running > 0 {
			s.last.Received(g.simulation.time(g.simulation.now))
		}
	}
}

// newGateway returns a gateway with that policy, to which no engine has reported its metrics.
func (w *Simulation) newGateway(p routing.Policy) *gateway {
	members := make([]routing.Member, len(w.engines))
	for i, e := range w.engines {
		members[i] = e.member(&w.config)
	}
	g := &gateway{simulation: w, pool: routing.NewPool(p, members), streams: make([]streams, len(w.engines))}
	g.pool.SetSaturation(w.config.Saturation)
	switch w.config.Admission {
	case Direct:
		g.admission = &directAdmission{g}
	case FIFO:
		g.admission = &fifoAdmission{gateway: g}
	default:
		g.admission = newQueueAdmission(g)
	}
	g.pool.Watch(g.planDispatch)
	return g
}

// planDispatch plans a dispatch at this moment, after the current event.
func (g *gateway) planDispatch() {
	if g.dispatchPlanned || g.admission.waiting() == 0 {
		return
	}
	g.dispatchPlanned = true
	g.simulation.After(0, func() {
		g.dispatchPlanned = false
		g.receiveTokens()
		g.admission.dispatch()
	})
}

// observe records the state of an engine in all gateways.
func (w *Simulation) observe(e *engineState, s routing.Status) {
	for _, g := range w.gateways {
		g.pool.Observe(e.Name, e, s)
	}
}

// balance returns the gateway of an attempt, at random.
func (w *Simulation) balance(rec *Record) *gateway {
	draw := routing.Draw(routing.Draw(uint64(rec.Number)) + uint64(rec.Attempts))
	return w.gateways[draw%uint64(len(w.gateways))]
}

// inflight is one attempt of a request, from its arrival to its end.
type inflight struct {
	record         *Record
	gateway        *gateway
	route          routing.Request
	ticket         *queue.Ticket // with a queue only
	expectedTokens int64         // tokens of the prompt plus the expected answer
	lease          routing.Lease
	releasePrefill func() // releases the prefill engine of a hand-over; nil without one, or once called
	settled        bool   // sent to an engine or refused
	hits           []int  // leading blocks in each engine's cache by the index at the arrival; nil without an index
}

// errLeft ends a request after its client left during the wait.
var errLeft = errors.New("the client left")

// Submit sends a client's request now.
func (w *Simulation) Submit(r Request) {
	r.numbers = w.numbers.appendNumbers(r.numbers, r.Chain)
	rec := &Record{Request: r, Number: len(w.requests), SubmittedAt: w.now}
	w.requests = append(w.requests, rec)
	if rec.Direct = routing.Unit(routing.Draw(^uint64(rec.Number))) < w.config.DirectShare; rec.Direct {
		w.sendDirectly(rec)
		return
	}
	w.startAttempt(rec)
}

// sendDirectly gives a request to the next engine, without the gateway.
func (w *Simulation) sendDirectly(rec *Record) {
	e := w.engines[w.direct%len(w.engines)]
	w.direct++
	j := &job{request: &rec.Request}
	j.onFirstToken = func() { rec.First, rec.Cached = w.now, j.cached }
	j.onEnd = func() { w.end(rec) }
	e.accept(j)
}

// startAttempt brings a request to a gateway, for the first time or as a retry.
func (w *Simulation) startAttempt(rec *Record) {
	r := &rec.Request
	rec.Attempts++
	rec.Arrived, rec.Waited = w.now, false
	g := w.balance(rec)
	f := &inflight{record: rec, gateway: g, route: routing.Request{
		Now: w.time(w.now), Rand: w.rng.Uint64(), Model: r.Model, Prefix: r.Prefix, Blocks: r.Prompt(),
		PromptTokens: g.pool.Learned().PromptTokens(r.PromptTokens),
		OutputTokens: g.pool.Learned().OutputTokens(r.MaxTokens),
		Stream:       routing.Unit(routing.Draw(uint64(rec.Number))) >= w.config.UnstreamedShare,
		Tenant:       routing.HashText(r.Tenant),
		MaxTokens:    r.MaxTokens,
		Timed:        true,
	}}
	if r.Session != 0 {
		f.route.Key, f.route.KeyOf = r.Session, routing.KeySession
	}
	f.expectedTokens = f.route.PromptTokens + f.route.OutputTokens
	if w.config.Choices {
		rec.Choice = &routing.Choice{}
		f.route.Record = rec.Choice
	}
	w.lookUp(f)
	if r.Patience > 0 {
		w.After(r.Patience, func() {
			if !f.settled {
				g.admission.abandon(f)
				w.refuse(f, errLeft)
			}
		})
	}
	g.receiveTokens()
	g.admission.enter(f)
}

// send gives a request with a booked lease to its engine.
func (w *Simulation) send(f *inflight, lease routing.Lease) {
	rec := f.record
	f.settled, f.lease = true, lease
	rec.DispatchedAt, rec.Worker, rec.Reason = w.now, f.lease.Worker().ID(), f.lease.Reason()
	e := w.byID[rec.Worker]
	e.enter()
	j := &job{request: &rec.Request}
	b := w.book(f, e)
	j.onFirstToken = func() {
		rec.First = w.now
		if rec.Prefill == "" {
			rec.Started, rec.Computed, rec.Cached = j.startedAt, w.now, j.cached
		}
		b.answered()
		if f.route.Stream {
			f.endHandover()
			f.lease.Answered(w.time(w.now), nil)
			f.gateway.streams[e.at].running++
			f.gateway.streams[e.at].last = &f.lease
		}
	}
	j.onEnd = func() {
		if f.route.Stream {
			f.gateway.streams[e.at].running--
		}
		e.inside--
		b.ended()
		f.endHandover()
		f.lease.Answered(w.time(w.now), nil)
		r := &rec.Request
		f.lease.Release(routing.Result{
			At: w.time(w.now), Text: true,
			PromptTokens: r.PromptTokens, CachedTokens: w.reported(j), OutputTokens: r.OutputTokens,
		})
		f.gateway.admission.settleUsage(f, r.PromptTokens+r.OutputTokens)
		w.end(rec)
	}
	if w.config.Observer != nil {
		w.config.Observer(w, rec)
	}
	if f.lease.Prefill() != nil {
		w.computePrompt(f, j)
	} else {
		e.accept(j)
	}
}

// endHandover releases the prefill engine when the decode engine has read the prompt.
func (f *inflight) endHandover() {
	if f.releasePrefill != nil {
		f.releasePrefill()
	}
}

// reported returns the cached tokens that an engine reports for a job.
func (w *Simulation) reported(j *job) int64 {
	if w.config.HideCachedTokens {
		return 0
	}
	return j.cached
}

// refuse ends an attempt without an answer. A client with retries left sends the request again after the
// retry delay.
func (w *Simulation) refuse(f *inflight, err error) {
	rec := f.record
	f.settled = true
	rec.Sheds = append(rec.Sheds, err)
	var shed *queue.ShedError
	if errors.As(err, &shed) && rec.Attempts <= rec.Request.Retries {
		w.After(w.retryDelay(rec.Attempts, shed.RetryAfter), func() { w.startAttempt(rec) })
		return
	}
	rec.Err = err
	w.end(rec)
}

func (w *Simulation) end(rec *Record) {
	rec.Done, rec.Ended = w.now, true
	if rec.Request.Done != nil {
		rec.Request.Done(rec)
	}
}

// retryDelay returns how long OpenAI's SDKs wait after the attempt of that number: the
// Retry-After if it is at most a minute; otherwise half a second, doubled with each attempt up
// to eight seconds, less a random part of up to a quarter.
func (w *Simulation) retryDelay(attempt int, after time.Duration) time.Duration {
	if after > 0 && after <= time.Minute {
		return after
	}
	const first, maxPause = 500 * time.Millisecond, 8 * time.Second
	return time.Duration(float64(min(maxPause, first<<min(attempt-1, 10))) * (1 - w.clients.Unit()/4))
}

// queueAdmission is the gateway's queue, with the same calls as in the server.
type queueAdmission struct {
	simulation *Simulation
	queue      *queue.Queue
}

func newQueueAdmission(g *gateway) *queueAdmission {
	h := &queueAdmission{simulation: g.simulation}
	h.queue = queue.New(g.pool, g.simulation.config.Queue, h.onWake)
	return h
}

func (h *queueAdmission) waiting() int { return h.queue.Waiting() }
func (h *queueAdmission) dispatch()    { h.queue.Dispatch(h.simulation.time(h.simulation.now)) }

func (h *queueAdmission) enter(f *inflight) {
	w, r := h.simulation, &f.record.Request
	f.ticket = &queue.Ticket{
		Request: &f.route, Class: r.Class, Tenant: r.Tenant, Weight: r.Weight,
		Tokens: f.expectedTokens, Bytes: r.Bytes, ID: fmt.Sprint(f.record.Number), Ref: f,
	}
	if r.Deadline > 0 {
		f.ticket.Deadline = w.time(f.record.Arrived + r.Deadline)
	}
	lease, err := h.queue.Enter(f.ticket, w.time(w.now))
	h.handleEntry(f, lease, err)
}

// handleEntry handles the result of Enter or Claim.
func (h *queueAdmission) handleEntry(f *inflight, lease routing.Lease, err error) {
	w := h.simulation
	switch {
	case err == nil:
		w.send(f, lease)
	case !errors.Is(err, queue.ErrWaiting):
		w.refuse(f, err)
	case !f.record.Waited:
		f.record.Waited, f.record.WaitedSince = true, w.now
		w.At(h.queue.WaitUntil(f.ticket).Sub(epoch()), func() { h.expire(f) })
	}
}

// onWake is called at the end of the pass that dispatched or evicted the ticket. The ticket is claimed in
// the next event.
func (h *queueAdmission) onWake(t *queue.Ticket) {
	f := t.Ref.(*inflight)
	h.simulation.After(0, func() {
		if !f.settled {
			lease, err := h.queue.Claim(t, h.simulation.time(h.simulation.now))
			h.handleEntry(f, lease, err)
		}
	})
}

func (h *queueAdmission) expire(f *inflight) {
	if f.settled {
		return
	}
	// Without an error the ticket was dispatched at this moment, and the next event claims it.
	switch err := h.queue.Leave(f.ticket, queue.Late, h.simulation.time(h.simulation.now)); {
	case errors.Is(err, queue.ErrWaiting):
		h.simulation.At(h.queue.WaitUntil(f.ticket).Sub(epoch()), func() { h.expire(f) })
	case err != nil:
		h.simulation.refuse(f, err)
	}
}

func (h *queueAdmission) abandon(f *inflight) {
	h.queue.Leave(f.ticket, queue.Cancelled, h.simulation.time(h.simulation.now)) // the client is gone
}

func (h *queueAdmission) settleUsage(f *inflight, tokens int64) {
	h.queue.SettleUsage(f.ticket, tokens)
}
