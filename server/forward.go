package server

import (
	"net/http"
	"time"

	"tierway/openai"
	"tierway/routing"
)

// forward sends the request to workers of its pool until one has answered, the
// attempts or the retry budget are spent, or the client has part of an answer.
func (x *exchange) forward() error {
	if x.explanation != nil {
		return x.explainOnly()
	}
	x.setDeadline()
	x.s.budget.request()
	if err := x.stayWithStored(); err != nil {
		return err
	}
	defer x.judgeHeld()
	for n := 1; ; n++ {
		lease, err := x.enter()
		if err != nil {
			if x.held == nil {
				return x.noWorker(err)
			}
			x.held.f.refuse()
			return x.held.f.err
		}
		if d := x.placed.selection; d > 0 {
			x.pool.series.Selection.Observe(d.Seconds())
		}
		a := x.attempt(lease.Ref().(*member), &lease)
		if a.f == nil {
			return nil
		}
		retry := x.mayRetry(a.f, n)
		x.hold(a)
		if !retry {
			if n > 1 {
				a.f.refuse()
			}
			return a.f.err
		}
		if !x.returns(a.f) {
			x.tried = append(x.tried, lease.Worker())
		}
		x.pool.series.Retries.Inc()
	}
}

// refuse tells the client not to try again what was tried again here: the SDKs
// would multiply the gateway's attempts by their own. A worker that rests is worth
// coming back for.
func (f *failure) refuse() { f.err.NoRetry = f.cool == 0 }

// returns tells whether the worker that failed may be asked again by the same
// request: nothing was sent to it, and requests wait for workers that are away.
func (x *exchange) returns(f *failure) bool { return f.gone && x.pool.Queue.EngineWait > 0 }

// Bounds of what is held back.
const (
	// holdFor is how long a verdict waits for another worker's answer. Engines
	// answer a client's mistake at once, so that a second one does too.
	holdFor = time.Second
	// excuses is how many failures in a row a worker is excused: one that
	// answers nobody well meanwhile is sick, whoever else is.
	excuses = 5
)

// hold keeps back what a worker's own 5xx says of it until another worker was
// asked. Two workers that answer the same request with the same 5xx say that the
// request is at fault: engines answer mistakes of clients with 500, and one
// client must not be able to shut all workers out. Everything else is judged at
// once.
func (x *exchange) hold(a *attempt) {
	if !a.f.answered() {
		x.judgeHeld()
		a.judge()
		x.held = a
		return
	}
	if x.held != nil && a.f.status == x.held.f.status {
		why := excluded("two workers answered %d to the same request", a.f.status)
		x.held.excuse(why)
		a.excuse(why)
	}
	x.judgeHeld()
	x.held = a
	a.blame = a.f.blame
	a.late = time.AfterFunc(holdFor, a.tell)
}

// judgeHeld gives the verdict that was held back.
func (x *exchange) judgeHeld() {
	if x.held != nil {
		x.held.judge()
		x.held = nil
	}
}

// forwardTo sends the request to one worker that no policy chose and on which
// nothing is booked, once.
func (x *exchange) forwardTo(m *member) error {
	x.setDeadline()
	x.placed = placed{}
	var none routing.Lease
	a := x.attempt(m, &none)
	if a.f == nil {
		return nil
	}
	a.judge()
	return a.f.err
}

// setDeadline bounds the whole exchange. What the client's SDK says it waits
// counts for a stream only until its first event: the SDKs stop their clocks
// there.
func (x *exchange) setDeadline() {
	total := x.snap.total(x.class)
	x.deadline = x.start.Add(total)
	x.patience = x.deadline
	if asked, ok := stainlessTimeout(x.r.Header); ok && asked < total {
		x.patience = x.start.Add(asked)
	}
}

// mayRetry decides whether another worker is tried after the n-th attempt
// failed.
func (x *exchange) mayRetry(f *failure, n int) bool {
	if !f.retry || x.r.Context().Err() != nil || x.answer.committed() || x.once() && f.left {
		return false
	}
	if n >= x.snap.file.Retry.Attempts {
		return false
	}
	if !x.s.budget.take(time.Now()) {
		x.s.metrics.RetryBudgetExhausted.Inc()
		f.refuse() // the client's own retries would exceed the budget
		return false
	}
	return true
}

// once reports whether the request must not reach an engine twice, because it makes
// or keeps something there.
func (x *exchange) once() bool {
	return x.upload != nil || x.stores() || x.req.Store || x.req.Background || x.dialect == openai.Audio || x.dialect == openai.Images ||
		x.dialect == openai.Other && x.r.Method != http.MethodGet && x.r.Method != http.MethodHead
}
