package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/pairing"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
)

// exchange is one request with the results of its stages. One goroutine owns it, except for the answer,
// which the heartbeat timer shares.
type exchange struct {
	s *Proxy

	before, after *exchange // links of an inflightShard, which guards them
	current       atomic.Pointer[attempt]

	in             intake.Inbound
	id             [1]string // the request id, as a value of headers
	answer         answer
	trace          telemetry.TraceContext
	caller         intake.Caller     // result of authenticate
	parsed         intake.Parsed     // result of Read
	hooks          hookCalls         // result of runHooks
	resolution     intake.Resolution // result of Resolve
	admission      intake.Admission  // result of charge
	deadline       time.Time         // of the whole exchange
	patience       time.Time         // how long the client waits for a whole answer, or for a stream's first event
	overhead       time.Duration     // from ReadAt to the end of gather
	facts          routing.Request   // result of gather
	wait           wait              // state of enterQueue
	dispatch       dispatch          // state of forward
	cached         *cached           // state of answerFromCache; nil without a response cache
	rest           *stream           // the rest of a stream, which is relayed after the handler; nil if there is none
	own            bool              // a request of the gateway itself, which is sent once
	repeated       bool              // a request of Repeat
	collectsLabels bool              // a client's request, which may be explored, repeated and labelled
	sample         *pairing.Sample   // the request, if it is drawn to be repeated
	inLedger       bool              // the ledger has a row for the request
	explained      bool              // the request is explained, not served
	ending         ending
}

// ending is the result of a request, with its error.
type ending struct {
	result decisions.Result
	code   string // code of the error that the client receives; empty without an error
	cause  string // cause of that error, for the log
}

// endingOf returns the ending of a request that is answered with an error.
func endingOf(e *openai.Error) ending {
	end := ending{result: decisions.Refused, code: string(e.Code)}
	if e.HTTPStatus() >= http.StatusInternalServerError {
		end.result = decisions.Failed
	}
	if e.Cause != nil {
		end.cause = e.Cause.Error()
	}
	return end
}

// newExchange opens an exchange under a configuration.
func (px *Proxy) newExchange(snap *control.Snapshot, w responseWriter, in intake.Inbound) *exchange {
	x := &exchange{s: px, in: in, ending: ending{result: decisions.Refused}}
	x.dispatch.attempts = x.dispatch.attemptArray[:0]
	x.answer.init(w, in.HTTP, snap.File.Timeouts.ClientStall)
	x.in.Begin(snap, px.rand, x.answer.header(), &x.answer.control)
	x.id[0] = x.in.RequestID
	return x
}

// begin opens the exchange of a request that is served, and counts it as in flight until end.
func (px *Proxy) begin(w responseWriter, in intake.Inbound) *exchange {
	x := px.newExchange(px.control.Snapshot(), w, in)
	px.inflightCount.Add(1)
	px.inflight.add(x)
	px.metrics.Started.Inc()
	h := x.answer.header()
	if px.draining.Load() {
		h["Connection"] = []string{"close"}
	}
	h["X-Request-Id"] = x.id[:]
	if x.in.Shape == openai.Messages {
		h["Request-Id"] = x.id[:] // where Anthropic's SDKs look for it
	}
	return x
}

// run authenticates the request and calls its stages. If a stage fails, run answers with its error. It
// ends the exchange, also after a panic, or leaves the end to relayRest.
func (x *exchange) run(stages func() error) {
	defer x.endOrContinue()
	defer x.recover()
	err := x.authenticate()
	if err == nil {
		err = stages()
	}
	if err != nil {
		x.fail(err)
	}
	if x.rest == nil {
		x.setEnding(err)
	}
}

// setEnding takes over the ending of the last attempt, unless the stages have returned err, and keeps the answer for
// the response cache.
func (x *exchange) setEnding(err error) {
	if n := len(x.dispatch.attempts); n > 0 && err == nil {
		x.ending = x.dispatch.attempts[n-1].ending
	}
	if x.cached != nil {
		x.cached.keepAnswer(x.ending.result, &x.dispatch, &x.resolution)
	}
}

// endOrContinue ends the exchange, or lets relayRest end it after the handler.
func (x *exchange) endOrContinue() {
	if x.rest == nil {
		x.end()
		return
	}
	x.answer.continueWith(x.relayRest)
}

