package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tenants"
)

// exchange is one request on its way: what each stage has made of it so far. One
// goroutine owns it, but for the answer, which its heartbeat timer shares.
type exchange struct {
	s    *Proxy
	snap *control.Snapshot // the configuration that the request keeps to its end

	before, after *exchange // of its share of the requests in flight, which guards them

	in         inbound
	answer     answer
	caller     caller        // of authenticate
	parsed     parsed        // of read
	resolver   resolver      // for resolve and degrade
	resolution resolution    // of resolve
	admission  admission     // of charge
	deadline   time.Time     // of the whole exchange
	patience   time.Time     // until then the client waits for a whole answer, or a stream's first event
	overhead   time.Duration // from the whole request to the end of gather
	facts      routing.Request
	wait       wait // of enterQueue
	dispatch   dispatch
	settlement settlement
	ending     ending
}

// inbound is a client's request as its route reads it.
type inbound struct {
	r *http.Request

	pattern     string         // of the route; routeOther without one
	kind        routeKind      // of the route
	counts      bool           // the route answers with the length of a prompt
	dialect     openai.Dialect // of the route; Other of what is passed through
	shape       openai.Dialect // in whose form the client reads errors
	workerPath  string
	id          string // the :id of the path
	prefixed    bool
	prefixClass tenants.Class

	requestID string
	start     time.Time
	readAt    time.Time // when the whole request was there; zero until then
	tooSlow   bool      // the body's deadline struck, which net/http takes for a client that left
	memory    control.BodyMemory
}

// caller is who sent a request.
type caller struct {
	*tenants.Caller      // nil: nobody that is known
	disabled        bool // its tenant is
	keyless         bool // nothing proves who sent it
	inLedger        bool // the ledger has a row for its request
	trace           telemetry.TraceContext
}

// settlement is what a request has used.
type settlement struct {
	x         *exchange
	usage     openai.Usage
	estimated bool // no engine has reported it, or not all of it
	sent      bool // a worker has the whole request
}

// ending is how a request ended.
type ending struct {
	result decisions.Result
	code   string // of the error that its client was sent
	cause  string // of that error, for the log
}

// newExchange opens an exchange under a configuration.
func (px *Proxy) newExchange(snap *control.Snapshot, w responseWriter, in inbound) *exchange {
	x := &exchange{s: px, snap: snap, in: in, ending: ending{result: decisions.Refused}}
	x.parsed.in = &x.in
	x.dispatch.x, x.wait.x, x.admission.x, x.settlement.x = x, x, x, x
	x.dispatch.attempts = x.dispatch.first[:0]
	x.resolver = resolver{s: px, snap: snap, in: &x.in, caller: &x.caller, parsed: &x.parsed}
	x.in.start = time.Now()
	x.in.requestID = control.RequestID(in.r.Header, px.rand)
	x.answer.init(w, in.r, snap.File.Timeouts.ClientStall)
	return x
}

// begin opens the exchange of a request that is served. What it counts, end gives back.
func (px *Proxy) begin(w responseWriter, in inbound) *exchange {
	x := px.newExchange(px.control.Snapshot(), w, in)
	px.inflight.Add(1)
	px.flying.add(x)
	px.metrics.Started.Inc()
	h := x.answer.header()
	if px.draining.Load() {
		h["Connection"] = []string{"close"}
	}
	id := []string{x.in.requestID}
	h["X-Request-Id"] = id
	if x.in.shape == openai.Messages {
		h["Request-Id"] = id // where Anthropic's SDKs look for it
	}
	return x
}

// since is a moment as a record has it: in milliseconds from the request's
// beginning.
func (in *inbound) since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return ms(t.Sub(in.start))
}

// run walks the exchange through its steps, answers with the error of the step
// that failed, and ends it whatever happens.
func (x *exchange) run(steps func() error) {
	defer x.end()
	defer x.recover()
	err := checkLoop(x.in.r.Header, x.s.name)
	if err == nil {
		err = steps()
	}
	if err != nil {
		x.fail(err)
	}
}

// recover turns a panic into an internal error: a proper one while nothing was
// sent, else a cut connection, never a clean end.
func (x *exchange) recover() {
	p := recover()
	if p == nil {
		return
	}
	x.ending.result = decisions.Failed
	x.s.control.Recoverer.Panicked(p, slog.String("request_id", x.in.requestID))
	x.answer.stopBeats()
	if x.answer.held() {
		x.fail(&openai.Error{Code: openai.CodeInternalError, Message: "The gateway failed to handle the request. Quote the request id to its operator."})
		return
	}
	x.ending.code = string(openai.CodeInternalError)
	x.ending.result = decisions.Truncated
	x.answer.abort = true
}

// end gives back what begin took, and writes the request's one line.
func (x *exchange) end() {
	x.answer.stopBeats()
	x.in.memory.Release()
	closeBody(x)
	defer x.s.inflight.Add(-1) // whatever the rest does: a drain waits for it
	defer x.s.flying.remove(x)
	// One of them must not keep another from giving back what it holds.
	x.s.control.Recoverer.Run("recording a request", x.finish)
	x.s.control.Recoverer.Run("leaving the queue", x.wait.leaveQueue)
	x.dropPrompt()
	if x.answer.abort {
		panic(http.ErrAbortHandler) // net/http cuts the connection without a clean end
	}
}

// finish makes the request's record, ends its spans and settles it. None of them keeps
// another from its end.
func (x *exchange) finish() {
	d := new(decisions.Decision)
	defer x.settlement.settle(d)
	buildDecision(x, d)
	defer exportTrace(x, d)
	publishDecision(x, d)
}

// dropPrompt gives the buffers of the request's prompt back.
func (x *exchange) dropPrompt() {
	if x.parsed.prompt != nil {
		x.s.scratch.putPrompt(x.parsed.prompt)
		x.parsed.prompt = nil
	}
}

// fail answers with an error in the client's dialect and says how the request
// ended.
func (x *exchange) fail(err error) {
	e := translate(err)
	x.ending.code = string(e.Code)
	if e.Cause != nil {
		x.ending.cause = e.Cause.Error()
	}
	if x.gone() {
		if x.settlement.sent {
			x.settlement.estimate(0)
		}
		x.ending.result, x.ending.code, x.answer.abort = decisions.ClientGone, "", true
		return
	}
	x.writeError(e)
}

// gone tells whether the client has left.
func (x *exchange) gone() bool {
	if x.parsed.upload != nil && x.in.r.ProtoMajor < 2 && !x.parsed.upload.isWhole() {
		return x.parsed.upload.left() // net/http cancels when a read fails, for whatever reason
	}
	cause := context.Cause(x.in.r.Context())
	return cause != nil && !x.in.tooSlow && !errors.Is(cause, ErrDrainCut)
}

// knownMethod bounds what a client can put into a log's method.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions:
		return m
	}
	return "OTHER"
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func formatMs(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
