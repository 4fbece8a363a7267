package proxy

import (
	"bytes"
	"context"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/telemetry"
)

// computePrompt makes a prefill worker compute the prompt, and prepares the request to the decode worker. If the
// prefill worker refuses the request, the client has received its answer.
func (h *handover) computePrompt(ctx context.Context) (f *failure, refused bool) {
	h.watch.stopSilence() // the decode worker does not wait yet
	for {
		p := h.newPrefill()
		got := h.runPrefill(ctx, p)
		switch f := p.failure; {
		case f == nil && p.ending.result == decisions.Refused:
			h.refusedBy(p)
			return nil, true
		case f == nil && h.keepPrompt(p, got):
			return nil, false
		case f == nil:
			return h.recompute(noObject()), false
		case !f.retry || ctx.Err() != nil || h.x.in.HTTP.Context().Err() != nil,
			h.firstByteLeft(time.Now()) == 0: // another attempt has a time limit of its own
			return h.prefillFailed(f), false
		case !h.retryPrefill(p):
			return h.recompute(f), false
		}
	}
}

// noObject returns the failure of a prefill worker whose answer has no hand-over object.
func noObject() *failure {
	f := protocolFailure("a prefill answer without kv_transfer_params")
	f.fault = excluded("%w", f.fault)
	return f
}

// newPrefill returns an attempt for the prefill stage on the worker that is booked for it.
func (h *handover) newPrefill() *attempt {
	lease, started := h.lease.Prefill(), time.Now()
	p := &attempt{
		x:       h.x,
		m:       lease.Ref().(*control.Member),
		pool:    h.pool,
		lease:   lease,
		moments: moments{started: started},
		outcome: outcome{ending: ending{result: decisions.OK}},
		bounds:  h.bounds,
		span:    h.x.trace.Attempt(started),

		placement: placement{choice: h.retried},

		usesEngine: true,
		retryable:  true, // the decode worker may compute the prompt
	}
	p.m.Series.Selected(string(lease.Reason()))
	h.prefills = append(h.prefills, p)
	return p
}

// startPrefill starts the clocks of a prefill stage. The caller must call the returned function at its end.
func (h *handover) startPrefill(ctx context.Context, p *attempt) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.cause = func() error { return context.Cause(ctx) }
	p.firstByte = p.prefillWithin(h.firstByteLeft(p.started))
	p.watch.firstByteEnd = p
	p.watch.start(cancel, p.firstByte, h.x.patience)
	return ctx, func() {
		p.watch.stop()
		cancel(nil)
	}
}

// prefillWithin returns the time limit for a prefill stage: left, or less as for the first event of a stream.
func (a *attempt) prefillWithin(left time.Duration) time.Duration {
	within := min(left, firstByteLimit(a.x.in.Snap.File.Timeouts.FirstByte, a.lease.Expected()))
	patience, probing := a.m.Gate.Probing(a.lease.Ticket(), a.lease.Expected())
	if a.probing = probing; probing && a.canRetryElsewhere() {
		within = min(within, patience)
	}
	return within
}

// runPrefill runs the prefill stage on one worker, before the decode stage. If it fails, its worker is released.
func (h *handover) runPrefill(ctx context.Context, p *attempt) (got openai.Prefill) {
	ctx, stop := h.startPrefill(ctx, p)
	defer stop()
	defer p.releaseUnsettled() // for a panic
	h.x.current.Store(p)
	defer h.x.current.Store(h.attempt)
	p.stage = h.prefillStage(p)
	f := p.sendPrefill(ctx, &got)
	h.endPrefill(p, f)
	return got
}

func (h *handover) prefillStage(p *attempt) *stageRequest {
	req := h.x.parsed.Req
	keep := h.pool.Handover == config.HandoverNIXL
	ids := keep && !h.fields.TokenIDs && !req.Media && (req.Dialect == openai.Chat || h.fields.OnePrompt)
	s := &stageRequest{set: req.PrefillMembers(h.fields, keep, ids)}
	if h.x.parsed.MustBeJudged(h.pool) { // no worker serves whole requests
		s.set = req.Judged(s.set)
	}
	if h.pool.Handover == config.HandoverP2PNCCL {
		// The engines find each other by it. Clients may see the public part.
		public := h.x.s.newID()
		s.requestID = "___prefill_addr_" + p.m.Worker.Spec().KVAddress + "___decode_addr_" + h.m.Worker.Spec().KVAddress +
			"_" + public
		h.cleaner.ID, h.cleaner.Public = []byte(s.requestID), []byte(public)
	}
	return h.withoutForged(s)
}

// sendPrefill sends the request of a prefill stage and reads its answer. If the worker refuses the request, the
// client receives its answer, as p.ending shows.
func (a *attempt) sendPrefill(ctx context.Context, got *openai.Prefill) *failure {
	resp, err := a.send(ctx, false)
	if err != nil {
		return a.sendFailure(err)
	}
	defer resp.Body.Close()
	if resp.Status < 200 || resp.Status > 299 {
		return a.relayRefusal(resp)
	}
	return a.readPrefill(resp, got)
}