// relayRest relays the rest of a stream and ends the exchange. It is called after the handler, so that an idle stream
// waits with half of the stack that the stages need (docs/operations.md, Memory of open streams).
func (x *exchange) relayRest() {
	s := x.rest
	x.rest = nil
	defer x.end()
	defer x.recover()
	defer s.releaseUnlessContinued()
	f := s.runToEnd()
	s.attempt.releaseServed(f, s.cause() != nil)
	x.setEnding(nil)
}

func (x *exchange) authenticate() (err error) {
	if !x.own {
		x.caller, err = x.s.intake.Authenticate(&x.in)
	}
	if err == nil {
		x.trace = x.s.traces.Begin(x.in.HTTP.Header, true, x.in.Start)
	}
	x.inLedger = x.caller.Disabled || x.in.Kind != intake.Models // a list of models has no usage
	return err
}

// recover handles a panic. It answers with an internal error while nothing is sent; otherwise it cuts
// the connection, so that the answer does not look complete.
func (x *exchange) recover() {
	p := recover()
	if p == nil {
		return
	}
	x.s.control.Recoverer.Panicked(p, slog.String("request_id", x.in.RequestID))
	if s := x.rest; s != nil {
		x.rest = nil
		s.close()
		s.releaseUnlessContinued()
	}
	x.answer.stopBeats()
	if x.answer.held() {
		x.fail(&openai.Error{Code: openai.CodeInternalError, Message: "The gateway failed to handle the request. Quote the " +
			"request id to its operator."})
		return
	}
	x.ending = ending{result: decisions.Truncated, code: string(openai.CodeInternalError)}
	x.answer.abort = true
}

// end publishes the record of the request, settles its usage and releases its resources.
func (x *exchange) end() {
	x.answer.stopBeats()
	defer x.s.inflightCount.Add(-1) // deferred: a drain waits for it, also after a panic
	defer x.s.inflight.remove(x)
	defer x.parsed.CloseBody(&x.in)
	// A panic in one step must not prevent the next.
	x.s.control.Recoverer.Run("recording a request", x.finish)
	x.s.control.Recoverer.Run("leaving the queue", x.leaveQueue)
	x.endSample()
	x.s.intake.DropPrompt(&x.parsed)
	if x.answer.abort && !x.own && !x.repeated {
		panic(http.ErrAbortHandler) // net/http cuts the connection without a clean end
	}
}

// finish settles the usage of the request, also if its record cannot be made, and publishes the record.
func (x *exchange) finish() {
	r := x.settle(x.dispatch.settlement(x.cached))
	defer x.recordLearning(r.Decision)
	if x.trace.Sampled { // apart, so that a panic costs no row of the ledger
		x.s.control.Recoverer.Run("making spans", func() {
			r.spans = &endedSpans{x.trace, x.dispatch.spans(r.Decision, x.hooks.spans, x.cached)}
		})
	}
	x.s.records.ring.Add(r)
}

// settle returns the record of the request, and settles its usage: the record may wait for room.
func (x *exchange) settle(used settlement) record {
	defer settleUsage(x.admission.Grant, x.resolution.Pool, used)
	return x.record(x.buildDecision(used), used)
}

// fail answers with an error in the client's dialect, and sets the ending of the request.
func (x *exchange) fail(err error) {
	e := translate(err)
	x.ending = endingOf(e)
	if x.clientGone() {
		if x.dispatch.settlement(x.cached).sent {
			x.dispatch.attempts[len(x.dispatch.attempts)-1].bookEstimate(0)
		}
		x.ending.result, x.ending.code, x.answer.abort = decisions.ClientGone, "", true
		return
	}
	x.writeError(e)
}

func (x *exchange) clientGone() bool {
	if x.parsed.Upload != nil && x.in.HTTP.ProtoMajor < 2 && !x.parsed.Upload.IsWhole() {
		return x.parsed.Upload.ClientLeft() // net/http cancels after any failed read, even a timeout
	}
	cause := context.Cause(x.in.HTTP.Context())
	return cause != nil && !x.in.TooSlow && !errors.Is(cause, ErrDrainCut)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// msSince returns the milliseconds from start to t, or 0 if t is zero.
func msSince(start, t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return ms(t.Sub(start))
}
