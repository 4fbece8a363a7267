package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/server/intake"
)

// relayAnswer brings a worker's answer to the client. A failure means that the
// client has nothing of it yet.
func relayAnswer(a *attempt, resp *http1.Response) *failure {
	raw := a.x.in.Dialect == openai.Other
	if resp.Status < 200 || resp.Status > 299 && !(raw && resp.Status < 400) { // redirects and 304 are for its client
		return relayRefusal(a, resp)
	}
	kind := openai.MediaType(resp.Header.Get("Content-Type"))
	switch {
	case raw:
		return relayRaw(a, resp, nil)
	case kind == "text/event-stream" && (a.x.in.Dialect == openai.Audio || a.x.in.Dialect == openai.Images):
		return relayRaw(a, resp, nil)
	case kind == "text/event-stream" && !a.x.parsed.Req.Stream:
		return formFailure("the worker sent an event stream, but the request was not for a stream")
	case kind == "text/event-stream":
		return relayStream(a, resp)
	case a.x.in.Dialect == openai.Audio || a.x.in.Dialect == openai.Images:
		return relayRaw(a, resp, nil)
	case kind == "application/json" || kind == "":
		return relayWhole(a, resp)
	}
	return protocolFailure("a 2xx answer of the type %q", kind)
}

const (
	// refusalMax bounds what is read of an error's body: some engines repeat the
	// request in it.
	refusalMax = 1 << 20
	// refusalWait bounds how long an error's body may take after its head.
	refusalWait = 2 * time.Second
)

// relayRefusal handles an answer that is not 2xx.
func relayRefusal(a *attempt, resp *http1.Response) *failure {
	after, asked := retryAfter(resp.Header, time.Now())
	f, passes := statusFailure(resp.Status, after, asked)
	if resp.Status == http.StatusServiceUnavailable && !asked {
		e, _ := openai.ErrorOf(readRefusal(a, resp))
		e.Status = resp.Status
		f, _ = engineFailure(e)
	}
	if f.backoffIfOthers && a.x.in.Dialect == openai.Other {
		f.backoff = 0 // what a path says of one client is nothing against the worker
	}
	if passes && a.x.in.Dialect == openai.Other {
		return passRaw(a, resp, f.fault)
	}
	if !passes {
		return &f
	}
	body := readRefusal(a, resp)
	a.fault = f.fault
	a.answered(time.Now(), f.fault)
	passRefusal(a, resp, body)
	a.ending.cause = f.fault.Error()
	return nil
}

// passRaw gives the client a 4xx of a path that is passed untouched, as it is.
func passRaw(a *attempt, resp *http1.Response, fault error) *failure {
	f := relayRaw(a, resp, fault)
	if f == nil && a.fault == nil {
		a.fault, a.ending.result = fault, decisions.Refused
	}
	return f
}

// codeWorkerRefused stands where an engine refuses a request without a code.
const codeWorkerRefused openai.Code = "worker_refused"