func (a *attempt) readPrefill(resp *http1.Response, got *openai.Prefill) *failure {
	buf := a.x.s.buffers.body()
	defer a.x.s.buffers.putBody(buf)
	memory := a.x.s.intake.Memory(a.x.caller.Tenant)
	defer memory.Release()
	if f := a.readWhole(resp, buf, &memory); f != nil {
		return f
	}
	body := bytes.TrimPrefix(buf.Bytes(), []byte("\xef\xbb\xbf"))
	if openai.BeginsStream(body) {
		return a.relayUnrequestedStream(resp, body)
	}
	if f, ok := a.judgePrefill(body, resp); !ok {
		return f
	}
	read := openai.ReadPrefill(body)
	*got = openai.Prefill{Object: bytes.Clone(read.Object), TokenIDs: bytes.Clone(read.TokenIDs),
		ReadsTokenIDs: read.ReadsTokenIDs}
	return nil
}

// judgePrefill checks the whole answer of a prefill stage, and takes its usage. If it is no answer, ok is false, and
// without a failure the client has received the engine's refusal.
func (a *attempt) judgePrefill(body []byte, resp *http1.Response) (f *failure, ok bool) {
	answer := openai.ReadAnswer(a.x.in.Dialect, body)
	switch {
	case answer.Err != nil:
		return a.engineError(*answer.Err, body), false
	case !answer.Valid:
		return protocolFailure("a 2xx prefill answer of the type %q and %d bytes that is not a JSON object",
			openai.MediaType(resp.Header.Get("Content-Type")), len(body)), false
	case answer.Hollow:
		return protocolFailure("a 2xx prefill answer of %d bytes that does not belong to its dialect", len(body)), false
	case answer.Aborted:
		return abortFailure(), false
	}
	if u := answer.Usage; answer.HasUsage && u.Prompt <= a.bounds.Prompt {
		a.usage = u
	}
	return nil, true
}

// endPrefill ends a prefill stage. A successful one keeps its worker for the decode stage; a failed one reports its
// outcome. A request that the worker refused releases it.
func (h *handover) endPrefill(p *attempt, f *failure) {
	if p.settled, p.failure = true, f; p.ended.IsZero() {
		p.ended = time.Now()
	}
	switch {
	case f == nil && p.ending.result == decisions.Refused:
		p.reportOutcome()
	case f == nil:
		p.countPrefix()
		p.begun, h.used.sent = true, true // no refund, whatever becomes of the prompt
		p.m.Closures.Succeed()
		p.lease.Answered(p.ended, nil)
		h.pool.HandoverSeries.Prefill.Observe(p.ended.Sub(p.started).Seconds())
	default:
		if f.requestMayBeCause() && (f.byContrast || !p.recordFailure()) {
			f.fault = excludedAsUnproven(f.fault) // the lease is released before another worker answers
		}
		p.releaseLoad(f)
		p.reportOutcome()
		h.tried = append(h.tried, p.lease.Worker())
	}
}

// refusedBy ends the attempt whose prefill worker refused the request. The client has its answer.
func (h *handover) refusedBy(p *attempt) {
	h.result, h.used.sent = telemetry.HandoverRefused, true
	h.ending, h.status, h.fault = p.ending, p.status, p.fault
}

// retryPrefill books another worker for the prefill stage after the first failure, and reports whether there is one.
func (h *handover) retryPrefill(failed *attempt) bool {
	if len(h.prefills) > 1 || h.x.answer.committed() ||
		!failed.retryPaid.Load() && !h.x.s.spendRetry(failed.failure) {
		return false
	}
	h.x.facts.Now = time.Now()
	r := h.x.facts
	if r.Record != nil { // that of the decode worker
		r.Record = &routing.Choice{}
	}
	if h.pool.Routing.RetryPrefill(&r, h.lease, h.tried...) != nil {
		return false
	}
	h.retried = r.Record
	h.pool.Series.Retries.Inc()
	return true
}

// keepPrompt keeps the worker of a prefill stage until the decode worker has read the prompt, and prepares its
// request. It returns false if the answer has no hand-over object.
func (h *handover) keepPrompt(p *attempt, got openai.Prefill) bool {
	switch h.pool.Handover {
	case config.HandoverNIXL:
		if got.Object == nil {
			p.reportOutcome()
			return false
		}
		ids := got.TokenIDs
		if h.x.in.Dialect == openai.Chat && !got.ReadsTokenIDs {
			ids = nil
		}
		h.stage = h.withoutForged(&stageRequest{set: h.x.parsed.Req.DecodeMembers(h.fields, got.Object, ids), once: true})
	case config.HandoverP2PNCCL:
		h.stage = h.withoutForged(&stageRequest{requestID: p.stage.requestID, once: true})
	}
	if h.keepsPrompts() {
		p.m.Handovers.Add(p.leaseEnd())
	}
	if !h.attempt.stream { // nothing shows when the decode worker has read the prompt
		p.reportOutcome()
	}
	h.kept, h.cleaner.SetCached, h.cleaner.Cached = p, true, p.usage.Cached
	return true
}
