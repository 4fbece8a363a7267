package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/server/control"
)

// rooms issues the rooms in which the two engines of SGLang meet. No room is issued twice within 2^63 requests. It is
// safe for concurrent use.
type rooms struct{ last atomic.Uint64 }

// next returns a room of 63 bits. The first one is random, so that gateways have different ones.
func (r *rooms) next(random func() uint64) uint64 {
	if r.last.Load() == 0 {
		r.last.CompareAndSwap(0, random()|1)
	}
	return r.last.Add(1) &^ (1 << 63)
}

// serveParallel sends the request to both workers at once, as SGLang's engines require. The prefill worker's answer
// shows only whether that stage succeeds; the client receives nothing before. If one stage fails, the other one ends.
func (h *handover) serveParallel(ctx context.Context) *failure {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h.cancel, h.cause = cancel, func() error { return context.Cause(ctx) }
	p := h.newPrefill()
	p.stage = h.withoutForged(&stageRequest{set: p.bootstrapMembers(h.x.s.rooms.next(h.x.s.rand)), once: true})
	h.stage = p.stage
	prefillCtx, stop := h.startPrefill(ctx, p)
	defer p.releaseUnsettled() // for a panic
	parallel := &parallelPrefill{h: h, p: p, decided: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() { parallel.run(prefillCtx) })
	defer running.Wait()
	defer stop() // before the wait
	h.beginDecode()
	resp, err := h.send(ctx, !h.m.RejectsAccounting.Load() && !h.m.HasTimings())
	failed := err != nil
	if err == nil {
		defer func() { resp.Body.Close() }()
		failed, err = parallel.decodeFailsFirst(resp, cancel)
	}
	if failed && !errors.Is(h.cause(), errOtherStage) {
		stop()
		running.Wait()
		p.settled, p.ended, p.fault = true, time.Now(), excluded("%w", errOtherStage)
		defer p.reportOutcome()
		if err != nil {
			return h.sendFailure(err)
		}
		f := h.relayAnswer(resp)
		h.pairFailed(p, f)
		return f
	}
	f := parallel.judge()
	h.lease.Begin(time.Now()) // the transfer ends now
	h.endPrefill(p, f)
	switch {
	case f != nil:
		return h.prefillFailed(f)
	case p.ending.result == decisions.Refused:
		h.refusedBy(p)
		return nil
	case err != nil:
		return h.sendFailure(err)
	}
	h.kept = p
	f = h.relayAnswer(resp)
	if h.kept != nil {
		h.pairFailed(p, f)
	}
	if f != nil && errors.Is(h.cause(), errOtherStage) {
		running.Wait()
		h.kept, p.failure = nil, parallel.late
		p.reportOutcome()
		h.tried = append(h.tried, p.lease.Worker())
		return h.prefillFailed(parallel.late)
	}
	return f
}

// pairFailed records which of the two workers is at fault if the decode worker answered that it failed. Its prefill
// worker may not have transferred the prompt. Another attempt uses other workers for both stages if there are some.
func (h *handover) pairFailed(p *attempt, f *failure) {
	if f == nil || f.status < http.StatusInternalServerError || !f.requestMayBeCause() {
		return
	}
	now, worker := time.Now(), p.lease.Worker()
	f.transfer = true
	h.tried = append(h.tried, worker)
	if h.lease.HasOtherWorker(now) && p.lease.HasOtherWorker(now) {
		h.x.dispatch.tried = append(h.x.dispatch.tried, worker)
	}
	by := control.PairFailed(p.m, h.m, p.started, now)
	if by == control.FaultOfDecode {
		return
	}
	fault := fmt.Errorf("the prompt may not have been transferred: %w", f.fault)
	f.fault = excluded("%w", fault)
	p.m.Worker.Suspect()
	p.failure = &failure{sent: true, err: f.err, fault: fault, backoffIfOthers: true}
	switch proven := p.recordFailure(); {
	case !proven || by == control.FaultUnknown:
		p.failure.fault = f.fault // the lease is released before another worker answers
	case by == control.FaultOfEither:
		p.failure.backoff = backoffMin // another prefill worker shows whether the decode worker fails its prompts too
		p.backOff(p.failure)
	}
}

// bootstrapMembers returns the members by which the decode engine finds the prefill worker of the attempt.
func (p *attempt) bootstrapMembers(room uint64) []openai.Member {
	spec := p.m.Worker.Spec()
	host := spec.URL
	if u, err := url.Parse(spec.URL); err == nil {
		host = u.Hostname()
	}
	return openai.BootstrapMembers(host, spec.BootstrapPort, room)
}

