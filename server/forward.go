package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"tierway/breaker"
	"tierway/openai"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/workers"
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
		x.facts.Now = time.Now()
		lease, err := x.pool.routing.Acquire(&x.facts, x.tried...)
		if err != nil {
			if x.held == nil {
				return x.noWorker(err)
			}
			return x.held.f.err
		}
		a := x.attempt(lease.Ref().(*member), &lease)
		if a.f == nil {
			return nil
		}
		retry := x.mayRetry(a.f, n)
		x.hold(a)
		if !retry {
			// The SDKs would multiply the gateway's attempts by their own.
			a.f.err.NoRetry = n > 1 && a.f.cool == 0
			return a.f.err
		}
		x.tried = append(x.tried, lease.Worker())
		x.pool.series.Retries.Inc()
	}
}

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

// stayWithStored sends a follow-up of a stored response to the worker that
// holds it. Another tenant's response does not exist.
func (x *exchange) stayWithStored() error {
	id := x.req.PreviousResponseID
	if id == "" {
		return nil
	}
	at, known := x.s.stored.get(id)
	switch {
	case known && at.tenant != x.caller.Tenant:
		return responseNotFound(id)
	case known && at.pool == x.pool.Name:
		x.tried = x.pool.routing.Except(at.member)
	}
	return nil
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
		return false
	}
	return true
}

// once tells whether the request must not reach an engine twice: it makes or
// keeps something there.
func (x *exchange) once() bool {
	return x.req.Store || x.req.Background || x.dialect == openai.Audio || x.dialect == openai.Images ||
		x.dialect == openai.Other && x.r.Method != http.MethodGet && x.r.Method != http.MethodHead
}

// attempt sends the request to one worker and relays its answer. Without a
// failure the client has its answer, whole or cut, and the attempt is settled;
// with one its verdict is owed.
func (x *exchange) attempt(m *member, lease *routing.Lease) *attempt {
	started := time.Now()
	x.d.Worker, x.d.Reason = m.name, string(lease.Reason())
	ctx, cancel := context.WithCancelCause(x.r.Context())
	a := &attempt{x: x, m: m, lease: lease, started: started, ctx: ctx}
	firstByte := x.snap.file.Timeouts.FirstByte
	if patience, ok := m.gate.Probing(lease.Expected()); ok && lease.Worker() != nil {
		firstByte = min(firstByte, patience) // then it has failed, and another worker may do better
	}
	a.watch.start(cancel, firstByte, x.patience)
	defer a.give() // for a panic
	defer cancel(nil)
	defer a.watch.stop()
	f := a.exchange()
	a.settle(f)
	return a
}

// attempt is one try on one worker.
type attempt struct {
	x       *exchange
	m       *member
	lease   *routing.Lease
	started time.Time
	ctx     context.Context
	watch   watchdog
	added   []string // fields that were added to the body
	status  int
	headAt  time.Time
	ttft    time.Duration // to the first content; 0 without any
	blame   error         // of an answer that was relayed: nil, ErrExcluded or the worker's fault
	f       *failure
	usage   openai.Usage // as the engine reported it
	settled bool         // the attempt ended without a panic
	judged  bool
	told    atomic.Bool // the gate has its verdict
	late    *time.Timer // tells one that was held back for long enough; nil for none
}

// exchange sends the request and relays the answer.
func (a *attempt) exchange() *failure {
	resp, err := a.send(!a.m.refuses.Load() && !a.m.timed.Load())
	if err == nil && a.refusedAddition(resp) {
		a.watch.idle(a.x.snap.file.Timeouts.FirstByte, &errFirstByteTimeout)
		if resp, err = a.send(false); err == nil && resp.Status < 300 {
			a.m.refuses.Store(true)
			a.x.s.log.Info("the engine refuses a field that accounting adds; it is left out from now on", "worker", a.m.name)
		}
	}
	if err != nil {
		return a.sendFailure(err)
	}
	defer resp.Body.Close()
	return a.relay(resp)
}

