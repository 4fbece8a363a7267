package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Kind names a way to misbehave.
type Kind string

// The kinds of faults. "After" means after Fault.After events of a stream; of an
// answer that is no stream the half is sent first, unless After is 0, where nothing
// is sent. A stream that ends before has no fault.
const (
	Reset     Kind = "reset"      // the connection is reset, before the header or after
	Close     Kind = "close"      // the connection is closed without a proper end
	Hang      Kind = "hang"       // silence until the client leaves
	Slow      Kind = "slow"       // the first byte waits Fault.Delay
	Stale     Kind = "stale"      // a kept connection takes the request and closes without an answer; fresh ones answer
	Garbage   Kind = "garbage"    // bytes that are no HTTP
	Truncate  Kind = "truncate"   // a clean end of the body, too early
	NoDone    Kind = "no_done"    // finish_reason comes, [DONE] does not
	CloseEach Kind = "close_each" // the connection closes after each stream that promised to be kept (llama.cpp)

	ErrorFirst Kind = "error_first" // status 200, then an error as first event, in Fault.Form
	ErrorEvent Kind = "error_event" // an error after events, in Fault.Form
	Malformed  Kind = "malformed"   // one event's JSON is cut in half, the stream goes on

	Status    Kind = "status"     // Fault.Status with Fault.RetryAfter, Fault.Body and Fault.ContentType
	Redirect  Kind = "redirect"   // 302
	HTML      Kind = "html"       // 200 with text/html
	JSONError Kind = "json_error" // 200 whose body is an error object
	Empty     Kind = "empty"      // 200 without a body
	Reject    Kind = "reject"     // 400, or Fault.Status, for bodies that have Fault.Field; it names the field
	Endless   Kind = "endless"    // an answer that never ends

	Merge     Kind = "merge"      // Fault.Every tokens in one event
	Batch     Kind = "batch"      // Fault.Every events in one write
	Bytewise  Kind = "bytewise"   // every byte in its own write
	CRLF      Kind = "crlf"       // lines end in CRLF
	Comments  Kind = "comments"   // a comment before every event
	Ping      Kind = "ping"       // an event named ping, with data, before every event
	Huge      Kind = "huge"       // one event of Fault.Size bytes more, after
	NoUsage   Kind = "no_usage"   // usage is left out
	NullError Kind = "null_error" // "error": null in every object
	Length    Kind = "length"     // Content-Length is wrong by Fault.Size
	Gzip      Kind = "gzip"       // the body is compressed although nobody asked
)

// kindInfo says where a kind acts.
type kindInfo struct {
	replaces bool // instead of the inner handler's answer
	at       bool // at the start with After 0, in the answer's course otherwise
}

// faultKinds is never written.
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

// Form is whose error an error inside a 200 looks like.
type Form string

// The forms of errors inside a stream.
const (
	FormVLLM     Form = "vllm"     // data: {"error":{…,"code":400}} and [DONE]
	FormSGLang   Form = "sglang"   // the same with "object":"error" and a status of its own, no [DONE]
	FormLlamaCpp Form = "llamacpp" // a line "error: {…}" instead of data
	FormMessages Form = "messages" // an event named error, Anthropic's
)

// Fault is one way to misbehave and when.
type Fault struct {
	Kind  Kind
	Paths []string // exact paths it applies to; none: every POST
	Times int      // for so many requests; 0: until faults are set anew

	After int // events that pass first
	Every int // how many are put together; 0 means 4
	Delay time.Duration

	Status      int
	RetryAfter  string // the header's value; empty: no header
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
		return fmt.Errorf("the fault %s has the form %q, which is not one of vllm, sglang, llamacpp, messages", f.Kind, f.Form)
	}
	return nil
}

// early says whether the fault acts before the inner handler is asked.
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
