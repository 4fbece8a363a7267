package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/server/intake"
)

// relayAnswer relays a worker's answer to the client. If it returns a failure, the client has received
// no content.
func (a *attempt) relayAnswer(resp *http1.Response) *failure {
	raw := a.x.in.Dialect == openai.Other
	if resp.Status < 200 || resp.Status > 299 && !(raw && resp.Status < 400) { // raw answers include redirects and 304
		return a.relayRefusal(resp)
	}
	switch {
	case raw && resp.Status < 300 && createsConversation(a.x.in.HTTP):
		if f := a.rememberConversation(resp); f != nil {
			return f
		}
		return a.relayRaw(resp, nil)
	case raw:
		return a.relayRaw(resp, nil)
	case a.x.in.Dialect == openai.Audio || a.x.in.Dialect == openai.Images:
		return a.relayRaw(resp, nil)
	case a.x.parsed.Req.Stream:
		return a.relayStream(resp)
	}
	return a.relayWhole(resp)
}

const (
	// refusalMax is the largest part of an error's body that is read, in bytes. Some engines repeat the
	// request in it.
	refusalMax = 1 << 20
	// refusalWait is the time limit for an error's body after its head.
	refusalWait = 2 * time.Second
)

// relayRefusal handles an answer that is not 2xx.
func (a *attempt) relayRefusal(resp *http1.Response) *failure {
	after, hasRetryAfter := retryAfter(resp.Header, time.Now())
	f, passes := statusFailure(resp.Status, after, hasRetryAfter)
	raw := a.x.in.Dialect == openai.Other
	var body []byte
	if passes && !raw || !passes && mayExplain(resp) {
		body = a.readRefusal(resp)
		a.keepWords(body)
		f, passes = engineFailure(refusalOf(resp, body), after, hasRetryAfter)
	}
	switch {
	case passes && raw:
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
		return a.passRaw(resp, f.fault)
	case raw && (f.backoffIfOthers || !hasRetryAfter && resp.Status >= http.StatusInternalServerError):
		f.backoff = 0 // on a passed path the client may be the cause
	}
	if !passes {
		words := a.readWords(resp)
		if resp.Status == http.StatusServiceUnavailable && !hasRetryAfter && !raw && !words.NamesOverload() {
			f.byContrast = true
			f.fault = errors.New("the worker answered 503 without Retry-After and without naming an overload")
		}
		return &f
	}
	resp.Status = f.status
	a.fault = f.fault
	a.answered(time.Now(), f.fault)
	a.passRefusal(resp, body)
	a.ending.cause = f.fault.Error()
	return nil
}

// refusalOf reads the body of an error. Its status is that of the answer, unless a proxy's 5xx repeats the
// 429 or the overload of the engine behind it.
func refusalOf(resp *http1.Response, body []byte) openai.EngineError {
	e, _ := openai.RefusalOf(body)
	if resp.Status < http.StatusInternalServerError || e.Status != http.StatusTooManyRequests && !e.Overloaded() {
		e.Status = resp.Status
	}
	return e
}

// mayExplain reports whether the body of an error that does not pass can change its classification: a
// refusal for content, or an overload under another status.
func mayExplain(resp *http1.Response) bool {
	switch resp.Status {
	case http.StatusForbidden:
		return true
	case http.StatusServiceUnavailable, openai.StatusOverloaded, http.StatusNotImplemented, http.StatusLoopDetected:
		return false
	}
	return resp.Status >= http.StatusInternalServerError &&
		!strings.Contains(openai.MediaType(resp.Header.Get("Content-Type")), "html")
}

// passRaw relays a 4xx of a passed path unchanged.
func (a *attempt) passRaw(resp *http1.Response, fault error) *failure {
	f := a.relayRaw(resp, fault)
	if f == nil && a.fault == nil {
		a.fault, a.ending.result = fault, decisions.Refused
	}
	return f
}

// codeWorkerRefused is the code of a refusal for which the engine sent none.
const codeWorkerRefused openai.Code = "worker_refused"

