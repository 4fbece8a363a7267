package sim

import (
	"errors"
	"fmt"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// flight is one attempt of a request, from its coming to its end.
type flight struct {
	record *Record
	route  routing.Request
	ticket *queue.Ticket // of a queue only
	expect int64         // tokens of the prompt and the expected answer
	lease  routing.Lease
	over   bool // nothing waits for a place any more
}

// errLeft ends a request whose client left while it waited.
var errLeft = errors.New("the client left")

// Ask is a client's request at this moment.
func (w *World) Ask(r Request) {
	rec := &Record{Request: r, Number: len(w.requests), Asked: w.now}
	w.requests = append(w.requests, rec)
	w.attempt(rec)
}

// attempt is a request at the gateway's door, the first time or again.
func (w *World) attempt(rec *Record) {
	r := &rec.Request
	rec.Attempts++
	rec.Arrived, rec.Waited = w.now, false
	f := &flight{record: rec, route: routing.Request{
		Now: w.time(w.now), Rand: w.dice.Uint64(), Model: r.Model, Prefix: r.Prefix, Blocks: r.Prompt(),
		PromptTokens: w.pool.Learned().PromptTokens(r.PromptTokens), OutputTokens: w.pool.Learned().OutputTokens(r.MaxTokens), Stream: true,
	}}
	f.expect = f.route.PromptTokens + f.route.OutputTokens
	if w.config.Choices {
		rec.Choice = &routing.Choice{}
		f.route.Record = rec.Choice
	}
	if r.Patience > 0 {
		w.After(r.Patience, func() {
			if !f.over {
				w.door.leave(f)
				w.refuse(f, errLeft)
			}
		})
	}
	w.door.enter(f)
}

// send gives a request whose place is booked to its engine.
func (w *World) send(f *flight, lease routing.Lease) {
	rec := f.record
	f.over, f.lease = true, lease
	rec.Granted, rec.Worker, rec.Reason = w.now, f.lease.Worker().ID(), f.lease.Reason()
	e := w.byID[rec.Worker]
	e.inside++
	e.most = max(e.most, e.inside)
	j := &job{request: &rec.Request}
	j.began = func() {
		rec.First, rec.Cached = w.now, j.cached
		f.lease.Answered(w.time(w.now), nil)
	}
	j.ended = func() {
		e.inside--
		r := &rec.Request
		f.lease.Release(routing.Result{
			At: w.time(w.now), Text: true,
			PromptTokens: r.PromptTokens, CachedTokens: j.cached, OutputTokens: r.OutputTokens,
		})
		w.door.settle(f, r.PromptTokens+r.OutputTokens)
		w.end(rec)
	}
	if w.config.Observer != nil {
		w.config.Observer(w, rec)
	}
	e.take(j)
}

// refuse ends an attempt without an answer. A client with retries left comes
// again when it was told to.
func (w *World) refuse(f *flight, err error) {
	rec := f.record
	f.over = true
	rec.Sheds = append(rec.Sheds, err)
	var shed *queue.ShedError
	if errors.As(err, &shed) && rec.Attempts <= rec.Request.Retries {
		w.After(w.comeback(rec.Attempts, shed.RetryAfter), func() { w.attempt(rec) })
		return
	}
	rec.Err = err
	w.end(rec)
}

func (w *World) end(rec *Record) {
	rec.Done, rec.Ended = w.now, true
	if rec.Request.Done != nil {
		rec.Request.Done(rec)
	}
}

// comeback is how long OpenAI's SDKs wait after the attempt of that number: as
// they are told if that is at most a minute, else half a second, doubled with
// each attempt up to eight, less up to a quarter by chance.
func (w *World) comeback(attempt int, after time.Duration) time.Duration {
	if after > 0 && after <= time.Minute {
		return after
	}
	const first, most = 500 * time.Millisecond, 8 * time.Second
	return time.Duration(float64(min(most, first<<min(attempt-1, 10))) * (1 - w.clients.Unit()/4))
}

// hall is the gateway's queue, used as the server uses it.
type hall struct {
	world *World
	queue *queue.Queue
}

func newHall(w *World) *hall {
	h := &hall{world: w}
	h.queue = queue.New(w.pool, w.config.Queue, h.woken)
	return h
}

func (h *hall) waiting() int { return h.queue.Waiting() }
func (h *hall) pass()        { h.queue.Dispatch(h.world.time(h.world.now)) }

func (h *hall) enter(f *flight) {
	w, r := h.world, &f.record.Request
	f.ticket = &queue.Ticket{
		Request: &f.route, Class: r.Class, Tenant: r.Tenant, Weight: r.Weight,
		Tokens: f.expect, Bytes: r.Bytes, ID: fmt.Sprint(f.record.Number), Ref: f,
	}
	if r.Deadline > 0 {
		f.ticket.Deadline = w.time(f.record.Arrived + r.Deadline)
	}
	lease, err := h.queue.Enter(f.ticket, w.time(w.now))
	h.entered(f, lease, err)
}

// entered is what comes after Enter, or after Claim.
func (h *hall) entered(f *flight, lease routing.Lease, err error) {
	w := h.world
	switch {
	case err == nil:
		w.send(f, lease)
	case !errors.Is(err, queue.ErrWaiting):
		w.refuse(f, err)
	case !f.record.Waited:
		f.record.Waited, f.record.WaitedSince = true, w.now
		w.At(h.queue.WaitUntil(f.ticket).Sub(beginning()), func() { h.late(f) })
	}
}

// woken is called at the end of the pass that let the ticket go or put it out.
// Its owner hears of it as soon as that is done.
func (h *hall) woken(t *queue.Ticket) {
	f := t.Ref.(*flight)
	h.world.After(0, func() {
		if !f.over {
			lease, err := h.queue.Claim(t, h.world.time(h.world.now))
			h.entered(f, lease, err)
		}
	})
}

func (h *hall) late(f *flight) {
	if f.over {
		return
	}
	// Without an error it was let go at this very moment, and is claimed next.
	switch err := h.queue.Leave(f.ticket, queue.Late, h.world.time(h.world.now)); {
	case errors.Is(err, queue.ErrWaiting):
		h.world.At(h.queue.WaitUntil(f.ticket).Sub(beginning()), func() { h.late(f) })
	case err != nil:
		h.world.refuse(f, err)
	}
}

func (h *hall) leave(f *flight) {
	h.queue.Leave(f.ticket, queue.Cancelled, h.world.time(h.world.now)) //nolint:errcheck // nobody is there to be told
}

func (h *hall) settle(f *flight, tokens int64) { h.queue.Settle(f.ticket, tokens) }
