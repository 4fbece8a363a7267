package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/config"
	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
)

// attempt sends the request to one worker and relays its answer. Without a failure in the result, either x.rest is the
// rest of the stream, or the client has received the answer, complete or cut, and the outcome is reported. With a
// failure, the client has received no content, and the caller must report the outcome.
func (x *exchange) attempt(m *control.Member, lease routing.Lease) *attempt {
	a := &x.dispatch.firstAttempt
	if len(x.dispatch.attempts) > 0 {
		a = new(attempt)
	}
	a.booked = lease
	a.x, a.m, a.pool, a.lease = x, m, x.resolution.Pool, &a.booked
	a.started, a.ending.result = time.Now(), decisions.Refused
	a.bounds, a.placement, a.span = x.parsed.UsageBounds(), x.wait.placement, x.trace.Attempt(a.started)
	if lease.Worker() != nil {
		m.Series.Selected(string(lease.Reason()))
	}
	ctx, cancel := x.attemptContext(a.lease)
	defer a.releaseUnlessContinued()
	a.cause = func() error { return context.Cause(ctx) }
	x.dispatch.attempts = append(x.dispatch.attempts, a)
	a.usesEngine = a.lease.Worker() != nil && x.parsed.UsesEngine()
	a.stream = x.parsed.GeneratesStream()
	a.retryable = !x.parsed.AtMostOnce() && x.dispatch.attemptsIn(a.pool) < x.in.Snap.File.Retry.Attempts
	a.firstByte = a.firstByteWithin()
	a.watch.firstByteEnd = a
	a.watch.start(cancel, a.firstByte, x.patience)
	x.current.Store(a)
	if f := a.serve(ctx, cancel); x.rest == nil {
		a.releaseServed(f, ctx.Err() != nil)
	}
	return a
}

// releaseServed releases the worker's load at the end of an attempt, with its failure. cut means that its context has
// ended.
func (a *attempt) releaseServed(f *failure, cut bool) {
	if cut {
		a.lease.Cut(time.Now())
	}
	a.releaseLoad(f)
}

// releaseUnlessContinued ends the watch and the context of an attempt, also after a panic, unless x.rest needs them.
func (a *attempt) releaseUnlessContinued() {
	if a.x.rest != nil {
		return
	}
	defer a.releaseUnsettled()
	a.x.current.Store(nil)
	a.watch.stop()
	a.watch.cancel(nil)
}

// serve sends the request, in one or two stages, and relays the answer.
func (a *attempt) serve(ctx context.Context, cancel context.CancelCauseFunc) (f *failure) {
	if a.pool.Handover == "" {
		return a.sendAndRelay(ctx)
	}
	a.openHandover(cancel)
	defer func() { a.handover.end(f) }()
	return a.handover.serve(ctx)
}

// unbounded is a wait that only the total time of the request ends.
const unbounded = time.Duration(math.MaxInt64)

// firstByteWithin returns the time limit for the first event of a stream. A whole answer arrives only
// after its last token, so only the total time bounds it. A probe of a half-open worker has the time
// limit of its breaker if another worker can answer.
func (a *attempt) firstByteWithin() time.Duration {
	within := unbounded
	if a.x.parsed.Req.Stream {
		within = firstByteLimit(a.x.in.Snap.File.Timeouts.FirstByte, a.lease.Expected())
	}
	if a.lease.Worker() == nil {
		return within
	}
	patience, probing := a.m.Gate.Probing(a.lease.Ticket(), a.lease.Expected())
	if a.probing = probing; probing && a.canRetryElsewhere() {
		within = min(within, patience)
	}
	return within
}

const (
	// firstByteMax is the longest time to the first event if timeouts.first_byte is not set: a long prompt in the
	// queue of a busy engine.
	firstByteMax = 300 * time.Second
	// firstByteFactor is the ratio of that time to the predicted one, up to firstByteMax, on a worker that sends
	// nothing at all. A healthy engine is not off by a factor of 10.
	firstByteFactor = 10
	// firstByteMin is the least such time: an engine may load a model, or compile a graph.
	firstByteMin = 15 * time.Second
)