// parallelPrefill is a prefill stage beside its decode stage. Its goroutine sets the fields before it closes decided.
type parallelPrefill struct {
	h       *handover
	p       *attempt
	once    sync.Once
	decided chan struct{}

	resp    *http1.Response
	body    []byte // a refusal, a whole answer, or the first event of a stream
	stream  bool
	failure *failure
	late    *failure // a failure after decided was closed; set before the goroutine ends
}

// run sends the request and reads the answer to its end.
func (l *parallelPrefill) run(ctx context.Context) {
	defer l.markDecided()
	l.failure = protocolFailure("%w", errPanic)
	l.h.x.s.control.Recoverer.Run("sending a prefill request", func() {
		var err error
		if l.resp, err = l.p.send(ctx, false); err != nil {
			l.fail(l.p.sendFailure(err))
			return
		}
		l.failure = nil
		defer l.resp.Body.Close()
		l.read()
	})
}

// markDecided lets judge continue. The decode worker's silence counts from here.
func (l *parallelPrefill) markDecided() {
	l.once.Do(func() {
		l.p.ended = time.Now()
		l.h.watch.startSilence(l.h.firstByteLeft(time.Now()), errFirstByteTimeout)
		close(l.decided)
	})
}

// fail records why the stage failed; nil if judge reads it from the answer, such as a refusal of the request. It ends
// the decode stage, unless the decode stage has ended first.
func (l *parallelPrefill) fail(f *failure) {
	l.failure = f
	if !errors.Is(l.p.cause(), context.Canceled) {
		l.h.cancel(errOtherStage)
	}
}

// decodeFailsFirst waits until the prefill stage is decided or the answer of the decode worker fails. It reports
// whether the answer failed first; the prefill worker may then wait for its transfer without end. With an error, the
// answer has broken off and nothing of it may reach the client. A complete answer waits for the prefill stage within
// the time limits of that stage: it shows nothing about the time that the prompt takes. cancel ends the request.
func (l *parallelPrefill) decodeFailsFirst(resp *http1.Response, cancel context.CancelCauseFunc,
) (failed bool, err error) {
	if resp.Status > 299 {
		return true, nil
	}
	early := &earlyBody{ReadCloser: resp.Body, cancel: cancel, read: make(chan struct{}), ended: make(chan struct{})}
	resp.Body = early
	go l.h.x.s.control.Recoverer.Run("reading an early answer", func() { early.readUntil(l.decided) })
	select {
	case <-early.ended:
	case <-l.decided:
	}
	select {
	case <-l.decided:
		return false, nil
	default:
	}
	<-early.read
	complete, begun := l.h.judgeEarly(early.buffered, early.err)
	switch {
	case complete:
		<-l.decided
		return false, nil
	case begun && errors.Is(early.err, io.EOF):
		return true, &http1.SendError{Phase: http1.PhaseBody, Err: errTruncated}
	case begun:
		return true, &http1.SendError{Phase: http1.PhaseBody, Err: early.err}
	}
	return true, nil
}

