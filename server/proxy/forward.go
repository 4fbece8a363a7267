package proxy

import (
	"errors"
	"slices"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/tenants"
)

type dispatch struct {
	tried        []*routing.Worker // workers that must not receive the request again
	attempts     []*attempt        // all attempts, in order
	attemptArray [2]*attempt       // initial array of attempts, which saves an allocation
	firstAttempt attempt           // memory of the first attempt, which saves an allocation
	failed       []*attempt        // failed attempts; some outcomes are pending
	firstAt      time.Time         // first content of a generated stream

	unsent *unsentPrompt // nil without one
}

// forward sends the request to its pool. If the pool does not serve it, the request goes to the further
// targets of its list. Without a list, it leaves a tier that has no worker up.
func (x *exchange) forward() (err error) {
	x.deadline, x.patience = deadlines(&x.in, x.parsed.Class)
	x.s.budget.creditRequest()
	if err := x.pinToStored(); err != nil {
		return err
	}
	defer func() {
		x.dispatch.reportFailed(errNoAnswer)
		x.dispatch.dropUnsent()
		x.dispatch.forbidRetry(err)
	}()
	why, err := x.forwardToPool()
	for why != "" && x.leaveUnavailable() {
		why, err = x.forwardToPool()
	}
	if why == "" || !mayFallBack(&x.resolution, &x.parsed, x.own) {
		return err
	}
	return x.forwardToList(why, err)
}

// forwardToList sends the request to the further targets of its list until one serves it. why and err are
// the results of its first target. If no target serves the request, the client gets the error of the first one.
func (x *exchange) forwardToList(why string, err error) error {
	first, rejected, firstErr := x.resolution, x.wait.rejection, err
	for {
		if !x.fallBack(why) {
			first.Note, first.Moves = x.resolution.Note, x.resolution.Moves // the reasons
			x.setTarget(first, rejected)
			return firstErr
		}
		if why, err = x.forwardToPool(); why == "" {
			return err
		}
	}
}

// forwardToPool sends the request to workers of its pool until one answers, the attempts or the retry
// budget are spent, or the client has received part of an answer. With an error, why completes a sentence
// about the pool if another target may serve the request; otherwise it is empty.
func (x *exchange) forwardToPool() (why string, err error) {
	defer x.releaseUnsent()
	d := &x.dispatch
	for n := 1; ; n++ {
		x.facts.Computed = d.hasUnsent(x.resolution.Pool)
		lease, err := x.enterQueue()
		if err != nil {
			if n == 1 {
				return whyUnserved(err), noWorker(x.resolution.Pool, err, x.parsed.Class, x.in.Snap.File.Health.Interval)
			}
			last := d.failed[len(d.failed)-1].failure
			if errors.As(err, new(*queue.ShedError)) {
				last.setNoRetry() // the queue would reject the client's retry too
			}
			return whyFailed, last.err
		}
		if took := x.wait.placement.selection; took > 0 {
			x.resolution.Pool.Series.Selection.Observe(took.Seconds())
		}
		a := x.attempt(lease.Ref().(*control.Member), lease)
		if a.failure == nil {
			return "", nil
		}
		repeatable := x.mayRepeat(a.failure) && !x.own
		retry := repeatable && n < x.in.Snap.File.Retry.Attempts && (a.retryPaid.Load() || x.s.spendRetry(a.failure))
		d.addFailed(a)
		if !retry {
			if repeatable {
				why = whyFailed
			}
			return why, a.failure.err
		}
		// With engine_wait, the request waits for an unreachable worker, which has received nothing of it.
		switch {
		case a.failure.prefill, a.failure.transfer && !a.lease.HasOtherWorker(time.Now()):
			d.tried = append(d.tried, a.handover.tried...)
		case !(a.failure.unreachable && x.resolution.Pool.Queue.EngineWait > 0):
			d.tried = append(d.tried, a.lease.Worker())
		}
		if a.failure.requestMayBeCause() {
			d.excludeRepeatFailures(x.resolution.Pool, x.parsed.FailedRequest(x.s.seed, x.caller.Tenant))
		}
		x.resolution.Pool.Series.Retries.Inc()
	}
}

// forbidRetry makes the error forbid client retries if the gateway has retried the request, because the
// SDKs would multiply its attempts by their own.
func (d *dispatch) forbidRetry(err error) {
	if e, ok := errors.AsType[*openai.Error](err); ok && len(d.attempts) > 1 {
		e.NoRetry = e.NoRetry || e.RetryAfter == 0
	}
}

