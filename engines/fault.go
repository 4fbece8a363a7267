package engines

import (
	"encoding/json"
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
	FaultReset     Kind = "reset"      // the connection is reset, before the header or after
	FaultClose     Kind = "close"      // the connection is closed without a proper end
	FaultHang      Kind = "hang"       // silence until the client leaves
	FaultSlow      Kind = "slow"       // the first byte waits Fault.Delay
	FaultStale     Kind = "stale"      // a kept connection takes the request and closes without an answer; fresh ones answer
	FaultGarbage   Kind = "garbage"    // bytes that are no HTTP
	FaultTruncate  Kind = "truncate"   // a clean end of the body, too early
	FaultNoDone    Kind = "no_done"    // finish_reason comes, [DONE] does not
	FaultCloseEach Kind = "close_each" // the connection closes after each stream that promised to be kept (llama.cpp)

	FaultErrorFirst Kind = "error_first" // status 200, then an error as first event, in Fault.Form
	FaultErrorEvent Kind = "error_event" // an error after events, in Fault.Form
	FaultMalformed  Kind = "malformed"   // one event's JSON is cut in half, the stream goes on

	FaultStatus    Kind = "status"     // Fault.Status with Fault.RetryAfter, Fault.Body and Fault.ContentType
	FaultRedirect  Kind = "redirect"   // 302
	FaultHTML      Kind = "html"       // 200 with text/html
	FaultJSONError Kind = "json_error" // 200 whose body is an error object
	FaultEmpty     Kind = "empty"      // 200 without a body
	FaultReject    Kind = "reject"     // 400, or Fault.Status, for bodies that have Fault.Field; it names the field
	FaultEndless   Kind = "endless"    // an answer that never ends

	FaultMerge     Kind = "merge"      // Fault.Every tokens in one event
	FaultBatch     Kind = "batch"      // Fault.Every events in one write
	FaultBytewise  Kind = "bytewise"   // every byte in its own write
	FaultCRLF      Kind = "crlf"       // lines end in CRLF
	FaultComments  Kind = "comments"   // a comment before every event
	FaultPing      Kind = "ping"       // an event named ping, with data, before every event
	FaultHuge      Kind = "huge"       // one event of Fault.Size bytes more, after
	FaultNoUsage   Kind = "no_usage"   // usage is left out
	FaultNullError Kind = "null_error" // "error": null in every object
	FaultLength    Kind = "length"     // Content-Length is wrong by Fault.Size
	FaultGzip      Kind = "gzip"       // the body is compressed although nobody asked
)

// kindInfo says where a kind acts.
type kindInfo struct {
	replaces bool // instead of the inner handler's answer
	at       bool // at the start with After 0, in the answer's course otherwise
}

// faultKinds is never written.
var faultKinds = map[Kind]kindInfo{
	FaultReset: {at: true}, FaultClose: {at: true}, FaultHang: {at: true},
	FaultSlow: {replaces: true}, FaultStale: {replaces: true}, FaultGarbage: {replaces: true},
	FaultTruncate: {}, FaultNoDone: {}, FaultCloseEach: {},
	FaultErrorFirst: {replaces: true}, FaultErrorEvent: {}, FaultMalformed: {},
	FaultStatus: {replaces: true}, FaultRedirect: {replaces: true}, FaultHTML: {replaces: true}, FaultJSONError: {replaces: true},
	FaultEmpty: {replaces: true}, FaultReject: {replaces: true}, FaultEndless: {replaces: true},
	FaultMerge: {}, FaultBatch: {}, FaultBytewise: {}, FaultCRLF: {}, FaultComments: {}, FaultPing: {}, FaultHuge: {},
	FaultNoUsage: {}, FaultNullError: {}, FaultLength: {}, FaultGzip: {},
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

	After int           // events that pass first
	Every int           // how many are put together; 0 means 4
	Delay time.Duration // in JSON a duration such as "250ms"

	Status      int
	RetryAfter  string // the header's value; empty: no header
	Body        string // empty: an error object
	ContentType string // empty: application/json
	Form        Form   // empty: vllm
	Field       string // empty: include_usage
	Size        int
}

// wireFault is a Fault in JSON.
type wireFault struct {
	Kind        Kind     `json:"kind"`
	Paths       []string `json:"paths,omitempty"`
	Times       int      `json:"times,omitempty"`
	After       int      `json:"after,omitempty"`
	Every       int      `json:"every,omitempty"`
	Delay       string   `json:"delay,omitempty"`
	Status      int      `json:"status,omitempty"`
	RetryAfter  string   `json:"retry_after,omitempty"`
	Body        string   `json:"body,omitempty"`
	ContentType string   `json:"content_type,omitempty"`
	Form        Form     `json:"form,omitempty"`
	Field       string   `json:"field,omitempty"`
	Size        int      `json:"size,omitempty"`
}

// MarshalJSON writes the fault as POST /ctl takes it.
func (f Fault) MarshalJSON() ([]byte, error) {
	delay := ""
	if f.Delay != 0 {
		delay = f.Delay.String()
	}
	return json.Marshal(wireFault{f.Kind, f.Paths, f.Times, f.After, f.Every, delay, f.Status, f.RetryAfter, f.Body, f.ContentType, f.Form, f.Field, f.Size})
}

// UnmarshalJSON reads a fault and refuses what check refuses.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var w wireFault
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("reading a fault: %w", err)
	}
	*f = Fault{w.Kind, w.Paths, w.Times, w.After, w.Every, 0, w.Status, w.RetryAfter, w.Body, w.ContentType, w.Form, w.Field, w.Size}
	if w.Delay != "" {
		d, err := time.ParseDuration(w.Delay)
		if err != nil {
			return fmt.Errorf("reading a fault's delay: %w", err)
		}
		f.Delay = d
	}
	return f.check()
}

func (f *Fault) check() error {
	if _, known := faultKinds[f.Kind]; !known {
		return fmt.Errorf("the fault %q is not known", f.Kind)
	}
	if f.Kind == FaultStatus && (f.Status < 200 || f.Status > 599) {
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
