package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/server/intake"
	"tierway/telemetry"
)

type stream struct {
	*attempt
	resp       *http1.Response
	buffers    *streamBuffers
	events     *openai.EventReader
	tracker    openai.Tracker
	out        []byte        // events to flush
	stripUsage bool          // the client did not request the usage chunk
	idle       time.Duration // time limit of each read; 0 before the first event
	opened     bool          // the status is sent, and events are relayed at once
	triedRest  bool          // moveToRest has tried
	content    bool          // the worker has sent content
	remembered bool          // the response's id is stored
	memory     intake.BodyMemory
	// finishAt is the offset in out of the chunk with the finish reason, into which the usage chunk is
	// merged; -1 if out does not end with that chunk.
	finishAt int
}

// trailerWait is how long a worker may take to end the body after the last event. The connection is
// reused only if the body has ended.
const trailerWait = 250 * time.Millisecond

// relayStream relays an answer to a request for a stream. The first bytes decide whether it is a stream,
// whatever its label. The first event of a stream is parsed before the status is sent.
func (a *attempt) relayStream(resp *http1.Response) *failure {
	b := a.x.s.buffers.streams.Get().(*streamBuffers)
	s := &stream{attempt: a, resp: resp, buffers: b, events: b.events, out: b.out[:0],
		tracker: openai.NewTracker(a.x.in.Dialect), finishAt: -1}
	s.stripUsage = s.endsWithDone() && !a.x.parsed.Req.IncludeUsage
	s.memory = a.x.s.intake.Memory(a.x.caller.Tenant)
	s.events.Reset(s, int(a.x.in.Snap.File.MaxResponseBytes), &s.memory)
	defer func() {
		if a.x.rest == nil {
			s.releaseBuffers()
		}
	}()
	if begin := s.events.Peek(); !openai.BeginsStream(begin) &&
		(openai.BeginsObject(begin) || openai.MediaType(resp.Header.Get("Content-Type")) != "text/event-stream") {
		whole := *resp
		whole.Body = readCloser{io.MultiReader(bytes.NewReader(begin), resp.Body), resp.Body}
		return a.relayWhole(&whole)
	}
	return s.run()
}

func (s *stream) releaseBuffers() {
	s.buffers.out = s.out
	s.x.s.buffers.putStream(s.buffers)
}

// runToEnd relays the rest of a stream and closes it.
func (s *stream) runToEnd() *failure {
	defer s.close()
	return s.run()
}

// close releases the buffers of the stream and its connection to the worker.
func (s *stream) close() {
	s.releaseBuffers()
	s.resp.Body.Close()
}

// moveToRest makes the stream x.rest once its client has content, so that it waits for the worker after the handler. It
// tries once, and reports whether it did.
func (s *stream) moveToRest() bool {
	if s.triedRest || !s.content || s.pool.Handover != "" {
		return false
	}
	if s.triedRest = true; s.x.answer.mayContinue() {
		s.x.rest = s
	}
	return s.x.rest != nil
}

// Read reads from the worker. After the first event, each read may take timeouts.idle. Neither a long
// event nor a slow client counts as silence of the worker.
func (s *stream) Read(p []byte) (n int, err error) {
	s.waitForWorker(func() { n, err = s.resp.Body.Read(p) })
	return n, err
}

// Wait waits for bytes of the worker, as Read does. If the body cannot wait without a buffer, Wait returns at once.
func (s *stream) Wait() {
	if body, ok := s.resp.Body.(openai.Waiter); ok {
		s.waitForWorker(body.Wait)
	}
}

// waitForWorker calls wait, within timeouts.idle after the first event.
func (s *stream) waitForWorker(wait func()) {
	if s.idle == 0 {
		wait()
		return
	}
	s.watch.startSilence(s.idle, errIdleTimeout)
	wait()
	s.watch.stopSilence()
}

// run relays event by event until the stream ends or continues as x.rest.
func (s *stream) run() *failure {
	for {
		ev, err := s.next()
		if len(ev.Raw) > 0 && !s.isDropped(ev) {
			if s.idle == 0 { // the first event; comments do not count
				s.idle = s.x.in.Snap.File.Timeouts.Idle
				s.watch.stopSilence()
				if !s.x.answer.held() {
					s.watch.extendTotal(s.x.deadline)
				}
			}
			if f, done := s.handleEvent(ev); f != nil || done {
				return f
			}
		}
		if err != nil {
			return s.handleBodyEnd(err)
		}
		if s.finishAt < 0 && !s.events.Buffered() {
			if s.flush() != nil {
				return s.clientLeft()
			}
			if s.moveToRest() {
				return nil
			}
		}
	}
}

