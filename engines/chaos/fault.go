package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. "After" means after Fault.After events of a stream. Of other answers half is
// sent first, unless After is 0; then nothing is sent. A stream that ends earlier has no fault.
const (
	Reset     Kind = "reset"      // the connection is reset, before or after the header
	Close     Kind = "close"      // the connection is closed without a proper end
	Hang      Kind = "hang"       // silence until the client leaves
	Slow      Kind = "slow"       // the first byte waits Fault.Delay
	Stale     Kind = "stale"      // a kept connection takes the request and closes without an answer; new ones answer
	Garbage   Kind = "garbage"    // bytes that are not HTTP
	Truncate  Kind = "truncate"   // a clean end of the body, too early
	NoDone    Kind = "no_done"    // finish_reason is sent, [DONE] is not
	CloseEach Kind = "close_each" // the connection closes after each stream despite keep-alive (llama.cpp)

	ErrorFirst Kind = "error_first" // status 200, then an error as first event, in Fault.Form
	ErrorEvent Kind = "error_event" // an error after events, in Fault.Form
	Malformed  Kind = "malformed"   // one event's JSON is cut in half, the stream goes on

	Status    Kind = "status"     // Fault.Status with Fault.RetryAfter, Fault.Body and Fault.ContentType
	Redirect  Kind = "redirect"   // 302
	HTML      Kind = "html"       // 200 with text/html
	JSONError Kind = "json_error" // 200 with an error object as body
	Empty     Kind = "empty"      // 200 without a body
	Reject    Kind = "reject"     // 400, or Fault.Status, for bodies with Fault.Field; the error names the field
	Endless   Kind = "endless"    // an answer that never ends

	Merge     Kind = "merge"      // Fault.Every tokens in one event
	Batch     Kind = "batch"      // Fault.Every events in one write
	Bytewise  Kind = "bytewise"   // every byte in its own write
	CRLF      Kind = "crlf"       // lines end in CRLF
	Comments  Kind = "comments"   // a comment before every event
	Ping      Kind = "ping"       // an event named ping, with data, before every event
	Huge      Kind = "huge"       // one event with Fault.Size extra bytes, after
	NoUsage   Kind = "no_usage"   // usage is left out
	NullError Kind = "null_error" // "error": null in every object
	Length    Kind = "length"     // Content-Length is wrong by Fault.Size
	Gzip      Kind = "gzip"       // the body is compressed without being requested
)

// kindInfo states where a kind acts.
type kindInfo struct {
	replaces bool // instead of the inner handler's answer
	at       bool // at the start with After 0, otherwise within the answer
}

// faultKinds is immutable.
var faultKinds = map[Kind]kindInfo{
	Reset: {at: true}, Close: {at: true}, Hang: {at: true},
	Slow: {replaces: true}, Stale: {replaces: true}, Garbage: {replaces: true},
	Truncate: {}, NoDone: {}, CloseEach: {},
	ErrorFirst: {replaces: true}, ErrorEvent: {}, Malformed: {},
	Status: {replaces: true}, Redirect: {replaces: true}, HTML: {replaces: true}, JSONError: {replaces: true},
	Empty: {replaces: true}, Reject: {replaces: true}, Endless: {replaces: true},
	Merge: {}, Batch: {}, Bytewise: {}, CRLF: {}, Comments: {}, Ping: {}, Huge: {},
	NoUsage: {}, NullError: {}, Length: {}, Gzip: {},
}

// Form is the engine whose error format an error within a 200 has.
type Form string

// Formats of errors inside a stream.
const (
	FormVLLM     Form = "vllm"     // data: {"error":{…,"code":400}} and [DONE]
	FormSGLang   Form = "sglang"   // the same with "object":"error" and a status of its own, no [DONE]
	FormLlamaCpp Form = "llamacpp" // a line "error: {…}" instead of data
	FormMessages Form = "messages" // an event named error, Anthropic's
)

// Fault is a kind of fault with its parameters.
type Fault struct {
	Kind  Kind
	Paths []string // exact paths; none: every POST
	Times int      // number of requests; 0: until Set is called again

	After int // events before the fault
	Every int // number of merged or batched events; 0: 4
	Delay time.Duration

	Status      int
	RetryAfter  string // value of the header; empty: no header
	Body        string // empty: an error object
	ContentType string // empty: application/json
	Form        Form   // empty: vllm
	Field       string // empty: include_usage
	Size        int
}

func (f *Fault) check() error {
	if _, known := faultKinds[f.Kind]; !known {
		return fmt.Errorf("the fault %q is not known", f.Kind)
	}
	if f.Kind == Status && (f.Status < 200 || f.Status > 599) {
		return fmt.Errorf("the fault status needs a status of 200 to 599, not %d", f.Status)
	}
	if f.Times < 0 || f.After < 0 {
		return fmt.Errorf("the fault %s has times %d and after %d; neither can be below 0", f.Kind, f.Times, f.After)
	}
	if forms := []Form{"", FormVLLM, FormSGLang, FormLlamaCpp, FormMessages}; !slices.Contains(forms, f.Form) {
		return fmt.Errorf("the fault %s has the form %q, which is not one of vllm, sglang, llamacpp, messages", f.Kind,
			f.Form)
	}
	return nil
}

// early reports whether the fault acts before the inner handler.
func (f *Fault) early() bool {
	info := faultKinds[f.Kind]
	return info.replaces || info.at && f.After == 0
}

func (f *Fault) every() int {
	if f.Every > 0 {
		return f.Every
	}
	return 4
}

func (f *Fault) field() string {
	if f.Field != "" {
		return f.Field
	}
	return "include_usage"
}
