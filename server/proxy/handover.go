package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/config"
	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/telemetry"
)

// handover is the state of an attempt in a pool whose workers compute prompts for each other. The attempt's own
// worker generates the answer, from a prompt that it computes itself or that a prefill worker hands over to it.
type handover struct {
	*attempt
	fields    *openai.StageFields
	cleaner   openai.AnswerCleaner
	result    telemetry.HandoverResult
	uncounted bool              // the answer is not generated, or a prefill worker refused the request
	prefills  []*attempt        // prefill stages, in order
	tried     []*routing.Worker // prefill workers that failed
	retried   *routing.Choice   // the selection of the second prefill worker; nil without one, or if it is not recorded
	kept      *attempt          // the stage whose worker keeps the prompt; nil without one
	decodeAt  time.Time         // when the request was sent to the decode worker; zero: it was not
	readUntil time.Time         // when decode workers may read an abandoned prompt no longer; zero: it is not abandoned
	cancel    context.CancelCauseFunc

	mu      sync.Mutex  // guards the rest, which the goroutine of a client that leaves shares
	sent    bool        // the decode worker gets the request
	begun   bool        // it has sent a part of the answer, or computes the prompt itself
	left    bool        // the client has left
	closed  bool        // the attempt has ended
	leaving *time.Timer // ends an attempt whose client has left
}

// abandonWithin is how long a decode worker may take to read a prompt whose client has left.
const abandonWithin = 2 * time.Second

// errOtherStage is the cause for which one stage of a request ends if the other one has failed.
var errOtherStage = errors.New("the other stage of the request has failed")

// stageRequest is what the request of one stage has in addition to the client's.
type stageRequest struct {
	set       []openai.Member
	requestID string // with the addresses of both engines; empty: the usual one
	once      bool   // its hand-over must not be sent twice
}

// apply adds the parts to a request and to the edit of its body.
func (s *stageRequest) apply(req *http1.Request, edit *openai.Edit) {
	edit.Set, req.Once = s.set, s.once
	if s.requestID != "" {
		req.Header["X-Request-Id"] = []string{s.requestID}
	}
}

// detaches reports whether attempts outlive their client, so that no engine keeps a prompt for nothing.
func detaches(kind string, lease *routing.Lease) bool {
	return (kind == config.HandoverNIXL || kind == config.HandoverP2PNCCL) && lease.HandedOver()
}