// passRefusal relays a worker's 4xx: unchanged if it has the dialect's form, else converted to it.
func (a *attempt) passRefusal(resp *http1.Response, body []byte) {
	x := a.x
	a.used.sent = true // a refused request counts against the limits
	if a.m.Worker.RepeatsKey(body) {
		body = nil // it would reveal the gateway's own key
	}
	body = openai.HideAddresses(a.hideHandover(body))
	e := &openai.Error{Code: codeWorkerRefused, Status: resp.Status,
		Message: "The worker rejected the request without a message. Check the request's fields."}
	// the engine read the action as the id of a response
	if resp.Status == http.StatusMethodNotAllowed && x.in.Kind == intake.Optional {
		e, body = notServed(x.resolution.Pool.Name, x.in.WorkerPath), nil
	}
	seen, ok := openai.RefusalOf(body)
	if ok {
		e.Message, e.Param = cmp.Or(seen.Message, e.Message), seen.Param
	}
	if seen.Code != "" {
		e.Code = openai.Code(seen.Code)
	}
	code := codeWorkerRefused // the engine's own code may have any content, so it is not logged
	if overflow, exceeds := seen.Overflow(x.in.Dialect); ok && exceeds {
		overflow.Status = resp.Status
		e, code, body = overflow, overflow.Code, overflow.RewriteBody(body, x.in.Dialect)
	}
	if ok && nativeError(x.in.Dialect, body) && x.answer.held() {
		if x.answerWhole(resp.Status, resp.Header, body) != nil {
			x.answer.abort = true
		}
	} else {
		x.writeError(e)
	}
	a.ending.result, a.ending.code = decisions.Refused, string(code)
}

// refusedAddition returns the added field that the engine's error names, and that it may have refused.
// Some engines repeat the whole request in their errors and thus name all fields. Therefore only a
// successful answer without the field proves the refusal; after two removals it proves the second. If
// the error names no added field, the body of resp is restored.
func (a *attempt) refusedAddition(resp *http1.Response) addition {
	if len(a.addsUsage)+len(a.addsPriority) == 0 || resp.Status != http.StatusBadRequest &&
		resp.Status != http.StatusUnprocessableEntity {
		return nothingAdded
	}
	body := a.readRefusal(resp)
	named := func(name string) bool { return bytes.Contains(body, []byte(name)) }
	var refused addition
	switch {
	case refusalOf(resp, body).RefusesContent(): // it may repeat the request
		resp.Body = readCloser{bytes.NewReader(body), resp.Body}
		return nothingAdded
	case slices.ContainsFunc(a.addsPriority, named):
		refused = priorityAdded
	case slices.ContainsFunc(a.addsUsage, named):
		refused = usageAdded
	default:
		resp.Body = readCloser{bytes.NewReader(body), resp.Body}
		return nothingAdded
	}
	resp.Body.Close()
	return refused
}

// readRefusal reads the part of an error's body that arrives within refusalWait.
func (a *attempt) readRefusal(resp *http1.Response) []byte {
	a.watch.startSilence(refusalWait, errIdleTimeout)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, refusalMax)) // a part is sufficient
	return body
}

type readCloser struct {
	io.Reader
	io.Closer
}

// relayWhole relays an answer that is one JSON object. It reads the whole answer before it sends
// anything, so that another worker can answer if this one fails.
func (a *attempt) relayWhole(resp *http1.Response) *failure {
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
	if a.handover != nil {
		body = a.handover.cleaner.Body(a.x.in.Dialect, body)
	}
	answer := openai.ReadAnswer(a.x.in.Dialect, body)
	switch {
	case answer.Err != nil:
		return a.engineError(*answer.Err, body)
	case !answer.Valid:
		return protocolFailure("a 2xx answer of the type %q and %d bytes that is not a JSON object",
			openai.MediaType(resp.Header.Get("Content-Type")), len(body))
	case answer.Hollow && a.usesEngine:
		return protocolFailure("a 2xx answer of %d bytes that does not belong to its dialect", len(body))
	case answer.Aborted && a.usesEngine:
		return abortFailure()
	case answer.Failed != nil && answer.Failed.OfServer() && a.usesEngine:
		return a.engineError(*answer.Failed, body)
	}
	if !a.x.answer.stopBeatsIfHeld() {
		a.bookWhole(answer, len(body))
		return lateWhole()
	}
	a.received()
	at := time.Now()
	if a.x.parsed.Req.Stream {
		at = time.Time{}
	}
	a.answered(at, nil)
	a.bookWhole(answer, len(body))
	a.ending.result = decisions.OK
	a.rememberResponse(answer.ID)
	if err := a.x.answerWhole(resp.Status, resp.Header, body); err != nil {
		a.fault, a.ending.result = excluded("%w", errClientGone), decisions.ClientGone
		return nil
	}
	a.x.recordWhole(body)
	return nil
}

