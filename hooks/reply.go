package hooks

import (
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"tierway/openai"
)

// Result is the end of a call.
type Result uint8

// The results.
const (
	Allowed     Result = iota
	Rejected           // the service rejects the request
	Transformed        // the service has changed the request
	TimedOut           // no answer in time
	Failed             // no connection, or an answer that is no answer of a hook
	Refused            // the service changes what it may not change; the gateway refuses the change
	Busy               // MaxInflight calls are in flight; the service was not called
	Open               // the breaker is open; the service was not called
	Cancelled          // the client left
)

// results are the words of the results, in their order.
var results = [...]string{"allowed", "rejected", "transformed", "timeout", "error", "refused", "busy", "open",
	"cancelled"}

// String returns the word of the result, for metrics, records and headers.
func (r Result) String() string { return results[r] }

// Failure reports whether the service gave no usable answer, so that Config.OnError applies.
func (r Result) Failure() bool { return r >= TimedOut && r <= Open }

// Results returns the words of all results.
func Results() []string { return results[:] }

// Request is what a service learns about a request.
type Request struct {
	ID     string
	Tenant string
	Path   string // escaped
	Model  string // as the client wrote it
	Header http.Header
	Trace  http.Header // W3C trace context in printable ASCII; may be empty
	Body   []byte
	Memory openai.Memory // for the answer
}

// Header is a change of a request header by a service. An empty value removes the header.
type Header struct{ Name, Value string }

// Reply is the answer of a service, or the reason why there is none.
type Reply struct {
	Result  Result
	Reason  string   // why the service rejects the request; printable, at most MaxReason characters
	Body    []byte   // the changed body, whose length is reserved in Request.Memory; nil: unchanged
	Headers []Header // changes of headers of ChangeableHeaders
	Ignored int      // changes of other headers
	Cause   string   // of a failure; repeats no text of the request

	Limited    bool          // the service rejects the request for a rate limit
	RetryAfter time.Duration // of a limited request; 0: the service states none

	excluded bool // the service is not at fault for the failure
}

// MaxReason is the largest number of characters of a reason.
const MaxReason = 500

// reasonOf returns a text of a service as a reason: one line of printable characters.
func reasonOf(text string) string {
	text = text[:min(len(text), 16*MaxReason)]
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	words := []rune(strings.Join(strings.Fields(text), " "))
	return string(words[:min(len(words), MaxReason)])
}

// ChangeableHeaders returns the request headers that a service may change: those by which the gateway chooses the tier,
// the priority class and the session of a request.
func ChangeableHeaders() []string {
	return []string{"X-Model-Tier", "X-Request-Priority", "X-Session-Id"}
}

// sentHeaders are the client's headers that an ext_proc service receives.
var sentHeaders = [...]string{"X-Model-Tier", "X-Request-Priority", "X-Session-Id", "Session-Id", "User-Agent"}

// protectedHeaders are the headers that say who sends a request and where to. A service that changes one of them would
// believe that the gateway acts on it.
var protectedHeaders = map[string]bool{"Authorization": true, "X-Api-Key": true, "Api-Key": true, "X-Tenant": true,
	"X-Tenant-Id": true, "Host": true, ":authority": true, ":method": true, ":path": true, ":scheme": true}

// maxHeaderValue is the longest value of a changed header in bytes.
const maxHeaderValue = 256

// removeHeader adds the removal of a header. Others than those of ChangeableHeaders are counted: credentials, for
// example, reach no engine anyway.
func (r *Reply) removeHeader(name string) {
	if name = http.CanonicalHeaderKey(name); slices.Contains(ChangeableHeaders(), name) {
		r.Headers = append(r.Headers, Header{Name: name})
	} else {
		r.Ignored++
	}
}

// setHeader adds a change of a header, or refuses or counts it.
func (r *Reply) setHeader(name, value string) {
	if !strings.HasPrefix(name, ":") {
		name = http.CanonicalHeaderKey(name)
	}
	switch {
	case protectedHeaders[name]:
		r.refuse("it changes the header " + name + ", which no hook may change")
	case name == "Content-Length": // set by services that change the body
	case !slices.Contains(ChangeableHeaders(), name):
		r.Ignored++
	case len(value) > maxHeaderValue || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
		r.refuse("it sets the header " + name + " to a value that is too long or not in printable ASCII")
	default:
		r.Headers = append(r.Headers, Header{name, value})
	}
}

func (r *Reply) refuse(cause string) { r.Result, r.Cause = Refused, cause }

func failed(cause string) Reply { return Reply{Result: Failed, Cause: cause} }