// next returns the next event, without what a hand-over has added to it.
func (s *stream) next() (openai.Event, error) {
	if s.handover == nil {
		return s.events.Next()
	}
	return s.nextCleaned()
}

// nextCleaned is a function of its own, because an idle stream waits in next.
func (s *stream) nextCleaned() (openai.Event, error) {
	ev, err := s.events.Next()
	if len(ev.Data) > 0 {
		ev = s.handover.cleaner.Event(s.x.in.Dialect, ev)
	}
	return ev, err
}

// isDropped reports whether an event is not relayed: a comment, or a ping in a dialect without pings,
// which SDKs would read as a chunk.
func (s *stream) isDropped(ev openai.Event) bool {
	return ev.Comment || s.endsWithDone() && string(ev.Name) == "ping"
}

// handleEvent handles one event. done reports that the client has the end of the stream.
func (s *stream) handleEvent(ev openai.Event) (f *failure, done bool) {
	mark := s.tracker.Observe(ev)
	switch {
	case mark.Has(openai.MarkError):
		return s.engineFailed(ev)
	case mark.Has(openai.MarkMalformed):
		return s.fail(protocolFailure("an event that is not a JSON object"))
	case mark.Has(openai.MarkAborted) && s.usesEngine:
		return s.fail(abortFailure())
	case mark.Has(openai.MarkFailed) && s.usesEngine:
		if f, done := s.responseFailed(ev); f != nil || done {
			return f, done
		}
	}
	s.x.cached.recordEvent(ev)
	if id := s.tracker.ResponseID(); id != "" && !s.remembered {
		s.remembered = true
		s.rememberResponse(id) // at once: the client may request the response while it is generated
	}
	if mark != 0 || s.x.in.Dialect != openai.Responses { // a server of the Responses API opens streams without its engine
		s.received()
	}
	if mark&(openai.MarkContent|openai.MarkFinish|openai.MarkEnd) != 0 || !s.holdsPreamble() {
		s.open()
	}
	if mark.Has(openai.MarkContent) {
		now := time.Now()
		if !s.content {
			s.content = true
			if s.x.parsed.GeneratesStream() {
				s.firstContent(now)
			}
			s.answered(now, nil)
		}
		s.lastAt = now // later events, with the usage and the end, have no tokens
	}
	finishAt := s.finishAt
	s.finishAt = -1
	switch {
	case mark.Has(openai.MarkUsageOnly) && s.stripUsage:
		if finishAt >= 0 {
			s.out = openai.JoinUsageChunk(s.out, finishAt, ev.Data)
		}
	case mark.Has(openai.MarkDone) && !mark.Has(openai.MarkEnd) && s.x.in.Dialect.Generates():
		// A terminator without a proven end would make a cut answer look complete.
	case len(ev.Raw) > keptEvent && s.opened && openai.Unchanged(ev, mark) &&
		!(s.stripUsage && mark.Has(openai.MarkFinish)):
		if s.flush() != nil || s.x.answer.write(ev.Raw, true) != nil { // a copy of it would not be reserved
			return s.clientLeft(), true
		}
	default:
		if s.stripUsage && mark.Has(openai.MarkFinish) {
			s.finishAt = len(s.out)
		}
		s.out = openai.AppendEvent(s.out, ev, mark)
	}
	if mark.Has(openai.MarkFinish) && !s.m.SendsFinish.Load() {
		s.m.SendsFinish.Store(true)
	}
	if mark.Has(openai.MarkEnd) {
		return nil, s.finishProven()
	}
	return nil, false
}

// keptEvent is the longest event in bytes that is copied to out, to be sent with others. It is the largest buffer
// of a stream that reserves no memory.
const keptEvent = 64 << 10

// endsWithDone reports whether the dialect's streams end with [DONE].
func (s *stream) endsWithDone() bool {
	return s.x.in.Dialect == openai.Chat || s.x.in.Dialect == openai.Completions
}

// preambleMax is the largest size of the events before the first content that are held. Engines send
// some hundred bytes before it.
const preambleMax = 64 << 10