// send writes the request to the worker and waits for the answer's header.
func (a *attempt) send(account bool) (*workers.Response, error) {
	x := a.x
	req := &workers.Request{Method: x.r.Method, Path: x.workerPath, Header: workerHeader(x.r.Header, x.d.RequestID), Fresh: x.once()}
	if q := x.r.URL.RawQuery; q != "" {
		req.Path += "?" + q
	}
	edit := openai.Edit{Model: x.verdict.Model, IncludeUsage: account, CacheSalt: x.saltFor(a.m)}
	a.added = nil
	if x.dialect == openai.Other && x.req.CacheSalt != "" {
		req.Body = x.req.Splice(openai.Edit{CacheSalt: x.salt})
	} else if x.dialect == openai.Other || len(x.req.Body) == 0 || x.r.Method != http.MethodPost {
		req.Body = [][]byte{x.req.Body}
	} else {
		req.Body = x.req.Splice(edit)
		edit.CacheSalt = "" // isolation is never given up for an engine that refuses it
		a.added = x.req.AddedFields(edit)
	}
	resp, err := a.m.worker.Send(a.ctx, req)
	if err == nil {
		a.status, a.headAt = resp.Status, time.Now()
		err = plainBody(resp)
	}
	return resp, err
}

// answered says that the worker answered, well when err is nil: the verdict
// that was held back of the worker before it is due.
func (a *attempt) answered(err error) {
	if h := a.x.held; h != nil && errors.Is(err, routing.ErrExcluded) && h.f.answered() {
		h.excuse(excluded("another worker refused the request that this one answered with %d", h.f.status))
	}
	a.x.judgeHeld()
	a.lease.Answered(time.Now(), err)
}

// settle gives the load back and writes the attempt down. The verdict follows
// at once unless the attempt failed: then judge gives it.
func (a *attempt) settle(f *failure) {
	a.settled, a.f = true, f
	try := routing.Attempt{Worker: a.m.name, Reason: string(a.lease.Reason()), Candidates: a.lease.Candidates(), Status: a.status}
	if !a.headAt.IsZero() {
		try.DurationMs = ms(a.headAt.Sub(a.started))
	} else {
		try.DurationMs = ms(time.Since(a.started))
	}
	a.x.d.Attempts = append(a.x.d.Attempts, try)
	a.x.sent = a.x.sent || f == nil || f.left
	if f == nil {
		a.judge()
		return
	}
	if w := a.lease.Worker(); w != nil && f.cool > 0 && (!f.demote || a.x.othersThan(w.ID())) {
		a.x.pool.routing.Cool(w, time.Now().Add(f.cool))
	} else if w != nil && f.gone && a.m.gate.State() != breaker.Open { // whose opening lasts longer
		a.x.pool.routing.SetOpen(w.ID(), w.Ref(), time.Now().Add(goneFor))
	}
	if f.suspect {
		a.m.worker.Suspect()
	}
	a.lease.Unbook()
}

// excuse takes the blame off a worker whose verdict is held back, unless it was
// excused too often since it last answered well, or the verdict is told already.
func (a *attempt) excuse(why error) {
	if a.m.excused.Add(1) <= excuses {
		a.f.blame = why
	}
}

// tell gives a verdict that was held back for long enough.
func (a *attempt) tell() {
	if a.told.CompareAndSwap(false, true) {
		a.lease.Release(routing.Result{At: time.Now(), Err: a.blame})
	}
}

// judge gives the lease back with the verdict on the worker, once.
func (a *attempt) judge() {
	if a.judged {
		return
	}
	a.judged = true
	if a.late != nil {
		a.late.Stop()
	}
	blame := a.blame
	if a.told.CompareAndSwap(false, true) {
		if a.f != nil {
			blame = a.f.blame
		}
		a.lease.Release(routing.Result{At: time.Now(), Err: blame, Text: a.x.wholeText(),
			PromptTokens: a.usage.Prompt, CachedTokens: a.usage.Cached, OutputTokens: a.usage.Output})
	}
	how := attemptFailed
	switch {
	case blame == nil:
		how = attemptOK
		a.m.series.OK.Inc()
		a.m.excused.Store(0)
	case errors.Is(blame, routing.ErrExcluded):
		how = attemptExcluded
		a.m.series.Excluded.Inc()
	default:
		a.m.series.Error.Inc()
	}
	now := time.Now()
	a.m.stats.observe(now, attemptStats{Outcome: how, TTFT: a.ttft, Total: now.Sub(a.started),
		Prompt: a.usage.Prompt, Cached: a.usage.Cached, Output: a.usage.Output})
	if blame != nil {
		for i := range a.x.d.Attempts { // no worker is asked twice
			if try := &a.x.d.Attempts[i]; try.Worker == a.m.name {
				try.Error = blame.Error()
			}
		}
	}
}

