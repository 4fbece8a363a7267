package openai

import (
	"cmp"
	"strings"
)

// EngineError is an error in an engine's own words.
type EngineError struct {
	// Status is the HTTP status of the error, from 400 to 599: the one in the error itself, else
	// that of its type, else 500.
	Status  int
	Type    string
	Code    string // empty if the engine gives a number
	Message string // the engine's own words; may be empty
	Param   string
}

// ErrorOf reads an error in any form that engines use, in a stream or as a body; ok is false if
// data is not an error. The forms are {"error":{…}}, {"error":"…"}, vLLM's
// {"object":"error",…,"code":400}, Anthropic's {"type":"error","error":{…}}, {"type":"error",…}
// and the failed response of Responses, {"detail":…} of web frameworks, and llama.cpp's bare
// object with a message and a code from 400 to 599.
func ErrorOf(data []byte) (e EngineError, ok bool) {
	var w errorWalk
	c := newReader(data)
	w.readObject(&c, 0)
	isError := w.found || w.e.Message != "" && w.status != 0
	if !c.atEnd() || !isError {
		return EngineError{}, false
	}
	w.mergeInner()
	e = w.e
	e.Status = cmp.Or(w.status, statusOf(e.Type, e.Code))
	return e, true
}

// Busy reports whether the engine rejected the request because its own queue is full. vLLM and
// SGLang then return 503 without Retry-After, like a failing engine, so only the message
// identifies it.
func (e EngineError) Busy() bool {
	if e.Status != 503 {
		return false
	}
	message := strings.ToLower(e.Message)
	for _, phrase := range []string{"engine is currently busy", "token backlog limit", "queue is full", "queue full"} {
		if strings.Contains(message, phrase) {
			return true
		}
	}
	return false
}

// errorWalk collects an error from its members and the members around it.
type errorWalk struct {
	e      EngineError
	status int
	found  bool
	inner  *errorWalk // the value of the error member
}

// mergeInner prefers the members of the error object to those around it.
func (w *errorWalk) mergeInner() {
	if w.inner == nil {
		return
	}
	in, out := w.inner.e, w.e
	w.e = EngineError{Type: cmp.Or(in.Type, out.Type), Code: cmp.Or(in.Code, out.Code),
		Message: cmp.Or(in.Message, out.Message), Param: cmp.Or(in.Param, out.Param)}
	w.status = cmp.Or(w.inner.status, w.status)
}

// readObject reads the object that is the error or contains it. level is 0 for the payload, 1 for a
// response in it, and 2 for an error.
func (w *errorWalk) readObject(c *Reader, level int) {
	var kind string
	for c.Enter('{'); c.More('}'); {
		switch key := string(c.Name()); key {
		case "error":
			if level < 2 {
				w.readNested(c)
			}
		case "response":
			// response.failed contains the response, which contains the error.
			if level == 0 && c.Next() == '{' {
				w.readObject(c, 1)
			}
		case "detail":
			if level == 0 {
				w.readDetail(c)
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
			w.readCode(c, key == "code")
		}
	}
	// The type of the payload may be that of the event instead of the error.
	if kind != "error" && !strings.HasPrefix(kind, "response.") {
		w.e.Type = cmp.Or(w.e.Type, kind)
	}
}

// readNested reads the value of the error member.
func (w *errorWalk) readNested(c *Reader) {
	inner := &errorWalk{}
	switch c.Next() {
	case '{':
		if c.Empty() {
			c.Skip()
			return
		}
		inner.readObject(c, 2)
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

// readDetail reads a framework's own error: a string, or a list of problems, which is kept as JSON.
func (w *errorWalk) readDetail(c *Reader) {
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

// readCode reads a code or status. A number from 400 to 599, also as a string, is an HTTP status;
// another string is the error's code.
func (w *errorWalk) readCode(c *Reader, named bool) {
	var text []byte
	var n int64
	if c.Next() == '"' {
		text = c.Str()
		n = statusAt(text)
	} else {
		n, _ = c.readInteger()
	}
	switch {
	case n >= 400 && n <= 599:
		w.status = int(n)
	case named && n == 0 && len(text) > 0:
		w.e.Code = textOf(text)
	}
}

// statusAt returns the number at the start of a text, as in "429 Too Many Requests"; 0 for a
// word that begins with digits.
func statusAt(text []byte) (n int64) {
	end := 0
	for ; end < len(text) && '0' <= text[end] && text[end] <= '9'; end++ {
		n = min(10*n+int64(text[end]-'0'), 1000) // larger numbers are not statuses
	}
	if end < len(text) && (strings.ContainsRune(".+-", rune(text[end])) || 'a' <= text[end]|0x20 &&
		text[end]|0x20 <= 'z') {
		return 0
	}
	return n
}

// setText reads a non-empty string into dst and ignores other values.
func setText(dst *string, c *Reader) {
	if s := c.Text(); len(s) > 0 {
		*dst = textOf(s)
	}
}

// statusOf returns the HTTP status of an error's type or code. Case, underscores and the suffix
// "error" are ignored: BadRequestError, bad_request and bad_request_error are the same.
func statusOf(words ...string) int {
	for _, word := range words {
		w := strings.ToLower(word)
		w = strings.NewReplacer("_", "", "-", "", " ", "").Replace(w)
		switch strings.TrimSuffix(w, "error") {
		case "invalidrequest", "badrequest", "value", "validation", "contextlengthexceeded", "exceedcontextsize",
			"invalidvalue", "invalidprompt":
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