// holdsPreamble reports whether events without content are held until the first content. Until then
// another worker can take over a failing stream. A request that must not reach an engine twice is not
// held, and its client receives the id of the response at once.
func (s *stream) holdsPreamble() bool {
	return s.usesEngine && !s.opened && len(s.out) < preambleMax && !s.x.parsed.AtMostOnce()
}

// open sends the status. Afterwards no other worker can answer.
func (s *stream) open() {
	if s.opened {
		return
	}
	s.opened = true
	s.watch.extendTotal(s.x.deadline) // the SDKs stop their clocks at the head of an answer
	s.x.answer.sendHead(http.StatusOK, func(h http.Header) {
		clientHeader(h, s.resp.Header, s.x.resolution.Pool, hasRateHeaders(&s.x.admission))
		set := setInto(h)
		streamHeaders(&set)
		s.x.decisionHeaders(&set)
	})
	s.x.parsed.DropBody(&s.x.in)
}

// finishProven finishes a stream with a proven end. After the client has received all events, it reads
// the rest of the body, so that the connection can be reused. It returns true.
func (s *stream) finishProven() bool {
	if s.flush() != nil {
		s.clientLeft()
		return true
	}
	s.idle = 0
	s.watch.startSilence(trailerWait, errTrailer)
	for {
		ev, err := s.next()
		if err != nil {
			break
		}
		// The usage may arrive late. The client receives only the [DONE] that some engines send
		// after the end of a stream of the Responses and Messages dialects.
		if mark := s.tracker.Observe(ev); mark.Has(openai.MarkDone) && !s.endsWithDone() {
			s.out = openai.AppendEvent(s.out, ev, mark)
			if s.flush() != nil {
				break
			}
		}
	}
	s.finish(telemetry.EndComplete)
	return true
}

// finish accounts for a stream that the client received completely.
func (s *stream) finish(end telemetry.StreamEnd) {
	s.answered(time.Now(), nil) // a stream may succeed without content
	s.bookUsage()
	s.streamEnded(end, decisions.OK, nil)
}

// handleBodyEnd handles the end of the body: err is io.EOF or the error of the read.
func (s *stream) handleBodyEnd(err error) (f *failure) {
	eof := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && s.cause() == nil
	switch {
	case eof && s.tracker.Finished():
		s.repairEnd()
		return nil
	case eof && s.tracker.Proven():
		if s.flush() != nil {
			return s.clientLeft()
		}
		s.finish(telemetry.EndComplete)
		return nil
	case eof && s.tracker.Events() == 0:
		return protocolFailure("a stream without an event")
	case errors.Is(err, io.EOF):
		f = s.unfinished()
	case errors.Is(err, openai.ErrEventTooLarge):
		f = s.tooLarge("an event", int(s.x.in.Snap.File.MaxResponseBytes))
	case errors.Is(err, intake.ErrBodyMemory):
		f = s.noAnswerMemory(openai.MaxEvent)
	default:
		if eof {
			err = errTruncated
		}
		f = s.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
	}
	f, _ = s.fail(f)
	return f
}

// unfinished returns the failure of a stream whose body ended properly before the answer did. If the
// worker has never sent the end of an answer, its engine omits it, and the worker is not at fault.
func (s *stream) unfinished() *failure {
	missing := "finish_reason"
	switch s.x.in.Dialect {
	case openai.Messages:
		missing = "stop_reason"
	case openai.Responses:
		missing = "response.completed event"
	}
	f := s.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: fmt.Errorf("%w: no %s", errTruncated, missing)})
	if s.cause() != nil {
		return f
	}
	if s.content && !s.m.SendsFinish.Load() {
		f.fault = excluded("the engine omits the end of its answers: no %s", missing)
	}
	f.err.Message = "The worker ended its stream without a " + missing + ", so the answer may be incomplete. Try again; " +
		"if it recurs, report the request ID to the operator."
	return f
}

