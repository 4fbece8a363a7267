package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/decisions"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/telemetry"
)

// attempt sends the request to one worker and relays its answer. Without a
// failure the client has its answer, whole or cut, and the outcome is reported;
// with one it is not yet.
func (x *exchange) attempt(m *control.Member, lease *routing.Lease) *attempt {
	started := time.Now()
	ctx, cancel := context.WithCancelCause(x.in.HTTP.Context())
	if lease.Worker() != nil {
		m.Series.Selected(string(lease.Reason()))
	}
	a := &attempt{x: x, m: m, lease: lease, moments: moments{started: started}, outcome: outcome{ending: ending{result: decisions.Refused}}, most: x.parsed.MostUsage(), placed: x.wait.placed,
		span: x.trace.Attempt(started)}
	defer a.releaseUnsettled() // for a panic
	a.cause = func() error { return context.Cause(ctx) }
	x.dispatch.attempts = append(x.dispatch.attempts, a)
	a.usesEngine = lease.Worker() != nil && x.parsed.UsesEngine()
	a.firstByte = a.firstByteWithin()
	a.watch.start(cancel, a.firstByte, x.patience)
	defer cancel(nil)
	defer a.watch.stop()
	if a.usesEngine && x.parsed.GeneratesStream() {
		m.Live.BeginStream(a, a.sentStream(), lease.Expected())
		defer func() { m.Live.EndStream(a, time.Now(), ctx.Err() != nil) }()
	}
	f := a.sendAndRelay(ctx)
	a.settle(f)
	return a
}

// unbounded is a wait that only the request's total time ends.
const unbounded = time.Duration(math.MaxInt64)

// firstByteWithin returns how long the worker may take for the first event of a
// stream. A whole answer comes when its last token is there, so that only the total
// time bounds it. A half-open worker has its breaker's patience, after which its trial
// has failed: a whole answer is then given up only for another worker's.
func (a *attempt) firstByteWithin() time.Duration {
	within := unbounded
	if a.x.parsed.Req.Stream {
		within = a.x.in.Snap.File.Timeouts.FirstByte
	}
	w := a.lease.Worker()
	if w == nil {
		return within
	}
	patience, probing := a.m.Gate.Probing(a.lease.Ticket(), a.lease.Expected())
	if probing && (a.x.parsed.Req.Stream || movable(a.x, w.ID())) {
		within = min(within, patience)
	}
	return within
}

// movable reports whether another worker may answer the request although it has
// reached the worker of that name.
func movable(x *exchange, id string) bool {
	return !x.parsed.Once() && len(x.dispatch.attempts) < x.in.Snap.File.Retry.Attempts && othersThan(x.resolution.Pool, id)
}

// attempt is one try on one worker.
type attempt struct {
	x            *exchange
	m            *control.Member
	lease        *routing.Lease
	placed       placed       // how the request came to its worker
	cause        func() error // why the attempt was cancelled; nil while it is not
	span         trace.Span   // nil without tracing
	watch        watchdog
	firstByte    time.Duration // how long the worker may take until its first event
	addsUsage    []string      // the fields that were added to ask for usage
	addsPriority []string      // that were added for the engine's own queue
	status       int
	usage        openai.Usage // as the engine reported it
	most         openai.Usage // that a report is taken for
	usesEngine   bool         // its answer shows whether the worker's engine works
	moments
	outcome
}

// moments are those of an attempt. One that did not come is zero.
type moments struct {
	started time.Time
	headAt  time.Time
	firstAt time.Time     // of the first content of a generated stream
	lastAt  time.Time     // of its last one
	ttft    time.Duration // to the first
	ended   time.Time     // when its load was given back
}

// outcome is how an attempt ended: for its worker, and in ending for the request.
type outcome struct {
	failure       *failure
	fault         error  // of an answer that was relayed: nil, ErrExcluded or the worker's fault
	ending        ending // of the request; set if failure is nil
	begun         bool   // the worker has answered
	settled       bool   // the attempt ended without a panic
	used          settlement
	reported      bool
	reportedFault error // of the worker, once the outcome is reported
}

// sendAndRelay sends the request and relays the answer.
func (a *attempt) sendAndRelay(ctx context.Context) *failure {
	usage, rank := !a.m.RejectsAccounting.Load() && !a.m.HasTimings(), enginePriority(a)
	resp, err := sendRequest(ctx, a, usage, rank)
	var refused addition // the last that was left out
	for err == nil {
		named := refusedAddition(a, resp)
		if named == nothingAdded {
			break
		}
		refused = named
		usage, rank.set = usage && named == priorityAdded, rank.set && named != priorityAdded
		a.watch.await(a.firstByte, errFirstByteTimeout)
		resp, err = sendRequest(ctx, a, usage, rank)
	}
	if err == nil && resp.Status < 300 {
		leaveOut(a, refused)
	}
	if err != nil {
		return a.sendFailure(err)
	}
	defer resp.Body.Close()
	return relayAnswer(a, resp)
}

// answered says that the worker answered, well when err is nil: the outcomes
// of the attempts before it are reported. at is when the first event came;
// zero for a whole answer to a request for a stream, which shows no first token.
func (a *attempt) answered(at time.Time, err error) {
	if a.begun { // a stream ends after its first content
		return
	}
	a.begun = true
	a.x.dispatch.reportFailed(err)
	a.lease.Answered(at, err)
}

