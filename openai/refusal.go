package openai

import (
	"bytes"
	"iter"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// messageMax is the longest message of an engine that a rewritten error has, in bytes. Some
	// engines repeat the request in their errors.
	messageMax = 4 << 10
	// textMax is the longest text without JSON that is a message, in bytes. Longer ones are stacks and
	// pages.
	textMax = 1 << 10
)

// RefusalOf reads the body of an answer with an error status in more forms than ErrorOf: any object
// with a message or a title, a JSON string, and short plain text. The message has at most 4 KiB.
func RefusalOf(body []byte) (e EngineError, ok bool) {
	w, ok := walkError(body)
	if line, _, more := bytes.Cut(bytes.TrimSpace(body), []byte{'\n'}); !ok && more {
		w, ok = walkError(line) // a framework's error before the rest of a stream
	}
	switch {
	case ok:
		e = w.merged()
		if e.Message == "" {
			e.Message = w.title
		}
	default:
		e.Message = plainText(body)
		e.Status = e.statusInMessage()
	}
	if len(e.Message) > messageMax {
		e.Message = strings.ToValidUTF8(e.Message[:messageMax], "") + "…"
	}
	return e, e.Message != "" || e.Code != ""
}

// plainText returns the text of a body without an object: a JSON string, or short text that is neither
// a page nor a stack.
func plainText(body []byte) string {
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' { // of strings
		c := NewReader(body)
		if c.Enter('['); !c.More(']') {
			return ""
		}
		body = c.Skip()
	}
	if len(body) == 0 || len(body) > textMax || !utf8.Valid(body) {
		return ""
	}
	if c := NewReader(body); body[0] == '"' {
		if text := textOf(c.Text()); c.AtEnd() {
			return text
		}
	}
	control := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f }
	if strings.ContainsRune("<{[", rune(body[0])) || bytes.ContainsFunc(body, control) ||
		bytes.Contains(body, []byte("Traceback (most recent call")) {
		return ""
	}
	return string(body)
}

// Overloaded reports whether the engine rejected the request because it has no capacity at present.
// Engines report this with 503, with 529, and with a type, a code or a message under other statuses.
// A 429 is a rate limit instead.
func (e EngineError) Overloaded() bool {
	switch {
	case e.Status == http.StatusTooManyRequests:
		return false
	case e.Status == http.StatusServiceUnavailable, e.Status == StatusOverloaded,
		statusOf(e.Type) == http.StatusServiceUnavailable, statusOf(e.Code) == http.StatusServiceUnavailable:
		return true
	case e.Status < http.StatusInternalServerError:
		return false
	}
	return e.NamesOverload()
}

// NamesOverload reports whether the error's own words say that the engine has no capacity at present. A 503
// without such words may also come from a proxy whose engine is gone.
func (e EngineError) NamesOverload() bool {
	for _, word := range [...]string{e.Type, e.Code} {
		word = strings.ToLower(word)
		if strings.Contains(word, "overload") || strings.Contains(word, "busy") || strings.Contains(word, "capacity") {
			return true
		}
	}
	return e.mentions("overloaded", "engine is currently busy", "token backlog limit", "queue is full", "queue full",
		"server busy", "server is busy", "maximum pending requests", "maximum queue size", "due to backpressure",
		"no slot available", "at capacity")
}

// StatusOverloaded is the status with which Anthropic reports that it is overloaded.
const StatusOverloaded = 529

// RefusesContent reports whether the engine rejected the content of the request: its type or code names
// a policy, or it is a 403 whose message does so. An error about permissions, scopes or keys is none.
func (e EngineError) RefusesContent() bool {
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusTooManyRequests,
		namesAccess(e.Code), statusOf(e.Type) != http.StatusForbidden && namesAccess(e.Type):
		return false
	case namesPolicy(e.Type), namesPolicy(e.Code), e.Status >= http.StatusInternalServerError && e.raisesPolicy():
		return true
	}
	return e.Status == http.StatusForbidden && !namesAccess(e.Message[:min(len(e.Message), overflowWithin)]) &&
		e.mentions("content policy", "content filter", "content management", "content moderation", "moderation system",
			"by moderation", "usage polic", "safety system", "safety filter", "safety polic", "safety setting",
			"safety guideline", "safety reason", "safety check", "for safety", "flagged", "guardrail", "inappropriate content",
			"prohibited content", "harmful content", "sensitive content", "unsafe content", "jailbreak")
}

// OfServer reports whether a failed response is the failure of its server: an overload, a rate limit or an
// internal error. The request causes the other ones.
func (e EngineError) OfServer() bool {
	return e.Overloaded() || e.Status == http.StatusTooManyRequests || isServerError(e.Code) || isServerError(e.Type)
}

// isServerError reports whether a code or type means an internal error.
func isServerError(word string) bool {
	switch word {
	case "server_error", "internal_error", "internal_server_error":
		return true
	}
	return false
}

// exceptions returns the names of exceptions at the beginning of the error's message, without their
// packages. Proxies put the engine's exception there, such as litellm.RateLimitError, and answer 500.
func (e EngineError) exceptions() iter.Seq[string] {
	words := strings.FieldsFuncSeq(e.Message[:min(len(e.Message), overflowWithin)], func(c rune) bool {
		return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
	return func(yield func(string) bool) {
		for word := range words {
			if (strings.HasSuffix(word, "Error") || strings.HasSuffix(word, "Exception")) && !yield(word) {
				return
			}
		}
	}
}

// raisesPolicy reports whether an exception in the message names a policy.
func (e EngineError) raisesPolicy() bool {
	for name := range e.exceptions() {
		if namesPolicy(name) {
			return true
		}
	}
	return false
}

// statusInMessage returns the status in the message of an error that names none, as OpenAI's SDK for Python
// writes it, or that of an exception for a rate limit or an overload; otherwise 500.
func (e EngineError) statusInMessage() int {
	if _, rest, ok := strings.Cut(e.Message[:min(len(e.Message), overflowWithin)], "Error code: "); ok {
		if n := statusAt([]byte(rest)); n >= 400 && n <= 599 {
			return int(n)
		}
	}
	for name := range e.exceptions() {
		if status := statusOf(name); status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			return status
		}
	}
	return http.StatusInternalServerError
}

// namesAccess reports whether a type, a code or a message is about what a key may do.
func namesAccess(text string) bool {
	text = strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(text))
	for _, part := range [...]string{"permission", "scope", "apikey", "accesskey", "credential", "notauthorized",
		"accessdenied"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// namesPolicy reports whether a type or code means that the content was refused.
func namesPolicy(word string) bool {
	word = strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(word))
	for _, part := range [...]string{"contentfilter", "contentpolicy", "policyviolation", "usagepolicy", "cyberpolicy",
		"moderation", "guardrail", "datainspection", "prohibitedcontent", "sensitivecontent", "contentblocked",
		"promptblocked", "responsibleai", "unsafecontent", "safetyviolation", "inputflagged", "contentflagged", "jailbreak"} {
		if strings.Contains(word, part) {
			return true
		}
	}
	return false
}

// mentions reports whether the beginning of the error's message contains one of the phrases, which are in lower case.
func (e EngineError) mentions(phrases ...string) bool {
	text := strings.ToLower(e.Message[:min(len(e.Message), overflowWithin)])
	for _, phrase := range phrases {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