// firstByteLimit returns the configured time limit, or one near the predicted time if none is set.
func firstByteLimit(configured, expected time.Duration) time.Duration {
	if configured > 0 {
		return configured
	}
	return min(firstByteMax, max(firstByteMin, firstByteFactor*expected))
}

// firstByteEnd implements firstByteLimiter. A limit that the gateway has set itself applies only if the worker has
// answered before but now sends nothing, and another worker can take the request.
func (a *attempt) firstByteEnd(now time.Time) time.Time {
	ceiling := a.started.Add(firstByteMax)
	switch since := a.lease.SilentSince(); {
	case a.x.in.Snap.File.Timeouts.FirstByte > 0:
		return now
	case a.lease.LastByteAt().IsZero() && !a.probing || !a.canRetryElsewhere():
		return ceiling
	case !a.probing && now.Sub(since) < firstByteMin && since.After(a.started):
		return earlier(since.Add(firstByteMin), ceiling)
	}
	return now
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// attemptsIn returns the number of attempts in a pool, with the present one.
func (d *dispatch) attemptsIn(pool *control.Pool) (n int) {
	for _, a := range d.attempts {
		if a.pool == pool {
			n++
		}
	}
	return n
}

// canRetryElsewhere reports whether another worker can take the request now.
func (a *attempt) canRetryElsewhere() bool { return a.retryable && a.lease.HasOtherWorker(time.Now()) }

type attempt struct {
	x            *exchange
	pool         *control.Pool
	m            *control.Member
	lease        *routing.Lease // &booked, or the lease of a stage
	booked       routing.Lease
	request      http1.Request // to the worker, while it is sent
	placement    placement     // how the worker was selected
	cause        func() error  // why the attempt was cancelled; nil while it is not
	span         trace.Span    // nil without tracing
	watch        watchdog
	firstByte    time.Duration // how long the worker may take until its first event
	addsUsage    []string      // added fields that request the usage
	addsPriority []string      // added fields for the engine's own queue
	maxTokens    int64         // the output limit that the worker received; 0: none
	status       int
	usage        openai.Usage // as the engine reported it
	bounds       intake.UsageBounds
	usesEngine   bool          // the answer shows whether the engine works
	stream       bool          // the answer is a stream of generated tokens
	probing      bool          // a probe of a half-open worker
	retryable    bool          // the request may be sent to one more worker
	retryPaid    atomic.Bool   // the retry after this attempt is spent from the budget
	handover     *handover     // nil in a pool without one
	stage        *stageRequest // nil: the request as the client sent it
	moments
	outcome
}

// moments contains the times of an attempt. A moment that did not occur is zero.
type moments struct {
	started time.Time
	headAt  time.Time     // status and headers
	firstAt time.Time     // first content of a generated stream
	lastAt  time.Time     // last content
	ttft    time.Duration // time to the first content
	ended   time.Time     // release of the load
}

// outcome is the result of an attempt for its worker and, in ending, for the request.
type outcome struct {
	failure       *failure
	fault         error  // fault of a relayed answer: nil, ErrExcluded or the worker's fault
	words         string // first words of the engine's error; empty without one
	ending        ending // ending of the request; set if failure is nil
	begun         bool   // the worker has answered
	settled       bool   // the attempt ended without a panic
	used          settlement
	reported      bool
	reportedFault error // the fault that was reported for the worker
}

func (a *attempt) sendAndRelay(ctx context.Context) *failure {
	resp, err := a.send(ctx, !a.m.RejectsAccounting.Load() && !a.m.HasTimings())
	if err != nil {
		return a.sendFailure(err)
	}
	defer func() {
		if a.x.rest == nil {
			resp.Body.Close()
		}
	}()
	return a.relayAnswer(resp)
}

// send sends the request and returns the head of the answer. usage requests the usage from the engine. Fields that
// the gateway adds and the engine refuses are omitted.
func (a *attempt) send(ctx context.Context, usage bool) (*http1.Response, error) {
	priority := a.enginePriority()
	resp, err := a.sendRequest(ctx, usage, priority)
	var refused addition // the last field that was removed
	// SGLang's engines may know the room of a hand-over already.
	for err == nil && (a.stage == nil || a.pool.Handover != config.HandoverSGLang) {
		named := a.refusedAddition(resp)
		if named == nothingAdded {
			break
		}
		if err = a.prepareResend(); err != nil {
			return nil, err
		}
		refused = named
		usage, priority.set = usage && named == priorityAdded, priority.set && named != priorityAdded
		a.watch.startSilence(a.firstByte, errFirstByteTimeout)
		resp, err = a.sendRequest(ctx, usage, priority)
	}
	if err == nil && resp.Status < 300 {
		a.omitAddition(refused)
	}
	return resp, err
}

// answered records that the worker answered, successfully if err is nil, and reports the pending
// outcomes of earlier attempts. at is the time of the first event; it is zero for a whole answer to a
// request for a stream, because the time of its first token is unknown.
func (a *attempt) answered(at time.Time, err error) {
	if a.begun { // the end of a stream calls answered again
		return
	}
	a.begun = true
	if err == nil && a.handover != nil {
		a.handover.answerBegan()
	}
	a.x.dispatch.reportFailed(err)
	a.lease.Answered(at, err)
}

// sentAt returns when the request was sent to the attempt's worker.
func (a *attempt) sentAt() time.Time {
	if a.handover != nil {
		return a.handover.decodeAt
	}
	return a.started
}

// received records that the worker sent a part of the answer.
func (a *attempt) received() {
	if a.handover != nil {
		a.handover.answerBegan()
	}
	if a.usesEngine {
		a.lease.Received(time.Now())
	}
}

// releaseLoad releases the worker's load. It reports the outcome of a relayed answer; the outcome of a
// failure stays pending until its cause is known.
func (a *attempt) releaseLoad(f *failure) {
	a.settled, a.failure, a.ended = true, f, time.Now()
	a.countPrefix()
	if f == nil {
		a.countPace()
	}
	a.used.sent = a.used.sent || f == nil || f.sent
	if f != nil && f.sent && (errors.Is(f.fault, errTotalTimeout) || errors.Is(f.fault, errIdleTimeout) ||
		errors.Is(f.fault, errStoppedSilence)) {
		a.bookEstimate(0) // the engine has done work; the answer of another worker replaces this
	}
	if f == nil {
		a.reportOutcome()
		return
	}
	if !a.backOff(f) && a.lease.Worker() != nil && f.unreachable {
		a.pauseServer()
	}
	if f.recheck {
		a.m.Worker.Suspect()
	}
	a.lease.Unbook()
}

// backOff starts the backoff of the attempt's worker that the failure demands, and reports whether it did.
func (a *attempt) backOff(f *failure) bool {
	w := a.lease.Worker()
	if w == nil || f.backoff <= 0 || f.backoffIfOthers && !a.lease.HasOtherWorker(time.Now()) {
		return false
	}
	a.x.resolution.Pool.Routing.SetBackoff(w, time.Now().Add(f.backoff))
	return true
}

// pauseServer keeps new requests from the attempt's worker and from the other ranks of its server,
// which accepts no connection.
func (a *attempt) pauseServer() {
	pool, until := a.x.resolution.Pool, time.Now().Add(unreachableFor)
	for name, m := range pool.Members {
		if m.Worker.SharesServer(a.m.Worker) {
			pool.Routing.SetOpen(name, m, until)
		}
	}
}

// reportOutcome releases the lease with the outcome, exactly once.
func (a *attempt) reportOutcome() {
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
		if a.pool == a.x.resolution.Pool {
			a.x.parsed.Prompt.Judge(a.pool, a.usage.Prompt)
		}
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
	prompt, cached := a.computedTokens()
	a.m.Stats.Observe(now, control.AttemptStats{Outcome: how, TTFT: a.ttft, Total: a.ended.Sub(a.started),
		Prompt: prompt, Cached: cached, Output: a.usage.Output, Failure: a.lastFailure(fault)})
	a.reportedFault = fault
}

// computedTokens returns the tokens of the prompt that the worker computed or had cached. They are those of another
// worker if that one handed the prompt over. An engine whose prefill stage is a stream reports none, so that they are
// estimated.
func (a *attempt) computedTokens() (prompt, cached int64) {
	switch {
	case a.lease.HandedOver():
		return 0, 0
	case a.usage.Prompt == 0 && a.begun && a.pool.Handover != "" && a.handover == nil:
		return a.x.facts.PromptTokens, a.lease.Overlap()
	}
	return a.usage.Prompt, a.usage.Cached
}

// errPanic is the fault of an attempt during which the gateway panicked.
var errPanic = errors.New("the gateway failed during the attempt")

// releaseUnsettled releases the lease after a panic.
func (a *attempt) releaseUnsettled() {
	if a.settled {
		return
	}
	a.fault = excluded("%w", errPanic)
	a.ended = time.Now()
	a.reportOutcome()
}

// firstContent records the time of the first content of a generated stream. Other answers have no
// time to first token: a whole answer arrives after its last token, and images and audio have no
// tokens. They would make their workers look slow.
func (a *attempt) firstContent(at time.Time) {
	a.firstAt = at
	a.ttft = a.firstAt.Sub(a.started)
	if a.x.dispatch.firstAt.IsZero() {
		a.x.dispatch.firstAt = a.firstAt
		a.m.Series.TTFT.Observe(a.ttft.Seconds())
	}
}

// Notes of a usage that the engine has reported.
const (
	noteAboveMaxTokens = "output above max_tokens"
	noteOutput         = "output not plausible"
	notePrompt         = "prompt not plausible"
	noteUsage          = "usage not plausible"
)

// bookReported records the usage that the engine reported, unless the request is free. A count that exceeds every
// possible one, or that the engine left at 0, is replaced: the prompt's by the estimate of the gateway, the output's
// by seen, its own count.
func (a *attempt) bookReported(u openai.Usage, seen int64) {
	if a.x.resolution.Free(&a.x.in) {
		return
	}
	// No prompt has no tokens: an engine that reports 0 has not counted them.
	uncounted := u.Prompt == 0 && a.x.in.Dialect.Generates()
	booked := u
	noPrompt := u.Prompt > a.bounds.Prompt || uncounted
	noOutput := u.Output > a.bounds.Output || uncounted && u.Output == 0
	if noPrompt {
		booked.Prompt, booked.Cached, booked.CachedKnown = a.x.facts.PromptTokens, 0, false
		u.Prompt, u.Cached, u.CachedKnown = 0, 0, false
	}
	if noOutput {
		booked.Output, u.Output = seen, 0
	}
	a.used.note = ""
	switch {
	case noPrompt && noOutput:
		a.used.note = noteUsage
	case noPrompt:
		a.used.note = notePrompt
	case noOutput:
		a.used.note = noteOutput
	case u.Output > a.bounds.MaxTokens:
		a.used.note = noteAboveMaxTokens
	}
	a.usage = u
	a.used.usage, a.used.known, a.used.estimated = booked, true, noPrompt || noOutput
	a.m.Series.Prompt.Add(float64(u.Prompt))
	a.m.Series.Cached.Add(float64(u.Cached))
	a.m.Series.Output.Add(float64(u.Output))
}

// streamEnded counts the end of a stream and sets the result of the request.
func (a *attempt) streamEnded(e telemetry.StreamEnd, o decisions.Result, fault error) {
	a.fault = fault
	a.ending.result = o
	a.x.s.metrics.StreamEnded(e)
}