// received notes that the worker has sent a part of the answer's content.
func (a *attempt) received() {
	if a.usesEngine {
		a.m.Live.Received(time.Now())
	}
}

// settle releases the load. The outcome of a relayed answer is reported now; that of a failure
// stays pending until its cause is known.
func (a *attempt) settle(f *failure) {
	a.settled, a.failure, a.ended = true, f, time.Now()
	countPrefix(a)
	if f == nil {
		countPace(a)
	}
	a.used.sent = a.used.sent || f == nil || f.sent
	if f != nil && f.sent && (errors.Is(f.fault, errTotalTimeout) || errors.Is(f.fault, errIdleTimeout)) {
		a.estimate(0) // the engine has worked on it; another worker's answer replaces this
	}
	if f == nil {
		a.report()
		return
	}
	if w := a.lease.Worker(); w != nil && f.backoff > 0 && (!f.backoffIfOthers || othersThan(a.x.resolution.Pool, w.ID())) {
		a.x.resolution.Pool.Routing.SetBackoff(w, time.Now().Add(f.backoff))
	} else if w != nil && f.unreachable {
		a.x.resolution.Pool.Routing.SetOpen(w.ID(), w.Ref(), time.Now().Add(unreachableFor))
	}
	if f.recheck {
		a.m.Worker.Suspect()
	}
	a.lease.Unbook()
}

// report gives the lease back with the outcome, once.
func (a *attempt) report() {
	if a.reported {
		return
	}
	a.reported = true
	fault := a.fault
	if a.failure != nil {
		fault = a.failure.fault
	}
	a.lease.Release(routing.Result{At: time.Now(), Err: fault, Text: a.x.parsed.WholeText(),
		PromptTokens: a.usage.Prompt, CachedTokens: a.usage.Cached, OutputTokens: a.usage.Output})
	now, how := time.Now(), control.AttemptFailed
	switch {
	case fault == nil:
		how = control.AttemptOK
		a.m.Series.OK.Inc()
		if a.lease.Worker() != nil {
			a.m.Evidence.AddAnswer(maphash.String(a.x.s.seed, a.x.caller.Tenant), now)
		}
	case errors.Is(fault, routing.ErrExcluded):
		how = control.AttemptExcluded
		a.m.Series.Excluded.Inc()
	default:
		a.m.Series.Error.Inc()
	}
	a.m.Stats.Observe(now, control.AttemptStats{Outcome: how, TTFT: a.ttft, Total: now.Sub(a.started),
		Prompt: a.usage.Prompt, Cached: a.usage.Cached, Output: a.usage.Output})
	a.reportedFault = fault
}

// errPanic is why an attempt ended during which the gateway panicked.
var errPanic = errors.New("the gateway failed while the worker was asked")

// releaseUnsettled gives the lease back after a panic.
func (a *attempt) releaseUnsettled() {
	if a.settled {
		return
	}
	a.fault = excluded("%w", errPanic)
	a.ended = time.Now()
	a.report()
}

// othersThan reports whether the pool has another worker that takes requests now.
func othersThan(p *control.Pool, id string) bool {
	for _, v := range p.Routing.Snapshot(time.Now()) {
		if v.ID != id && v.InRotation() && v.Backoff == 0 {
			return true
		}
	}
	return false
}

// firstContent marks the moment of the first content of a generated stream. A whole
// answer comes when its last token is there, and images and audio have no tokens: among
// times to the first token, either would make its worker look slow.
func (a *attempt) firstContent(at time.Time) {
	a.firstAt = at
	a.ttft = a.firstAt.Sub(a.started)
	if a.usesEngine {
		a.m.Live.AnswerStream(a.sentStream())
	}
	if a.x.dispatch.firstAt.IsZero() {
		a.x.dispatch.firstAt = a.firstAt
		a.m.Series.TTFT.Observe(a.ttft.Seconds())
	}
}

// account books the usage that the engine reported, unless the request is free or no
// answer has such a usage. seen, the output as the gateway estimates it, then replaces
// the report.
func (a *attempt) account(u openai.Usage, seen int64) {
	if a.x.resolution.Free(&a.x.in) {
		return
	}
	if u.Prompt > a.most.Prompt || u.Output > a.most.Output {
		a.estimate(seen)
		return
	}
	a.usage = u
	a.used.usage, a.used.known, a.used.estimated = u, true, false
	a.m.Series.Prompt.Add(float64(u.Prompt))
	a.m.Series.Cached.Add(float64(u.Cached))
	a.m.Series.Output.Add(float64(u.Output))
}

// streamEnded counts the end of a stream and notes how the request ended.
func (a *attempt) streamEnded(e telemetry.StreamEnd, o decisions.Result, fault error) {
	a.fault = fault
	a.ending.result = o
	a.x.s.metrics.StreamEnded(e)
}

// sentStream is what liveness compares of the attempt.
func (a *attempt) sentStream() control.SentStream {
	q := control.SentStream{Tenant: a.x.caller.Tenant, Began: a.started}
	if n := len(a.x.facts.Blocks); n > 0 {
		q.Prompt = a.x.facts.Blocks[n-1].Hash
	}
	return q
}