// bookWhole books the usage of a whole answer of that many bytes.
func (a *attempt) bookWhole(answer openai.Answer, bytes int) {
	if seen := a.x.resolution.EstimateOutput(&a.x.parsed, bytes); answer.HasUsage {
		a.bookReported(answer.Usage, seen)
	} else {
		a.bookEstimate(seen)
	}
}

// lateWhole returns the failure of a whole answer to a stream that heartbeats have opened. The engines
// of the pool answer in the same form, so the request is not generated again.
func lateWhole() *failure {
	f := formFailure("a whole answer after the answer has begun")
	f.retry = false
	f.err.Message = "The worker sent a whole answer after the stream had begun. Send the request without stream, or ask " +
		"the operator for an engine that streams it."
	return f
}

// relayUnrequestedStream handles an event stream for a request that was not for a stream. begin is its
// beginning. An error as its first event is like an answer with the status of the error.
func (a *attempt) relayUnrequestedStream(resp *http1.Response, begin []byte) *failure {
	events := openai.NewEventReader(io.MultiReader(bytes.NewReader(begin), resp.Body), 0)
	a.watch.startSilence(refusalWait, errIdleTimeout)
	ev, _ := events.Next() // without an event there is no error in it
	if e, ok := openai.ErrorOf(ev.Data); ok {
		return a.engineError(e, ev.Data)
	}
	return formFailure("the worker sent an event stream, but the request was not for a stream")
}

// readWhole reads an answer's body, of at most max_response_bytes. Reading ends early if the body begins like
// no JSON.
func (a *attempt) readWhole(resp *http1.Response, buf *bytes.Buffer, memory *intake.BodyMemory) *failure {
	limit := int64(a.x.in.Snap.File.MaxResponseBytes)
	if resp.ContentLength > limit {
		return a.tooLarge("an answer", int(limit))
	}
	var begin openai.Beginning
	for {
		if buf.Available() == 0 && !growWhole(buf, resp.ContentLength, limit, memory) {
			return a.noAnswerMemory(buf.Len())
		}
		free := buf.AvailableBuffer()
		n, err := resp.Body.Read(free[:cap(free)])
		buf.Write(free[:n])
		switch {
		case int64(buf.Len()) > limit:
			return a.tooLarge("an answer", buf.Len())
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
		case int64(buf.Len()) == resp.ContentLength, begin.IsNoJSON(buf.Bytes()):
			return nil
		}
		a.watch.startSilence(a.x.in.Snap.File.Timeouts.Idle, errIdleTimeout)
	}
}

// growWhole enlarges the full buffer of an answer of at most limit bytes; hint is its Content-Length, or
// negative if unknown. A buffer longer than bodyKept is reserved, together with the one that it replaces while
// both exist. It reports whether there was memory for it.
func growWhole(buf *bytes.Buffer, hint, limit int64, memory *intake.BodyMemory) bool {
	have, before := int64(buf.Cap()), memory.Reserved
	if have < bodyKept {
		have = 0
	}
	want := openai.NextSize(have, hint, limit)
	if want > bodyKept && memory.Reserve(want) != nil {
		return false
	}
	larger := bytes.NewBuffer(make([]byte, 0, want))
	larger.Write(buf.Bytes())
	*buf = *larger
	if before > 0 {
		memory.Return(before)
	}
	return true
}