// setNoRetry makes the answer forbid client retries. They stay allowed with Retry-After, because a later
// one may succeed.
func (f *failure) setNoRetry() { f.err.NoRetry = f.err.RetryAfter == 0 }

var errNoAnswer = errors.New("no worker has answered")

// addFailed adds a failed attempt. The outcome stays pending if the request may have caused the
// failure, unless earlier failures prove the worker at fault. Otherwise one client could open the
// breakers of all workers.
func (d *dispatch) addFailed(a *attempt) {
	d.failed = append(d.failed, a)
	if !a.failure.requestMayBeCause() || !a.failure.byContrast && a.recordFailure() {
		a.reportOutcome()
	}
}

// recordFailure adds the failure to the worker's evidence, and reports whether earlier failures
// prove the worker at fault.
func (a *attempt) recordFailure() bool {
	return a.m.Evidence.AddFailure(a.lease.Worker(), a.x.parsed.FailedRequest(a.x.s.seed, a.x.caller.Tenant), time.Now())
}

// excludedAsUnproven marks a failure as excluded, because the request may have caused it.
func excludedAsUnproven(fault error) error {
	return excluded("the request may have caused it: %w", fault)
}

// reportFailed reports the pending outcomes. answer is the result of another worker:
//
//   - nil: that worker succeeded, so the request is valid and each failure is its worker's fault.
//   - ErrExcluded: that worker refused the request too. The failures are excluded.
//   - errNoAnswer: no worker answered. The failures are excluded, because they prove nothing.
func (d *dispatch) reportFailed(answer error) {
	for _, a := range d.failed {
		switch {
		case a.reported || answer == nil:
		case errors.Is(answer, routing.ErrExcluded):
			a.failure.fault = excluded("another worker refused the request that this one failed: %w", a.failure.fault)
		default:
			a.failure.fault = excludedAsUnproven(a.failure.fault)
		}
		a.reportOutcome()
	}
}

// forwardTo sends the request once to a given worker, without a booking and without the routing
// policy.
func (x *exchange) forwardTo(m *control.Member) error {
	x.deadline, x.patience = deadlines(&x.in, x.parsed.Class)
	x.wait.placement = placement{}
	a := x.attempt(m, routing.Lease{})
	if a.failure == nil {
		return nil
	}
	a.reportOutcome()
	return a.failure.err
}

// deadlines returns the deadline of a request of that class, and its client's patience. The timeout of the client's
// SDK bounds a stream only until its first event, because the SDKs stop their clocks there.
func deadlines(in *intake.Inbound, class tenants.Class) (deadline, patience time.Time) {
	total := totalTime(in.Snap, class)
	deadline = in.Start.Add(total)
	if asked, ok := stainlessTimeout(in.HTTP.Header); ok && asked < total {
		return deadline, in.Start.Add(asked)
	}
	return deadline, deadline
}

// mayRepeat reports whether another worker may be tried after an attempt failed.
func (x *exchange) mayRepeat(f *failure) bool {
	return f.retry && x.in.HTTP.Context().Err() == nil && !x.answer.committed() &&
		!(x.parsed.AtMostOnce() && f.sent && !f.prefill)
}

// spendRetry spends one retry of the budget after a failure, and reports whether one was left.
func (px *Proxy) spendRetry(f *failure) bool {
	if !px.budget.spendRetry(time.Now()) {
		px.metrics.RetryBudgetExhausted.Inc()
		f.setNoRetry() // the client's own retries would exceed the budget
		return false
	}
	return true
}

// excludeRepeatFailures excludes the workers of a pool that failed the same request before from the next attempt, if
// another worker can take it. Failing workers answer fastest: without this rule, two of them would
// receive every repetition, and no success would prove their fault.
func (d *dispatch) excludeRepeatFailures(pool *control.Pool, r control.FailedRequest) {
	var failed []*routing.Worker
	others := false
	for _, v := range pool.Routing.Snapshot(time.Now()) {
		if slices.ContainsFunc(d.tried, func(w *routing.Worker) bool { return w.ID() == v.ID }) {
			continue
		}
		if w := v.Ref.(*control.Member).Evidence.FailedWorker(r); w != nil {
			failed = append(failed, w)
		} else if v.Stages.Answer() && v.InRotation() && v.Backoff == 0 && !v.Saturated &&
			(v.ConcurrencyLimit == 0 || v.Inflight < v.ConcurrencyLimit) {
			others = true
		}
	}
	if others {
		d.tried = append(d.tried, failed...)
	}
}