// judgeEarly reports whether a 2xx answer of which the body ended with err is complete. If it is not, begun reports
// whether a client could receive a part of it.
func (h *handover) judgeEarly(body []byte, err error) (complete, begun bool) {
	if !openai.BeginsStream(body) {
		a := openai.ReadAnswer(h.x.in.Dialect, bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
		complete = errors.Is(err, io.EOF) && a.Valid && a.Err == nil && a.Failed == nil && !a.Hollow && !a.Aborted
		return complete, false
	}
	events := openai.NewEventReader(bytes.NewReader(body), earlyBodyMax)
	tracker := openai.NewTracker(h.x.in.Dialect)
	for {
		ev, err := events.Next()
		mark := tracker.Observe(ev)
		switch {
		case mark&(openai.MarkError|openai.MarkMalformed|openai.MarkAborted|openai.MarkFailed) != 0:
			return false, begun
		case mark.Has(openai.MarkFinish), mark.Has(openai.MarkEnd):
			return true, true
		case mark.Has(openai.MarkContent), len(ev.Data) > 0 && h.x.parsed.AtMostOnce():
			begun = true
		}
		if err != nil {
			return false, begun
		}
	}
}

// earlyBodyMax bounds what is read of an answer before its prompt has been transferred: an engine sends the beginning
// of a stream then, and no content.
const earlyBodyMax = 64 << 10

// earlyBody is the body of an answer whose beginning is read by another goroutine than the rest.
type earlyBody struct {
	io.ReadCloser
	cancel   context.CancelCauseFunc // ends the exchange
	read     chan struct{}           // closed when the goroutine reads no more; it guards the rest
	ended    chan struct{}           // closed at the end of the body
	buffered []byte                  // not yet returned by Read
	err      error
}

// readUntil reads until a read ends after decided was closed.
func (b *earlyBody) readUntil(decided <-chan struct{}) {
	defer close(b.read)
	for len(b.buffered) < earlyBodyMax {
		b.buffered = slices.Grow(b.buffered, 4<<10)
		var n int
		n, b.err = b.ReadCloser.Read(b.buffered[len(b.buffered):cap(b.buffered)])
		b.buffered = b.buffered[:len(b.buffered)+n]
		if b.err != nil {
			close(b.ended)
			return
		}
		select {
		case <-decided:
			return
		default:
		}
	}
}

func (b *earlyBody) Close() error {
	select {
	case <-b.read:
	default:
		b.cancel(nil)
		<-b.read
	}
	return b.ReadCloser.Close()
}

func (b *earlyBody) Read(p []byte) (n int, err error) {
	<-b.read
	switch {
	case len(b.buffered) > 0:
		n = copy(p, b.buffered)
		b.buffered = b.buffered[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}

func (l *parallelPrefill) read() {
	if l.resp.Status < 200 || l.resp.Status > 299 {
		l.body, _ = io.ReadAll(io.LimitReader(l.resp.Body, refusalMax))
		l.fail(nil)
		return
	}
	if l.p.x.parsed.Req.Stream {
		events := openai.NewEventReader(l.resp.Body, int(l.p.x.in.Snap.File.MaxResponseBytes))
		begin := events.Peek()
		if l.stream = openai.BeginsStream(begin); l.stream {
			l.readEvents(events)
			return
		}
		l.resp.Body = readCloser{io.MultiReader(bytes.NewReader(begin), l.resp.Body), l.resp.Body}
	}
	l.readWhole()
}

func (l *parallelPrefill) readWhole() {
	buf := new(bytes.Buffer)
	memory := l.p.x.s.intake.Memory(l.p.x.caller.Tenant)
	defer memory.Release()
	if f := l.p.readWhole(l.resp, buf, &memory); f != nil {
		l.fail(f)
		return
	}
	l.body = bytes.TrimPrefix(buf.Bytes(), []byte("\xef\xbb\xbf"))
	if a := openai.ReadAnswer(l.p.x.in.Dialect, l.body); a.Err != nil || !a.Valid || a.Hollow || a.Aborted {
		l.fail(nil)
	}
}

// readEvents reads the first event of a stream, which decides, and drops the others. A server of the Responses API
// opens streams without its engine.
func (l *parallelPrefill) readEvents(events *openai.EventReader) {
	tracker := openai.NewTracker(l.p.x.in.Dialect)
	for {
		ev, err := events.Next()
		mark := tracker.Observe(ev)
		if len(ev.Data) > 0 && l.body == nil && (mark != 0 || l.p.x.in.Dialect != openai.Responses) {
			l.body = bytes.Clone(ev.Data)
			if _, isError := openai.ErrorOf(ev.Data); isError {
				l.fail(nil)
			}
			l.markDecided()
		}
		l.p.watch.startSilence(l.p.x.in.Snap.File.Timeouts.Idle, errIdleTimeout)
		switch {
		case err == nil:
		case l.body == nil:
			l.fail(l.p.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err}))
			return
		case errors.Is(err, io.EOF):
			return
		default:
			l.late = l.p.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
			l.h.cancelUnlessBegun(errOtherStage)
			return
		}
	}
}

// judge waits until the stage has succeeded or failed. If the engine refused the request, the client receives its
// answer, as the ending of the stage shows.
func (l *parallelPrefill) judge() *failure {
	<-l.decided
	switch {
	case l.failure != nil:
		return l.failure
	case l.resp.Status < 200 || l.resp.Status > 299:
		l.resp.Body = io.NopCloser(bytes.NewReader(l.body))
		return l.p.relayRefusal(l.resp)
	case !l.stream:
		f, _ := l.p.judgePrefill(l.body, l.resp)
		return f
	}
	if e, isError := openai.ErrorOf(l.body); isError {
		return l.p.engineError(e, l.body)
	}
	return nil
}