// passRefusal gives the client a worker's own 4xx, as it is when its form is
// the dialect's, else in that form.
func passRefusal(a *attempt, resp *http1.Response, body []byte) {
	x := a.x
	a.used.sent = true // so that it counts, and its x-ratelimit headers hold
	if a.m.Worker.RepeatsKey(body) {
		body = nil // an engine that repeats what it was sent must not tell the gateway's own key
	}
	e := &openai.Error{Code: codeWorkerRefused, Status: resp.Status, Message: "The worker refused the request."}
	if resp.Status == http.StatusMethodNotAllowed && x.in.Kind == intake.Beside { // it takes the action for a response's id
		e, body = notServed(x), nil
	}
	seen, ok := openai.ErrorOf(body)
	if ok {
		e.Message, e.Param = seen.Message, seen.Param
	}
	if seen.Code != "" {
		e.Code = openai.Code(seen.Code)
	}
	code := codeWorkerRefused // an engine's own words are not for the log
	if overflow, is := seen.Overflow(x.in.Dialect); ok && is {
		overflow.Status = resp.Status
		e, code, body = overflow, overflow.Code, overflow.Into(body, x.in.Dialect)
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

// refusedAddition tells which field that was added the engine may have refused:
// one that its error names. An engine that repeats the request in its errors names
// all of them, so only an answer to the request without the field proves it, and of
// two that were left out one after the other it proves the last. The body is put
// back if the error was something else.
func refusedAddition(a *attempt, resp *http1.Response) addition {
	if len(a.addsUsage)+len(a.addsPriority) == 0 || resp.Status != http.StatusBadRequest && resp.Status != http.StatusUnprocessableEntity {
		return nothingAdded
	}
	body := readRefusal(a, resp)
	named := func(name string) bool { return bytes.Contains(body, []byte(name)) }
	var refused addition
	switch {
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

// readRefusal reads an error's body, as far as it comes soon: no client waits for
// the rest of an error.
func readRefusal(a *attempt, resp *http1.Response) []byte {
	a.watch.await(refusalWait, errIdleTimeout)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, refusalMax)) //nolint:errcheck // what came is what there is
	return body
}

// readCloser reads from one and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// relayWhole relays an answer that is one JSON object. It is read to its end
// first, so that a worker that breaks off costs the client nothing.
func relayWhole(a *attempt, resp *http1.Response) *failure {
	buf := a.x.s.scratch.body()
	defer a.x.s.scratch.putBody(buf)
	memory := a.x.s.intake.Memory(a.x.caller.Tenant)
	defer memory.Release()
	if f := readWhole(a, resp, buf, &memory); f != nil {
		return f
	}
	answer := openai.ReadAnswer(a.x.in.Dialect, buf.Bytes())
	switch {
	case !answer.Valid:
		return protocolFailure("a 2xx answer of %d bytes that is no JSON object", buf.Len())
	case answer.Err != nil:
		return engineError(a, *answer.Err, buf.Bytes())
	case answer.Hollow && a.usesEngine:
		return protocolFailure("a 2xx answer of %d bytes that is none of its dialect", buf.Len())
	case answer.Aborted && a.usesEngine:
		return abortFailure()
	}
	if !a.x.answer.hold() {
		return formFailure("a whole answer after the answer has begun")
	}
	a.received()
	at := time.Now()
	if a.x.parsed.Req.Stream {
		at = time.Time{}
	}
	a.answered(at, nil)
	if seen := a.x.resolution.Unreported(&a.x.parsed, buf.Len()); answer.HasUsage {
		a.account(answer.Usage, seen)
	} else {
		a.estimate(seen)
	}
	a.ending.result = decisions.OK
	a.remember(answer.ID)
	if err := a.x.answerWhole(resp.Status, resp.Header, buf.Bytes()); err != nil {
		a.fault, a.ending.result = excluded("%w", errClientGone), decisions.ClientGone
	}
	return nil
}

// claimed bounds the memory that an answer gets for its Content-Length alone, since a
// length costs nothing to claim, and without a reservation.
const claimed = 1 << 20

// readWhole reads an answer's body within max_response_bytes. What is longer than
// claimed is reserved from memory.
func readWhole(a *attempt, resp *http1.Response, buf *bytes.Buffer, memory *intake.BodyMemory) *failure {
	most := int64(a.x.in.Snap.File.MaxResponseBytes)
	if resp.ContentLength > most {
		return tooLarge(a, "an answer", int(most))
	}
	if resp.ContentLength > 0 {
		buf.Grow(int(min(resp.ContentLength, claimed)) + bytes.MinRead)
	}
	for {
		if buf.Available() < bytes.MinRead {
			more := max(bytes.MinRead, buf.Len()) // doubles
			before := memory.Held
			if size := int64(buf.Len() + more); size > claimed && memory.Reserve(size) != nil {
				return a.noAnswerMemory(buf.Len())
			}
			buf.Grow(more)
			if before > 0 {
				memory.Return(before)
			}
		}
		free := buf.AvailableBuffer()
		n, err := resp.Body.Read(free[:cap(free)])
		buf.Write(free[:n])
		switch {
		case int64(buf.Len()) > most:
			return tooLarge(a, "an answer", buf.Len())
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
		case int64(buf.Len()) == resp.ContentLength:
			return nil
		}
		a.watch.await(a.x.in.Snap.File.Timeouts.Idle, errIdleTimeout)
	}
}

// tooLarge is the failure of an answer, or of an event, that is longer than
// max_response_bytes and of which so many bytes have come. Another worker's would be as
// large, and it may be what the request asked for: no worker is at fault, and the work
// is paid for.
func tooLarge(a *attempt, what string, bytes int) *failure {
	a.estimate(a.x.resolution.Unreported(&a.x.parsed, bytes))
	most := a.x.in.Snap.File.MaxResponseBytes
	cause := excluded("%s of more than %v, which is max_response_bytes", what, most)
	return &failure{sent: true, fault: cause, err: &openai.Error{Code: openai.CodeResponseTooLarge, Cause: cause,
		Message: fmt.Sprintf("The worker sent %s of more than %v. Ask for less at once, or have the operator raise max_response_bytes.", what, most)}}
}

// engineError handles an error object inside a 2xx answer: the status that it
// should have had decides.
func engineError(a *attempt, e openai.EngineError, body []byte) *failure {
	f, passes := engineFailure(e)
	if !passes {
		return &f
	}
	a.fault = f.fault
	a.answered(time.Now(), f.fault)
	passRefusal(a, &http1.Response{Status: e.Status, Header: http.Header{}}, body)
	return nil
}

// answerWhole sends a status and a body of known length, on an answer that is
// held.
func (x *exchange) answerWhole(status int, from http.Header, body []byte) error {
	x.answer.stopBeats()
	x.answer.head(status, func(h http.Header) {
		clientHeader(x, h, from)
		set := setInto(h)
		set.set("Content-Type", "application/json")
		set.set("Content-Length", strconv.Itoa(len(body)))
		set.set("X-Request-Duration", strconv.FormatFloat(time.Since(x.in.Start).Seconds(), 'f', 3, 64)+"s")
		x.decisionHeaders(&set)
	})
	return x.answer.write(body, false)
}

// relayRaw copies an answer that is not looked into, and flushes what has come
// whenever the worker pauses. fault is what its status says of the worker.
func relayRaw(a *attempt, resp *http1.Response, fault error) *failure {
	x := a.x
	x.answer.stopBeats() // there is no place for a comment in bytes that are not looked into
	kept := x.s.scratch.copies.Get().(*[]byte)
	defer x.s.scratch.copies.Put(kept)
	idle := x.in.Snap.File.Timeouts.Idle
	a.watch.extend(x.deadline) // the SDKs stop their clocks at the head
	a.watch.await(idle, errIdleTimeout)
	n, err := resp.Body.Read(*kept)
	a.watch.rest()
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
	}
	a.answered(time.Now(), fault)
	x.answer.head(resp.Status, func(h http.Header) {
		clientHeader(x, h, resp.Header)
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
			return nil
		}
		if err != nil {
			f := a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
			cutRaw(a, f)
			return nil
		}
		a.watch.await(idle, errIdleTimeout)
		n, err = resp.Body.Read(*kept)
		a.watch.rest()
	}
}

// cutRaw ends a raw answer whose rest is missing: by a broken connection, since
// its bytes have no place for an error.
func cutRaw(a *attempt, f *failure) {
	a.fault, a.x.answer.abort = f.fault, true
	a.ending = endingOf(f.err)
	a.ending.result = decisions.Truncated
	if a.x.gone() {
		a.ending.result = decisions.ClientGone
	}
}
