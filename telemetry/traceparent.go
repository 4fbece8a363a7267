package telemetry

import (
	"encoding/binary"
	"net/http"
	"strings"
)

// TraceContext is a request's place in a trace. It is a value; the zero value
// belongs to no trace.
type TraceContext struct {
	On      bool     // there is tracing, whether or not this request is exported
	Sampled bool     // the request is exported
	Random  bool     // whoever made the trace says that its id is random
	TraceID [16]byte // of the trace
	Parent  [8]byte  // the caller's span; zero for a trace that begins here
	Span    [8]byte  // the request's own span
	State   string   // the tracestate that goes on to the worker
	Link    SpanLink // the caller's context, where the trace does not continue it
}

// SpanLink points to a span of another trace. The zero value points to none.
type SpanLink struct {
	TraceID [16]byte
	Span    [8]byte
	Sampled bool
	State   string
}

// ID returns the trace's id as 32 hexadecimal digits, or nothing when the request
// is not exported, so that nobody looks for it in vain.
func (c TraceContext) ID() string {
	if !c.Sampled {
		return ""
	}
	return string(appendHex(make([]byte, 0, 32), c.TraceID[:]))
}

// Traceparent returns the traceparent header (W3C Trace Context) for whoever is
// asked under the given span of the trace. It is empty without tracing.
func (c TraceContext) Traceparent(span uint64) string {
	if !c.On {
		return ""
	}
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], span)
	b := append(make([]byte, 0, traceparentLength), "00-"...)
	b = append(appendHex(b, c.TraceID[:]), '-')
	b = append(appendHex(b, id[:]), "-00"...)
	if c.Sampled {
		b[len(b)-1] |= flagSampled
	}
	if c.Random {
		b[len(b)-1] |= flagRandom
	}
	return string(b)
}

func appendHex(b, id []byte) []byte {
	for _, c := range id {
		b = append(b, hexDigits[c>>4], hexDigits[c&0xf])
	}
	return b
}

const hexDigits = "0123456789abcdef"

// What a traceparent of version 00 has. Its flags are one byte, of which all but
// these two are to be sent as zero.
const (
	traceparentLength = 55
	flagSampled       = 1
	flagRandom        = 2
)

// caller is what a request's headers say of the trace that it belongs to.
type caller struct {
	trace  [16]byte
	span   [8]byte
	flags  byte
	valid  bool
	states []string // the tracestate lines, unread
}

// readCaller reads the trace context of a request: none where it is missing, not
// well-formed, or there several times.
func readCaller(h http.Header) caller {
	lines := h["Traceparent"]
	if len(lines) != 1 {
		return caller{}
	}
	c := parseTraceparent(lines[0])
	if c.valid {
		c.states = h["Tracestate"]
	}
	return c
}

// parseTraceparent reads a traceparent header. Of a version that is not known yet
// the fields of version 00 count, and whatever follows them after a dash does not.
func parseTraceparent(s string) (c caller) {
	if len(s) < traceparentLength || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return caller{}
	}
	var version, flags [1]byte
	ok := readHex(version[:], s[:2]) && readHex(c.trace[:], s[3:35]) && readHex(c.span[:], s[36:52]) && readHex(flags[:], s[53:55])
	switch {
	case !ok, version[0] == 0xff, c.trace == [16]byte{}, c.span == [8]byte{}:
		return caller{}
	case len(s) > traceparentLength && (version[0] == 0 || s[traceparentLength] != '-'):
		return caller{}
	}
	c.flags, c.valid = flags[0], true
	return c
}

// readHex reads lower-case digits, as many as to takes.
func readHex(to []byte, s string) bool {
	for i := range to {
		high, low := digit(s[2*i]), digit(s[2*i+1])
		if high > 0xf || low > 0xf {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// What a tracestate may have at most: the members by the specification, the
// length as four times what it asks every vendor to carry.
const (
	maxStateMembers = 32
	maxStateLength  = 2048
)

// tracestate returns the caller's tracestate, its lines joined, or nothing when it
// is not well-formed: the trace goes on without it.
func (c caller) tracestate() string {
	var s string
	switch len(c.states) {
	case 0:
		return ""
	case 1:
		s = c.states[0]
	default:
		s = strings.Join(c.states, ",")
	}
	if len(s) > maxStateLength || !validState(s) {
		return ""
	}
	return s
}

// validState tells whether a tracestate is a list of at most 32 members, each key
// there once. Empty members are allowed and do not count.
func validState(s string) bool {
	var keys [maxStateMembers]string
	n := 0
	for member := range strings.SplitSeq(s, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue
		}
		key, value, ok := strings.Cut(member, "=")
		if !ok || n == maxStateMembers || !validStateKey(key) || !validStateValue(value) {
			return false
		}
		for _, other := range keys[:n] {
			if other == key {
				return false
			}
		}
		keys[n] = key
		n++
	}
	return n > 0
}

// validStateKey tells whether a key is a name, or a tenant's of up to 241 bytes,
// an @ and a system's of up to 14.
func validStateKey(key string) bool {
	tenant, system, shared := strings.Cut(key, "@")
	if !shared {
		return len(key) <= 256 && startsWithLetter(key) && keyBytes(key)
	}
	return tenant != "" && len(tenant) <= 241 && len(system) <= 14 && startsWithLetter(system) &&
		tenant[0] != '_' && tenant[0] != '-' && tenant[0] != '*' && tenant[0] != '/' && keyBytes(tenant) && keyBytes(system)
}

func startsWithLetter(s string) bool { return s != "" && 'a' <= s[0] && s[0] <= 'z' }

func keyBytes(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '*' || c == '/') {
			return false
		}
	}
	return true
}

// validStateValue tells whether a value is printable ASCII without "=", which
// does not end in a space; a comma has ended it already.
func validStateValue(s string) bool {
	if s == "" || len(s) > 256 || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e || s[i] == '=' {
			return false
		}
	}
	return true
}
