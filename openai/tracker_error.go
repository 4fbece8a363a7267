package openai

import (
	"cmp"
	"strings"
)

// EngineError is an error as an engine wrote it.
type EngineError struct {
	// Status is the HTTP status that the error amounts to, 400 to 599: the one
	// in the error itself, else that of its type, else 500.
	Status  int
	Type    string
	Code    string // empty when the engine gives a number
	Message string // the engine's own words; empty when it has none
	Param   string
}

// ErrorOf reads an error in any of the forms that engines give it, inside a
// stream or as a whole body; ok is false when the data is none. The forms:
// {"error":{…}}, {"error":"…"}, vLLM's {"object":"error",…,"code":400},
// Anthropic's {"type":"error","error":{…}}, the Responses dialect's
// {"type":"error",…} and failed response, {"detail":…} of the frameworks that
// engines are built with, and llama.cpp's bare object, a message beside a code
// from 400 to 599.
func ErrorOf(data []byte) (e EngineError, ok bool) {
	var w errorWalk
	c := newReader(data)
	w.object(&c, 0)
	named := w.found || w.e.Message != "" && w.status != 0
	if !c.done() || !named {
		return EngineError{}, false
	}
	w.merge()
	e = w.e
	e.Status = cmp.Or(w.status, statusOf(e.Type, e.Code))
	return e, true
}

// Busy reports whether the engine refused the request because its own queue is full.
// vLLM and SGLang answer that with 503, which also stands for engines that fail, and
// without Retry-After, so that only their words tell.
func (e EngineError) Busy() bool {
	if e.Status != 503 {
		return false
	}
	said := strings.ToLower(e.Message)
	for _, words := range []string{"engine is currently busy", "token backlog limit", "queue is full", "queue full"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// errorWalk gathers an error from its members and those around it.
type errorWalk struct {
	e      EngineError
	status int
	found  bool
	inner  *errorWalk // the value of the error member
}

// merge prefers what the error member says to what is said around it.
func (w *errorWalk) merge() {
	if w.inner == nil {
		return
	}
	in, out := w.inner.e, w.e
	w.e = EngineError{Type: cmp.Or(in.Type, out.Type), Code: cmp.Or(in.Code, out.Code),
		Message: cmp.Or(in.Message, out.Message), Param: cmp.Or(in.Param, out.Param)}
	w.status = cmp.Or(w.inner.status, w.status)
}

// object walks the object that is the error or holds it. level is 0 for the
// payload, 1 for a response within it and 2 for an error.
func (w *errorWalk) object(c *Reader, level int) {
	var kind string
	for c.Enter('{'); c.More('}'); {
		switch key := string(c.Name()); key {
		case "error":
			if level < 2 {
				w.nested(c)
			}
		case "response":
			// response.failed holds the response, which holds the error.
			if level == 0 && c.Next() == '{' {
				w.object(c, 1)
			}
		case "detail":
			if level == 0 {
				w.detail(c)
			}
		case "object":
			w.found = string(c.Text()) == "error" || w.found
		case "type":
			if kind = textOf(c.Text()); kind == "error" {
				w.found = true
			}
		case "message":
			setText(&w.e.Message, c)
		case "param":
			setText(&w.e.Param, c)
		case "code", "status", "status_code":
			w.code(c, key == "code")
		}
	}
	// The payload's type may name the event instead of the error.
	if kind != "error" && !strings.HasPrefix(kind, "response.") {
		w.e.Type = cmp.Or(w.e.Type, kind)
	}
}

// nested walks the value of an error member.
func (w *errorWalk) nested(c *Reader) {
	inner := &errorWalk{}
	switch c.Next() {
	case '{':
		if c.Empty() {
			c.Skip()
			return
		}
		inner.object(c, 2)
	case '"':
		inner.e.Message = textOf(c.Str())
		if inner.e.Message == "" {
			return
		}
	default:
		w.found = c.nonEmpty() || w.found
		return
	}
	w.found, w.inner = true, inner
}

// detail takes a framework's own error: a text, or a list of what is wrong with
// the request, which is kept as it is.
func (w *errorWalk) detail(c *Reader) {
	if c.Next() == '"' {
		setText(&w.e.Message, c)
		w.found = true
		return
	}
	if v := c.Skip(); len(v) > 2 {
		w.found = true
		w.e.Message = cmp.Or(w.e.Message, strings.ToValidUTF8(string(v), "\uFFFD"))
		w.e.Type = cmp.Or(w.e.Type, "unprocessable_entity")
	}
}

// code takes a code or a status: a number from 400 to 599, as a number or as a
// text, is an HTTP status; other text is the error's code.
func (w *errorWalk) code(c *Reader, named bool) {
	var text []byte
	var n int64
	if c.Next() == '"' {
		text = c.Str()
		n = statusAt(text)
	} else {
		n, _ = c.integer()
	}
	switch {
	case n >= 400 && n <= 599:
		w.status = int(n)
	case named && n == 0 && len(text) > 0:
		w.e.Code = textOf(text)
	}
}

// statusAt is the number with which a text begins, as in "429 Too Many Requests"; 0 for
// a word that begins with digits.
func statusAt(text []byte) (n int64) {
	end := 0
	for ; end < len(text) && '0' <= text[end] && text[end] <= '9'; end++ {
		n = min(10*n+int64(text[end]-'0'), 1000) // more is no status
	}
	if end < len(text) && (strings.ContainsRune(".+-", rune(text[end])) || 'a' <= text[end]|0x20 && text[end]|0x20 <= 'z') {
		return 0
	}
	return n
}

// setText reads a text into dst; what is no text changes nothing.
func setText(dst *string, c *Reader) {
	if s := c.Text(); len(s) > 0 {
		*dst = textOf(s)
	}
}

// statusOf returns the HTTP status that an error's type or code stands for. The
// words are compared without case, underscores and the ending "error", so that
// BadRequestError, bad_request and bad_request_error are one.
func statusOf(words ...string) int {
	for _, word := range words {
		w := strings.ToLower(word)
		w = strings.NewReplacer("_", "", "-", "", " ", "").Replace(w)
		switch strings.TrimSuffix(w, "error") {
		case "invalidrequest", "badrequest", "value", "validation", "contextlengthexceeded", "exceedcontextsize", "invalidvalue", "invalidprompt":
			return 400
		case "authentication", "unauthorized", "invalidapikey":
			return 401
		case "permission", "permissiondenied", "forbidden":
			return 403
		case "notfound", "modelnotfound":
			return 404
		case "requesttoolarge":
			return 413
		case "unprocessableentity":
			return 422
		case "ratelimit", "ratelimitexceeded", "toomanyrequests", "requests", "tokens", "insufficientquota":
			return 429
		case "notimplemented", "notsupported":
			return 501
		case "overloaded", "unavailable", "serviceunavailable", "serveroverloaded":
			return 503
		case "timeout", "gatewaytimeout":
			return 504
		}
	}
	return 500
}
