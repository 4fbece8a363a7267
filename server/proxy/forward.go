package proxy

import (
	"errors"
	"slices"
	"time"

	"tierway/routing"
	"tierway/server/control"
)

// dispatch is a request's attempts on workers of its pool.
type dispatch struct {
	tried    []*routing.Worker // that get the request no more
	attempts []*attempt        // all, in their order
	first    [2]*attempt       // where the first of them stand
	failed   []*attempt        // the failed ones, some of which are not reported yet
	firstAt  time.Time         // of the first content of a generated stream
}

// forward sends the request to workers of its pool until one has answered, the
// attempts or the retry budget are spent, or the client has part of an answer.
func (x *exchange) forward() error {
	d := &x.dispatch
	setDeadline(x)
	x.s.budget.creditRequest()
	if err := pinToStored(x); err != nil {
		return err
	}
	defer func() { d.reportFailed(errNoAnswer) }()
	for n := 1; ; n++ {
		lease, err := x.enterQueue()
		if err != nil {
			if len(d.failed) == 0 {
				return noWorker(x.resolution.Pool, err, x.parsed.Class, x.in.Snap.File.Health.Interval)
			}
			last := d.failed[len(d.failed)-1].failure
			last.setNoRetry()
			return last.err
		}
		if took := x.wait.placement.selection; took > 0 {
			x.resolution.Pool.Series.Selection.Observe(took.Seconds())
		}
		a := x.attempt(lease.Ref().(*control.Member), &lease)
		if a.failure == nil {
			return nil
		}
		retry := mayRetry(x, a.failure, n)
		d.addFailed(a)
		if !retry {
			if n > 1 {
				a.failure.setNoRetry()
			}
			return a.failure.err
		}
		// nothing was sent to it, and requests wait for workers that are away
		if !(a.failure.unreachable && x.resolution.Pool.Queue.EngineWait > 0) {
			d.tried = append(d.tried, lease.Worker())
		}
		if a.failure.requestMayBeCause() {
			excludeRepeatFailures(x, x.parsed.FailedRequest(x.s.seed, x.caller.Tenant))
		}
		x.resolution.Pool.Series.Retries.Inc()
	}
}

// setNoRetry makes the answer forbid client retries, because the SDKs would multiply the
// gateway's attempts by their own. It does not if the worker is in backoff: a later retry may
// succeed.
func (f *failure) setNoRetry() { f.err.NoRetry = f.backoff == 0 }

// errNoAnswer says that no worker has answered the request.
var errNoAnswer = errors.New("no worker has answered")

// addFailed reports a failure only once another worker has answered, if the request itself
// may have caused it: one client must not be able to open all breakers. The worker's
// earlier failures may decide at once.
func (d *dispatch) addFailed(a *attempt) {
	d.failed = append(d.failed, a)
	if !a.failure.requestMayBeCause() || a.recordFailure() {
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

// reportFailed reports the failures that are not reported yet. answer is nil when another worker has
// answered the request well, which shows that it is sound, and wraps ErrExcluded when
// another worker has refused it. Without an answer, errNoAnswer, a failure says nothing of
// its worker.
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

// forwardTo sends the request to one worker that no policy chose and on which
// nothing is booked, once.
func forwardTo(x *exchange, m *control.Member) error {
	setDeadline(x)
	x.wait.placement = placement{}
	var none routing.Lease
	a := x.attempt(m, &none)
	if a.failure == nil {
		return nil
	}
	a.reportOutcome()
	return a.failure.err
}

// setDeadline bounds the whole exchange. What the client's SDK says it waits
// counts for a stream only until its first event: the SDKs stop their clocks
// there.
func setDeadline(x *exchange) {
	total := totalTime(x.in.Snap, x.parsed.Class)
	x.deadline = x.in.Start.Add(total)
	x.patience = x.deadline
	if asked, ok := stainlessTimeout(x.in.HTTP.Header); ok && asked < total {
		x.patience = x.in.Start.Add(asked)
	}
}

// mayRetry decides whether another worker is tried after the n-th attempt
// failed.
func mayRetry(x *exchange, f *failure, n int) bool {
	if !f.retry || x.in.HTTP.Context().Err() != nil || x.answer.committed() || x.parsed.Once() && f.sent {
		return false
	}
	if n >= x.in.Snap.File.Retry.Attempts {
		return false
	}
	if !x.s.budget.spendRetry(time.Now()) {
		x.s.metrics.RetryBudgetExhausted.Inc()
		f.setNoRetry() // the client's own retries would exceed the budget
		return false
	}
	return true
}

// excludeRepeatFailures excludes the workers that have failed the same request before from its next
// attempt, if another one can take it. Otherwise two failing workers, which answer
// fastest, would receive every repetition, and no answer would show their fault.
func excludeRepeatFailures(x *exchange, r control.FailedRequest) {
	d := &x.dispatch
	var failed []*routing.Worker
	others := false
	for _, v := range x.resolution.Pool.Routing.Snapshot(time.Now()) {
		if slices.ContainsFunc(d.tried, func(w *routing.Worker) bool { return w.ID() == v.ID }) {
			continue
		}
		if w := v.Ref.(*control.Member).Evidence.FailedWorker(r); w != nil {
			failed = append(failed, w)
		} else if v.InRotation() && v.Backoff == 0 && !v.Saturated &&
			(v.ConcurrencyLimit == 0 || v.Inflight < v.ConcurrencyLimit) {
			others = true
		}
	}
	if others {
		d.tried = append(d.tried, failed...)
	}
}