// tooLarge returns the failure of an answer or an event that exceeds max_response_bytes; bytes is the
// received length. Another worker's answer would be as large. Therefore the worker is not at fault, no
// other worker is tried, and the usage is charged.
func (a *attempt) tooLarge(what string, bytes int) *failure {
	a.bookEstimate(a.x.resolution.EstimateOutput(&a.x.parsed, bytes))
	limit := a.x.in.Snap.File.MaxResponseBytes
	cause := excluded("%s of more than %v, which is max_response_bytes", what, limit)
	return &failure{sent: true, fault: cause, err: &openai.Error{Code: openai.CodeResponseTooLarge, Cause: cause,
		Message: fmt.Sprintf("The worker sent %s of more than %v. Request a shorter answer, or ask the operator to raise "+
			"max_response_bytes.", what, limit)}}
}

// engineError handles an error object inside a 2xx answer like an answer with the status of the
// error.
func (a *attempt) engineError(e openai.EngineError, body []byte) *failure {
	a.keepWords(body)
	f, passes := engineFailure(e, 0, false)
	if !passes {
		return &f
	}
	a.fault = f.fault
	a.answered(time.Now(), f.fault)
	a.passRefusal(&http1.Response{Status: f.status, Header: http.Header{}}, body)
	return nil
}

// answerWhole sends a status and a body of known length. The answer must be held.
func (x *exchange) answerWhole(status int, from http.Header, body []byte) error {
	x.answer.stopBeats()
	x.answer.sendHead(status, func(h http.Header) {
		clientHeader(h, from, x.resolution.Pool, hasRateHeaders(&x.admission))
		set := setInto(h)
		set.set("Content-Type", "application/json")
		set.set("Content-Length", strconv.Itoa(len(body)))
		set.set("X-Request-Duration", strconv.FormatFloat(time.Since(x.in.Start).Seconds(), 'f', 3, 64)+"s")
		x.decisionHeaders(&set)
	})
	return x.answer.write(body, false)
}

// relayRaw copies an answer without parsing it, and flushes after each read if its length is unknown.
// fault is the worker's fault by the status of the answer.
func (a *attempt) relayRaw(resp *http1.Response, fault error) *failure {
	x := a.x
	x.answer.stopBeats() // a heartbeat must not interrupt unparsed bytes
	kept := x.s.buffers.copies.Get().(*[]byte)
	defer x.s.buffers.copies.Put(kept)
	idle := x.in.Snap.File.Timeouts.Idle
	a.watch.extendTotal(x.deadline) // the SDKs stop their clocks at the head
	a.watch.startSilence(idle, errIdleTimeout)
	n, err := resp.Body.Read(*kept)
	a.watch.stopSilence()
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
	}
	a.answered(time.Now(), fault)
	x.answer.sendHead(resp.Status, func(h http.Header) {
		clientHeader(h, resp.Header, x.resolution.Pool, hasRateHeaders(&x.admission))
		if x.in.Dialect == openai.Other {
			a.passedHeader(h, resp.Header)
		}
		if resp.ContentLength >= 0 && resp.Status != http.StatusNoContent && resp.Status != http.StatusNotModified {
			h.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
		}
		set := setInto(h)
		if openai.MediaType(resp.Header.Get("Content-Type")) == "text/event-stream" {
			set.set("X-Accel-Buffering", "no")
		}
		x.decisionHeaders(&set)
	})
	x.parsed.DropBody(&x.in)
	a.ending.result = decisions.OK
	for {
		if n > 0 && x.answer.write((*kept)[:n], resp.ContentLength < 0) != nil {
			a.fault, a.ending.result, x.answer.abort = excluded("%w", errClientGone), decisions.ClientGone, true
			return nil
		}
		if errors.Is(err, io.EOF) {
			x.answer.renewDeadline() // the worker may have been silent for long
			return nil
		}
		if err != nil {
			f := a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
			a.cutRaw(f)
			return nil
		}
		a.watch.startSilence(idle, errIdleTimeout)
		n, err = resp.Body.Read(*kept)
		a.watch.stopSilence()
	}
}

// cutRaw ends an incomplete raw answer by cutting the connection, because an error event cannot be
// inserted into unparsed bytes.
func (a *attempt) cutRaw(f *failure) {
	a.fault, a.x.answer.abort = f.fault, true
	a.ending = endingOf(f.err)
	a.ending.result = decisions.Truncated
	if a.x.clientGone() {
		a.ending.result = decisions.ClientGone
	}
}