// attemptContext returns the context of an attempt.
func (x *exchange) attemptContext(lease *routing.Lease) (context.Context, context.CancelCauseFunc) {
	ctx := x.in.HTTP.Context()
	if kind := x.resolution.Pool.Handover; kind != "" && detaches(kind, lease) {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithCancelCause(ctx)
}

// openHandover prepares the attempt for its pool's hand-over.
func (a *attempt) openHandover(cancel context.CancelCauseFunc) {
	a.x.in.Memory.KeepBody() // releaseUnsent may send the body after the end of the request
	f := a.x.parsed.StageFields()
	h := &handover{attempt: a, fields: f, result: telemetry.HandoverLocal, cancel: cancel,
		cleaner: openai.AnswerCleaner{TokenIDs: f.TokenIDs}, uncounted: !a.usesEngine || !a.x.in.Dialect.Generates()}
	a.handover = h
	a.stage = h.withoutForged(nil)
}

// withoutForged returns the request of a stage without the client's fields that name another engine and that no other
// Edit removes. A request that comes from a pool without a hand-over may have some.
func (h *handover) withoutForged(s *stageRequest) *stageRequest {
	if h.fields.Forged == "" {
		return s
	}
	if s == nil {
		s = &stageRequest{}
	}
	s.set = append(slices.Clip(s.set), openai.Member{Name: "prompt_token_ids"}, openai.Member{Name: "request_id"})
	return s
}

// serve serves the request in one or two stages.
func (h *handover) serve(ctx context.Context) *failure {
	switch {
	case !h.lease.HandedOver():
		return h.sendAndRelay(ctx)
	case h.pool.Handover == config.HandoverSGLang:
		h.result = telemetry.HandoverRemote
		f := h.serveParallel(ctx)
		if f != nil && f.prefill && f.retry && h.x.in.HTTP.Context().Err() == nil && h.firstByteLeft(time.Now()) > 0 &&
			h.retryPrefill(h.prefills[len(h.prefills)-1]) {
			f = h.serveParallel(ctx)
		}
		return f
	}
	h.result = telemetry.HandoverRemote
	stop := func() bool { return false }
	if detaches(h.pool.Handover, h.lease) {
		client := h.x.in.HTTP.Context()
		stop = context.AfterFunc(client, func() { h.clientLeft(context.Cause(client)) })
	}
	defer stop()
	if f, refused := h.preparePrompt(ctx); f != nil || refused {
		return f
	}
	if h.kept != nil && h.keepsPrompts() && (ctx.Err() != nil || h.x.clientGone()) {
		return h.abandon(ctx)
	}
	h.beginDecode()
	f := h.sendAndRelay(ctx)
	if f != nil && h.kept != nil && f.status >= http.StatusInternalServerError && f.requestMayBeCause() {
		h.transferFailed(f)
	}
	return f
}

// transferFailed records that the decode worker failed before the first content of a prompt that was handed over. The
// prefill engine may have ended, so the decode worker is not blamed, unless it has failed since before the prompt was
// computed.
func (h *handover) transferFailed(f *failure) {
	if h.m.Transfers.Fail(h.kept.ended, time.Now()) {
		return
	}
	f.transfer, f.fault = true, excluded("the prompt may not have been transferred: %w", f.fault)
	h.kept.m.Worker.Suspect()
	h.tried = append(h.tried, h.kept.lease.Worker())
}

// clientLeft ends the attempt of a client that has left. A prefill stage continues: an engine may keep the prompt of
// an aborted one. A decode worker that was sent the hand-over gets the time to read it.
func (h *handover) clientLeft(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	switch {
	case h.closed:
	case errors.Is(cause, ErrDrainCut):
		h.cancel(cause)
	case h.begun:
		h.cancel(context.Canceled)
	case h.sent:
		h.leaveSoonLocked()
	}
}

// leaveSoonLocked ends the attempt when its decode worker has had the time to read the prompt.
func (h *handover) leaveSoonLocked() {
	if h.leaving == nil {
		h.leaving = time.AfterFunc(abandonWithin, func() { h.cancel(context.Canceled) })
	}
}

// beginDecode records that the request is sent to the decode worker now. The time limit for the first event covers
// both stages.
func (h *handover) beginDecode() {
	now := time.Now()
	h.decodeAt = now
	h.lease.Begin(now) // without effect if it computes the prompt itself
	if h.pool.Handover == config.HandoverSGLang {
		h.watch.stopSilence() // it waits for the prefill stage
	} else {
		h.watch.startSilence(h.firstByteLeft(now), errFirstByteTimeout)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = true
	h.begun = h.begun || h.kept == nil && h.pool.Handover != config.HandoverSGLang
	switch {
	case !h.left:
	case h.begun:
		h.cancel(context.Canceled)
	default:
		h.leaveSoonLocked()
	}
}

// firstByteLeft returns the rest of the time until the first event.
func (h *handover) firstByteLeft(now time.Time) time.Duration {
	if h.firstByte == unbounded {
		return unbounded
	}
	return max(0, h.firstByte-now.Sub(h.started))
}

// cancelUnlessBegun ends the attempt if its worker has sent nothing of the answer.
func (h *handover) cancelUnlessBegun(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.begun {
		h.cancel(cause)
	}
}

// answerBegan records that the decode worker has sent a part of the answer, and thus has read the prompt.
func (h *handover) answerBegan() {
	h.mu.Lock()
	first := !h.begun
	if h.begun = true; first && h.left {
		h.cancel(context.Canceled)
	}
	h.mu.Unlock()
	if p := h.kept; p != nil {
		h.kept = nil
		h.m.Transfers.Succeed()
		h.m.Closures.Succeed()
		control.PairSucceeded(p.m, h.m)
		p.releaseKept(true)
	}
}

// releaseKept releases the worker of a prefill stage. read reports that another worker has read the prompt.
func (a *attempt) releaseKept(read bool) {
	if a.keepsPrompts() {
		a.m.Handovers.Remove(read, a.leaseEnd())
	}
	a.reportOutcome()
}

// leaseEnd returns when the engine of a prefill stage gives up a prompt that no other one has read.
func (a *attempt) leaseEnd() time.Time { return a.ended.Add(a.pool.HandoverLease) }

// keepsPrompts reports whether prefill workers keep a prompt until another worker has read it.
func (a *attempt) keepsPrompts() bool {
	return a.pool.Handover == config.HandoverNIXL || a.pool.Handover == config.HandoverP2PNCCL
}

// recompute lets the decode worker compute the prompt itself. Without such a worker it returns f for the attempt.
func (h *handover) recompute(f *failure) *failure {
	if h.lease.PrefillLocally(time.Now()) != nil {
		return h.prefillFailed(f)
	}
	if p := h.kept; p != nil {
		h.kept = nil
		p.releaseKept(false)
	}
	h.result, h.stage, h.cleaner.SetCached = telemetry.HandoverRecomputed, h.withoutForged(nil), false
	return nil
}

// prefillFailed returns the failure of the attempt if a prefill stage failed with f. The attempt's own worker is not
// at fault, and has received nothing.
func (h *handover) prefillFailed(f *failure) *failure {
	h.used.sent = h.used.sent || f.sent
	return &failure{err: f.err, fault: excluded("the prefill stage failed: %w", f.fault), retry: f.retry, sent: f.sent,
		status: f.status, prefill: true}
}

// abandon sends the hand-over of a client that has left to the decode worker, which reads the prompt, so that the
// prefill worker releases it.
func (h *handover) abandon(ctx context.Context) *failure {
	h.result = telemetry.HandoverAbandoned
	if h.readUntil.IsZero() {
		h.readUntil = time.Now().Add(abandonWithin)
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), h.readUntil)
	defer cancel()
	whole, stage := h.stage, *h.stage
	stage.set = append(slices.Clip(stage.set), h.x.parsed.Req.AbandonMembers(h.fields)...)
	h.stage = &stage
	h.decodeAt = time.Now()
	h.lease.Begin(h.decodeAt)
	resp, err := h.sendRequest(ctx, false, sentPriority{})
	h.stage = whole // another worker may need it
	if err == nil {
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.Status < 300 {
			h.answerBegan()
		}
		resp.Body.Close()
	}
	phase := http1.PhaseAwait
	if se, ok := errors.AsType[*http1.SendError](err); ok {
		phase = se.Phase
	}
	cause := h.cause()
	switch {
	case errors.Is(cause, ErrDrainCut), errors.Is(cause, errTotalTimeout):
		return h.sendFailure(&http1.SendError{Phase: phase, Err: cause})
	case cause == nil && ctx.Err() == nil && phase < http1.PhaseWrite:
		return h.sendFailure(err) // the worker accepts no connection
	}
	return &failure{sent: phase >= http1.PhaseWrite, fault: excluded("%w", errClientGone),
		err: &openai.Error{Code: openai.CodeWorkerError, Message: "The client left.", Cause: errClientGone}}
}

// end releases the prefill stages after the attempt, which failed with f, and counts it.
func (h *handover) end(f *failure) {
	h.mu.Lock()
	h.closed = true
	if h.leaving != nil {
		h.leaving.Stop()
	}
	h.mu.Unlock()
	if p := h.kept; p != nil && f != nil && !f.sent && h.pool.Handover == config.HandoverNIXL {
		h.x.dispatch.dropUnsent()
		h.x.dispatch.unsent = &unsentPrompt{p, h.stage, h.readUntil}
	} else if p != nil {
		p.releaseKept(false)
	}
	h.kept = nil
	if f != nil && h.result != telemetry.HandoverAbandoned && h.result != telemetry.HandoverLocal &&
		!errors.Is(f.fault, errClientGone) {
		h.result = telemetry.HandoverFailed
	}
	if !h.uncounted {
		h.pool.HandoverSeries.Ended(h.result)
	}
}

// prepareResend prepares the request for another time. A hand-over object is spent, so that the worker then computes
// the prompt itself.
func (a *attempt) prepareResend() error {
	if a.handover == nil || a.stage == nil || !a.stage.once || a.pool.Handover != config.HandoverNIXL {
		return nil
	}
	if f := a.handover.recompute(noObject()); f != nil {
		return f.fault
	}
	return nil
}

// preparePrompt takes the prompt that the previous attempt has not sent, for which the attempt is booked, or makes a
// prefill worker compute it. If that worker refuses the request, the client has received its answer.
func (h *handover) preparePrompt(ctx context.Context) (f *failure, refused bool) {
	d := &h.x.dispatch
	switch {
	case h.lease.Prefill() != nil:
		return h.computePrompt(ctx)
	case !d.hasUnsent(h.pool): // the attempt has waited in the queue
		return h.recompute(noObject()), false
	}
	h.kept, h.stage = d.unsent.p, d.unsent.stage
	h.cleaner.SetCached, h.cleaner.Cached = true, h.kept.usage.Cached
	d.unsent = nil
	return nil, false
}

// hideHandover returns an engine's error without what only engines may see.
func (a *attempt) hideHandover(body []byte) []byte {
	if a.stage == nil {
		return body
	}
	for _, m := range a.stage.set {
		if openai.IsTransferField(m.Name) && openai.Mentions(body, m.Name) {
			return nil // some engines repeat the request
		}
	}
	if a.stage.requestID != "" && openai.HasEngineAddress(string(body)) {
		return nil
	}
	return body
}

func (h *handover) record() *decisions.Handover {
	if h.uncounted && len(h.prefills) == 0 {
		return nil
	}
	r := &decisions.Handover{Result: h.result.String(), DecodeAtMs: msSince(h.x.in.Start, h.decodeAt)}
	for _, p := range h.prefills {
		try := p.buildAttempt()
		r.Prefills = append(r.Prefills, decisions.Prefill{Worker: try.Worker, Reason: try.Reason, Status: try.Status,
			Error: try.Error, ErrorType: try.ErrorType, AtMs: try.AtMs, EndAtMs: try.EndAtMs, Predicted: try.Predicted,
			Usage: try.Usage, Span: try.Span, Choice: try.Choice})
	}
	return r
}

// prefillSpans returns the spans of the request's prefill stages.
func (d *dispatch) prefillSpans() (spans []trace.Span) {
	for _, a := range d.attempts {
		if a.handover != nil {
			for _, p := range a.handover.prefills {
				spans = append(spans, p.span)
			}
		}
	}
	return spans
}