// wholeText tells whether the engine reads what the gateway has read and nothing
// else, so that its count of the prompt says what the estimate is worth.
func (x *exchange) wholeText() bool {
	r := x.req
	if r == nil || r.Media || r.PreviousResponseID != "" || r.ConversationID != "" || r.N > 1 {
		return false
	}
	return x.dialect == openai.Chat || x.dialect == openai.Completions || x.dialect == openai.Responses || x.dialect == openai.Messages
}

// give gives the lease back after a panic.
func (a *attempt) give() {
	if !a.settled {
		a.lease.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
	}
}

// othersThan tells whether the pool has another worker that takes requests now.
func (x *exchange) othersThan(id string) bool {
	for _, v := range x.pool.routing.Snapshot(time.Now()) {
		if v.ID != id && v.Up && v.Weight > 0 && v.Cooling == 0 {
			return true
		}
	}
	return false
}

// firstContent marks the moment at which the worker has answered.
func (a *attempt) firstContent() {
	a.ttft = time.Since(a.started)
	if a.x.d.TTFTMs == 0 {
		a.x.d.TTFTMs = ms(time.Since(a.x.start))
		a.m.series.TTFT.Observe(a.ttft.Seconds())
	}
}

// account books the usage that the engine reported, unless the request is free.
func (a *attempt) account(u openai.Usage) {
	if a.x.free() {
		return
	}
	a.x.usage, a.usage = u, u
	a.x.d.Estimated = false
	a.m.series.Prompt.Add(float64(u.Prompt))
	a.m.series.Cached.Add(float64(u.Cached))
	a.m.series.Output.Add(float64(u.Output))
}

// ended counts the end of a stream and says how the request ended.
func (a *attempt) ended(e telemetry.StreamEnd, o routing.Outcome, blame error) {
	a.blame = blame
	a.x.d.Outcome = o
	a.x.s.metrics.StreamEnded(e)
}

// watchdog cancels an attempt whose worker stays silent for too long, or when
// the exchange's time is over. One timer serves it from the first byte to the
// last.
type watchdog struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
	total  atomic.Pointer[time.Time]
	cause  atomic.Pointer[error] // of the silence that is waited for
}

// start waits for the first byte.
func (w *watchdog) start(cancel context.CancelCauseFunc, firstByte time.Duration, total time.Time) {
	w.cancel = cancel
	w.total.Store(&total)
	w.cause.Store(&errFirstByteTimeout)
	w.timer = time.AfterFunc(w.bounded(firstByte), w.strike)
}

// bounded is d, or what is left of the exchange's time.
func (w *watchdog) bounded(d time.Duration) time.Duration { return min(d, time.Until(*w.total.Load())) }

// strike runs on the timer's goroutine.
func (w *watchdog) strike() {
	if !time.Now().Before(*w.total.Load()) {
		w.cancel(errTotalTimeout)
		return
	}
	w.cancel(*w.cause.Load())
}

// idle waits from now on for pauses of d, with one of this package's errors as
// their cause.
func (w *watchdog) idle(d time.Duration, cause *error) {
	w.cause.Store(cause)
	w.touch(d)
}

// until moves the end of the exchange's time.
func (w *watchdog) until(total time.Time) { w.total.Store(&total) }

// touch starts the pause anew.
func (w *watchdog) touch(d time.Duration) { w.timer.Reset(w.bounded(d)) }

func (w *watchdog) stop() { w.timer.Stop() }
