package proxy

import (
	"context"
	"errors"
	"slices"
	"time"

	"tierway/decisions"
	"tierway/routing"
	"tierway/server/control"
	"tierway/telemetry"
)

// unsentPrompt is a prompt that a prefill worker keeps for a decode worker that accepted no connection. No worker has
// received its object, so that the next one may.
type unsentPrompt struct {
	p         *attempt
	stage     *stageRequest // of the decode worker
	readUntil time.Time     // as that of its hand-over
}

// hasUnsent reports whether the next attempt in the pool can use an unsent prompt. An old one is dropped.
func (d *dispatch) hasUnsent(pool *control.Pool) bool {
	if u := d.unsent; u != nil && (u.p.pool != pool || u.old()) {
		d.dropUnsent()
	}
	return d.unsent != nil
}

// old reports whether the prefill engine may give the prompt up too soon.
func (u *unsentPrompt) old() bool { return time.Since(u.p.ended) > u.p.pool.HandoverLease/2 }

// dropUnsent releases the lease of a prompt that no attempt has sent. The prefill engine keeps the blocks until
// handover_lease ends.
func (d *dispatch) dropUnsent() {
	if u := d.unsent; u != nil {
		d.unsent = nil
		u.p.releaseKept(false)
	}
}

// errReleased is the fault of an attempt that only lets its worker read a prompt.
var errReleased = errors.New("the prompt was sent only to be released")

// releaseUnsent lets another decode worker read a prompt that no attempt has sent, so that its prefill worker releases
// it. The request goes on at once, but counts as in flight for a drain.
func (x *exchange) releaseUnsent() {
	d := &x.dispatch
	if !d.hasUnsent(x.resolution.Pool) {
		return
	}
	u := d.unsent
	d.unsent = nil
	u.p.reportOutcome() // here: the record of the request reads it
	tried := slices.Clone(d.tried)
	for _, a := range d.attempts {
		tried = append(tried, a.lease.Worker())
	}
	r := x.releasing()
	x.s.inflightCount.Add(1)
	go func() {
		defer x.s.inflightCount.Add(-1)
		x.s.control.Recoverer.Run("releasing a prompt", func() { r.release(u, tried) })
	}()
}

// releasing returns a copy of the exchange for releaseUnsent, without what the request changes or reuses.
func (x *exchange) releasing() *exchange {
	r := &exchange{s: x.s, in: x.in, id: x.id, caller: x.caller,
		parsed: x.parsed, resolution: x.resolution, facts: x.facts}
	req := *x.parsed.Req
	r.parsed.Req, r.parsed.Prompt = &req, nil
	r.facts.Blocks, r.facts.Cached, r.facts.Stored, r.facts.Record = nil, nil, nil, nil
	r.facts.Computed, r.facts.Wait = true, false
	return r
}

// release sends the prompt to workers of the pool that are free now, until one has received it.
func (x *exchange) release(u *unsentPrompt, tried []*routing.Worker) {
	if u.readUntil.IsZero() {
		u.readUntil = time.Now().Add(abandonWithin)
	}
	for !u.old() && time.Now().Before(u.readUntil) {
		x.facts.Now = time.Now()
		lease, err := u.p.pool.Routing.Acquire(&x.facts, tried...)
		if err != nil || x.releaseTo(u, &lease) {
			return
		}
		tried = append(tried, lease.Worker())
	}
}

// releaseTo sends the prompt to the lease's worker, and reports whether it may have received it.
func (x *exchange) releaseTo(u *unsentPrompt, lease *routing.Lease) (sent bool) {
	a := &attempt{
		x:          x,
		m:          lease.Ref().(*control.Member),
		pool:       u.p.pool,
		lease:      lease,
		moments:    moments{started: time.Now()},
		outcome:    outcome{ending: ending{result: decisions.Refused}},
		cause:      func() error { return nil },
		span:       u.p.span,
		stage:      u.stage,
		usesEngine: true,
	}
	a.m.Series.Selected(string(lease.Reason()))
	a.handover = &handover{attempt: a, fields: x.parsed.StageFields(), result: telemetry.HandoverAbandoned,
		uncounted: true, kept: u.p, readUntil: u.readUntil}
	defer a.releaseUnsettled() // for a panic
	f := a.handover.abandon(context.Background())
	if errors.Is(f.fault, errClientGone) {
		f.fault = excluded("%w", errReleased)
	}
	a.releaseLoad(f)
	a.reportOutcome()
	return f.sent
}
