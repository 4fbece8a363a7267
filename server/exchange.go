package server

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"tierway/decisions"
	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/tiers"
)

// exchange is one request and its answer. One goroutine owns it, but for the
// answer, which its heartbeat timer shares.
type exchange struct {
	s    *Server
	snap *snapshot
	w    gin.ResponseWriter
	r    *http.Request

	before, after *exchange // of its share of the requests in flight, which guards them

	start    time.Time
	deadline time.Time // of the whole exchange
	patience time.Time // until then the client waits for a whole answer, or a stream's first event
	readAt   time.Time // when the whole request was there; zero until then
	tooSlow  bool      // the body's deadline struck, which net/http takes for a client that left

	dialect     openai.Dialect // of the route; Other of what is passed through
	shape       openai.Dialect // in whose form the client reads errors
	workerPath  string
	id          string // the :id of the path
	prefixed    bool
	prefixClass tenants.Class

	caller  *tenants.Caller
	keyless bool // nothing proves who sent it
	class   tenants.Class
	req     *openai.Request
	upload  *upload // its body, if that streams; else nil
	memory  bodyMemory
	prompt  *promptFacts // nil before it was read

	rawTokens int64 // of the prompt, estimated by its characters alone
	verdict   tiers.Verdict
	seen      tiers.Evidence // by which it was classified, if records are kept
	pool      *pool
	facts     routing.Request
	tried     []*routing.Worker
	ticket    queue.Ticket
	turn      turn
	failed    []*attempt // those that failed
	salt      string     // of the engine's prefix cache; "" for the one that all share

	grant     *store.Grant // what charge has reserved; nil for nothing
	allowance tenants.Verdict
	inLedger  bool // a request that the ledger has a row for
	sent      bool // a worker has the whole request
	admitted  time.Time

	explanation *Explanation // of a request that is explained and not sent; nil for all others
	draft       *draft       // the configuration that it is explained under; nil: the one in force
	trace       telemetry.TraceContext

	answer answer
	usage  openai.Usage
	placed placed // the last worker that it was given
	d      *decisions.Decision
}

// begin opens an exchange. What it counts, end gives back.
func (s *Server) begin(w gin.ResponseWriter, r *http.Request, d openai.Dialect) *exchange {
	x := &exchange{s: s, snap: s.snapshot.Load(), w: w, r: r, start: time.Now(), dialect: d, shape: d}
	if x.explanation, _ = r.Context().Value(explainKey{}).(*Explanation); x.explanation != nil {
		x.explaining()
	} else {
		s.inflight.Add(1)
		s.flying.add(x)
		s.metrics.Started.Inc()
	}
	x.d = &decisions.Decision{SchemaVersion: decisions.SchemaVersion, Time: x.start, Method: knownMethod(r.Method),
		RequestID: x.requestID(), Generation: x.snap.generation, Dialect: d.String(), Result: decisions.Refused}
	x.answer.init(w, r, x.snap.file.Timeouts.ClientStall)
	if s.draining.Load() {
		w.Header()["Connection"] = []string{"close"}
	}
	id := []string{x.d.RequestID}
	w.Header()["X-Request-Id"] = id
	if d == openai.Messages {
		w.Header()["Request-Id"] = id // where Anthropic's SDKs look for it
	}
	return x
}

// run walks the exchange through its steps, answers with the error of the step
// that failed, and ends it whatever happens.
func (x *exchange) run(steps func() error) {
	defer x.end()
	defer x.recover()
	err := x.checkLoop()
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
	x.d.Result = decisions.Failed
	x.s.panicked(p, slog.String("request_id", x.d.RequestID))
	x.answer.stopBeats()
	if x.answer.held() {
		x.fail(&openai.Error{Code: openai.CodeInternalError, Message: "The gateway failed to handle the request. Quote the request id to its operator."})
		return
	}
	x.d.Code = string(openai.CodeInternalError)
	x.d.Result = decisions.Truncated
	x.answer.abort = true
}

// end gives back what begin took, and writes the request's one line.
func (x *exchange) end() {
	x.answer.stopBeats()
	x.memory.release()
	x.leaveBody()
	if x.explanation != nil {
		x.explained()
		return
	}
	defer x.s.inflight.Add(-1) // whatever the rest does: a drain waits for it
	defer x.s.flying.remove(x)
	// One of them must not keep another from giving back what it holds.
	x.s.keepRunning("recording a request", x.record)
	x.s.keepRunning("settling a request", x.settle)
	x.s.keepRunning("leaving the queue", x.leaveQueue)
	if x.prompt != nil {
		x.s.scratch.putPrompt(x.prompt)
		x.prompt = nil
	}
	if x.answer.abort {
		panic(http.ErrAbortHandler) // net/http cuts the connection without a clean end
	}
}

// fail answers with an error in the client's dialect and says how the request
// ended.
func (x *exchange) fail(err error) {
	e := x.translate(err)
	if x.explanation != nil {
		x.refused(e)
		return
	}
	x.d.Code = string(e.Code)
	if e.Cause != nil {
		x.d.Cause = e.Cause.Error()
	}
	if x.gone() {
		if x.sent {
			x.estimate(0)
		}
		x.d.Result, x.d.Code, x.answer.abort = decisions.ClientGone, "", true
		return
	}
	x.writeError(e)
}

// gone tells whether the client has left.
func (x *exchange) gone() bool {
	if x.upload != nil && x.r.ProtoMajor < 2 && !x.upload.isWhole() {
		return x.upload.left() // net/http cancels when a read fails, for whatever reason
	}
	cause := context.Cause(x.r.Context())
	return cause != nil && !x.tooSlow && !errors.Is(cause, errDrainCut)
}

// requestID keeps a sane id of the client's, else makes one.
func (x *exchange) requestID() string {
	if id := x.r.Header.Get("X-Request-Id"); saneID(id) {
		return strings.Clone(id) // the header's strings lie in one block of memory, and records live on
	}
	return newUUID(x.s.rand(), x.s.rand())
}

// newUUID returns a random UUID of version 4 (RFC 9562). Servers built on
// Starlette commonly refuse a request whose X-Request-ID is no UUID.
func newUUID(high, low uint64) string { return formatUUID(high, low, 4) }

// formatUUID writes 128 bits as a UUID of a version.
func formatUUID(high, low uint64, version byte) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	out := make([]byte, 0, 36)
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, hexDigits[c>>4], hexDigits[c&0x0f])
	}
	return string(out)
}

const hexDigits = "0123456789abcdef"

// isUUID tells whether an id has the form of a UUID.
func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if id[i] != '-' {
				return false
			}
		} else if !strings.ContainsRune(hexDigits+"ABCDEF", rune(id[i])) {
			return false
		}
	}
	return true
}

// saneID tells whether an id is safe to log and to echo.
func saneID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
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