// repairEnd adds the terminator that an engine omitted after its last chunk.
func (s *stream) repairEnd() {
	switch s.x.in.Dialect {
	case openai.Messages:
		s.out = append(s.out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	default:
		s.out = append(s.out, "data: [DONE]\n\n"...)
	}
	if s.flush() != nil {
		s.clientLeft()
		return
	}
	s.finish(telemetry.EndRepaired)
}

// fail handles a failure of the worker. While no content is sent, it returns f; afterwards it sends one
// error event. A connection that breaks after content is the worker's fault. Other failures may be
// caused by the request, and are excluded unless earlier failures prove the worker at fault.
func (s *stream) fail(f *failure) (*failure, bool) {
	if !s.x.answer.committed() {
		return f, false
	}
	if s.x.clientGone() {
		s.clientLeft()
		return nil, true
	}
	var lost *http1.SendError
	if f.requestMayBeCause() && !(s.content && errors.As(f.fault, &lost)) && !s.recordFailure() {
		f.fault = excludedAsUnproven(f.fault)
	}
	s.cutStream(f.err, f.fault)
	return nil, true
}

// bookUsage books the usage that the engine reported, or else an estimate of the received part of the
// answer. A report before the end may miss later output; then the larger output counts.
func (s *stream) bookUsage() {
	u, ok := s.tracker.Usage()
	whole := s.tracker.Proven() || s.tracker.Finished()
	switch seen := s.tracker.EstimatedOutput(); {
	case ok && whole:
		s.bookReported(u, seen)
	case ok:
		u.Output = max(u.Output, seen)
		s.bookReported(u, seen)
		s.used.estimated = true
	case s.tracker.Events() > 0:
		s.bookEstimate(seen)
	}
}

// cutStream ends a stream with an error event instead of the dialect's regular end.
func (s *stream) cutStream(e *openai.Error, fault error) {
	s.out = append(s.out, s.errorFrame(e)...)
	err := s.flush()
	s.bookUsage()
	s.ending = endingOf(e)
	s.streamEnded(telemetry.EndTruncated, decisions.Truncated, fault)
	if err != nil {
		s.x.answer.abort = true
	}
}

func (s *stream) errorFrame(e *openai.Error) []byte {
	if s.x.in.Dialect != openai.Responses {
		return e.Frame(s.x.in.Dialect)
	}
	return e.FailedResponse(cmp.Or(s.tracker.ResponseID(), s.x.in.PathID), s.tracker.NextSequence())
}

// engineFailed handles an error that the engine sent as an event.
func (s *stream) engineFailed(ev openai.Event) (*failure, bool) {
	e, _ := openai.ErrorOf(ev.Data)
	if e.Status == 0 {
		e.Status = http.StatusInternalServerError
	}
	if !s.x.answer.committed() {
		return s.engineError(e, ev.Data), true
	}
	s.keepWords(ev.Data)
	f, passes := engineFailure(e, 0, false)
	if f.err != nil && f.err.RetryAfter > 0 { // overload, or a rate limit
		s.backOff(&f)
		return s.fail(&f)
	}
	seen, _ := openai.RefusalOf(openai.HideAddresses(s.hideHandover(ev.Data)))
	if s.m.Worker.RepeatsKey(ev.Data) {
		seen = openai.EngineError{}
	}
	f.err = &openai.Error{Code: openai.CodeWorkerError, Cause: f.fault,
		Message: "The worker failed before its answer was complete. Try again."}
	if seen.Message != "" && (passes || e.Status < http.StatusInternalServerError) {
		f.err.Message = seen.Message
	}
	if !passes {
		return s.fail(&f)
	}
	f.err.Status, f.err.Code = f.status, cmp.Or(openai.Code(seen.Code), codeWorkerRefused)
	failed, done := s.fail(&f)
	if s.ending.code != "" { // the engine's own code may have any content, so it is not logged
		s.ending.code = string(codeWorkerRefused)
	}
	return failed, done
}

// responseFailed handles a response that the engine reports as failed. While no content is sent, a failure
// of the server is like an error as the first event. Every other one is relayed: done is false.
func (s *stream) responseFailed(ev openai.Event) (f *failure, done bool) {
	e, ok := openai.ErrorOf(ev.Data)
	if !ok || !e.OfServer() {
		return nil, false
	}
	if !s.x.answer.committed() {
		return s.engineFailed(ev)
	}
	failed, _ := engineFailure(e, 0, false)
	s.backOff(&failed)
	return nil, false
}

// clientLeft ends a stream after its client has disconnected.
func (s *stream) clientLeft() *failure {
	s.bookUsage()
	s.x.answer.abort = true
	s.streamEnded(telemetry.EndClientGone, decisions.ClientGone, excluded("%w", errClientGone))
	return nil
}

// flush sends the pending events if the answer is open.
func (s *stream) flush() error {
	if len(s.out) == 0 || !s.opened {
		return nil
	}
	err := s.x.answer.write(s.out, true)
	s.out = s.out[:0]
	return err
}
