package openai

import (
	"cmp"
	"net/http"
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
// and the failed response of Responses, {"detail":…} of web frameworks, llama.cpp's bare
// object with a message and a code from 400 to 599, {"errors":[…]}, {"error_msg":"…"},
// {"success":false,…}, a choice or another object in the payload that has an error member, and an
// array that begins with one of them. Of several errors, the first one counts.
func ErrorOf(data []byte) (e EngineError, ok bool) {
	w, ok := walkError(data)
	if !ok || !w.found && (w.e.Message == "" || w.status == 0) {
		return EngineError{}, false
	}
	return w.merged(), true
}

// walkError reads a payload; ok is false if it is neither an object nor an array that begins with one.
func walkError(data []byte) (w errorWalk, ok bool) {
	c := NewReader(data)
	if c.Next() == '[' {
		c.Enter('[')
		if !c.More(']') {
			return w, false
		}
		w.readObject(&c, 0)
		for c.More(']') {
		}
	} else {
		w.readObject(&c, 0)
	}
	return w, c.AtEnd()
}

// errorWalk collects an error from its members and the members around it.
type errorWalk struct {
	e      EngineError
	status int
	found  bool
	bare   bool       // the error member is a text
	inner  *errorWalk // the value of the error member
	nested bool       // it is the value of a detail member
	title  string     // a summary, for an error without a message
	state  string     // the name of a status, such as UNAVAILABLE
}

// merged returns the error, whose status is the stated one or that of its type or code.
func (w *errorWalk) merged() EngineError {
	w.mergeInner()
	e := w.e
	e.Type = cmp.Or(e.Type, w.state)
	e.Status = cmp.Or(w.status, statusOf(e.Type, e.Code))
	if e.Status == http.StatusInternalServerError {
		e.Status = e.statusInMessage()
	}
	return e
}

// mergeInner prefers the members of the error object to those around it. A text beside a message is
// the message's code if it is one word, and otherwise precedes it.
func (w *errorWalk) mergeInner() {
	if w.inner == nil {
		return
	}
	w.inner.mergeInner()
	in, out := w.inner.e, w.e
	if text := in.Message; w.inner.bare && out.Message != "" {
		switch {
		case isCode(text):
			in.Message, in.Code = out.Message, cmp.Or(out.Code, text)
		case strings.Contains(out.Message, text):
			in.Message = out.Message
		case !strings.Contains(text, out.Message):
			in.Message = text + ": " + out.Message
		}
	}
	w.e = EngineError{Type: cmp.Or(in.Type, out.Type), Code: cmp.Or(in.Code, out.Code),
		Message: cmp.Or(in.Message, out.Message), Param: cmp.Or(in.Param, out.Param)}
	w.status = cmp.Or(w.inner.status, w.status)
	w.state, w.title = cmp.Or(w.inner.state, w.state), cmp.Or(w.inner.title, w.title)
}

// isCode reports whether a text is one lower-case word, such as invalid_request.
func isCode(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

// readObject reads the object that is the error or contains it. level is 0 for the payload, 1 for a
// response in it, 2 for an error, and 3 for an error in it.
func (w *errorWalk) readObject(c *Reader, level int) {
	var kind string
	for c.Enter('{'); c.More('}'); {
		switch key := string(c.Name()); key {
		case "error":
			// A gateway's error may contain the whole error of the engine behind it.
			if level < 2 || c.Next() == '{' {
				w.readNested(c, max(level+1, 2))
			} else {
				setText(&w.title, c)
			}
		case "fault": // Apigee's, as in SOAP
			if level == 0 && c.Next() == '{' {
				w.readNested(c, 2)
			}
		case "errors":
			switch {
			case level == 0 && c.Next() == '[':
				w.readNested(c, 2)
			case level == 0 && w.e.Message == "": // lists of problems by field, which are kept as JSON
				w.readMessage(c)
			}
		case "response":
			// response.failed contains the response, which contains the error.
			if level == 0 && c.Next() == '{' {
				w.readObject(c, 1)
			}
		case "detail":
			if level == 0 {
				w.readDetail(c)
			} else {
				setText(&w.title, c)
			}
		case "object":
			w.found = string(c.Text()) == "error" || w.found
		case "type":
			if kind = textOf(c.Text()); kind == "error" {
				w.found = true
			}
		case "error_type", "__type":
			setText(&w.e.Type, c)
		case "message", "Message", "msg":
			w.readMessage(c)
		case "error_msg", "error_message", "errorMessage", "error_description", "faultstring":
			w.readMessage(c)
			w.found = w.found || w.e.Message != ""
		case "reason":
			if w.e.Message == "" {
				setText(&w.e.Message, c)
			}
		case "title":
			setText(&w.title, c)
		case "param":
			setText(&w.e.Param, c)
		case "code", "status", "status_code", "statusCode", "error_code":
			w.readCode(c, key == "code")
		case "success":
			failed := string(c.Skip()) == "false"
			w.found = w.found || level == 0 && failed
		case "choices":
			if level == 0 && c.Next() == '[' {
				for c.Enter('['); c.More(']'); {
					w.readWrapper(c)
				}
			}
		default:
			if level == 0 {
				w.readWrapper(c)
			}
		}
	}
	// The type of the payload may be that of the event instead of the error.
	if kind != "error" && !strings.HasPrefix(kind, "response.") {
		w.e.Type = cmp.Or(w.e.Type, kind)
	}
}

// readWrapper reads the error in an object around it. Other values are skipped.
func (w *errorWalk) readWrapper(c *Reader) {
	if w.inner != nil || c.Next() != '{' {
		c.Skip()
		return
	}
	for c.Enter('{'); c.More('}'); {
		if string(c.Name()) == "error" && w.inner == nil {
			w.readNested(c, 2)
		}
	}
}

// readNested reads the value of the error member, or of the first element of its array, at that level.
func (w *errorWalk) readNested(c *Reader, level int) {
	switch c.Next() {
	case '[':
		first := true
		for c.Enter('['); c.More(']'); first = false {
			if first {
				w.readNested(c, level)
			}
		}
		return
	case '{', '"':
		if c.Empty() {
			c.Skip()
			return
		}
	default:
		w.found = c.nonEmpty() || w.found
		return
	}
	inner := &errorWalk{}
	if c.Next() == '{' {
		inner.readObject(c, level)
	} else {
		inner.e.Message, inner.bare = textOf(c.Str()), true
	}
	w.found, w.inner = true, inner
}

// readMessage reads a message. An object or array is kept as JSON.
func (w *errorWalk) readMessage(c *Reader) {
	if c.Next() == '"' {
		setText(&w.e.Message, c)
		return
	}
	if v := c.Skip(); len(v) > 0 && (v[0] == '{' || v[0] == '[') && HasContent(v) {
		w.e.Message = cmp.Or(w.e.Message, strings.ToValidUTF8(string(v), "\uFFFD"))
	}
}

// readDetail reads a framework's own error: a string, an error object, or a list of problems, which is
// kept as JSON.
func (w *errorWalk) readDetail(c *Reader) {
	if c.Next() == '"' {
		setText(&w.e.Message, c)
		w.found = true
		return
	}
	v := c.Skip()
	if !HasContent(v) || v[0] != '{' && v[0] != '[' {
		return
	}
	w.found = true
	if v[0] == '{' && !w.nested { // each level is read again, so there are two at most
		in, c := errorWalk{nested: true}, NewReader(v)
		if in.readObject(&c, 0); c.AtEnd() && in.merged().Message != "" {
			w.inner = &in
			return
		}
	}
	w.e.Message = cmp.Or(w.e.Message, strings.ToValidUTF8(string(v), "\uFFFD"))
	w.e.Type = cmp.Or(w.e.Type, "unprocessable_entity")
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
	case n == 0 && string(text) == "error":
		w.found = true
	case n == 0 && len(text) > 0 && strings.Trim(string(text), "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "":
		w.state = string(text) // Google's names of statuses
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
			"invalidvalue", "invalidprompt", "invalidargument":
			return 400
		case "authentication", "unauthorized", "invalidapikey", "unauthenticated":
			return 401
		case "permission", "permissiondenied", "forbidden":
			return 403
		case "notfound", "modelnotfound":
			return 404
		case "requesttoolarge":
			return 413
		case "unprocessableentity":
			return 422
		case "ratelimit", "ratelimitexceeded", "toomanyrequests", "requests", "tokens", "insufficientquota",
			"resourceexhausted":
			return 429
		case "notimplemented", "notsupported":
			return 501
		case "unavailable", "serviceunavailable", "serverbusy", "capacityexceeded", "nocapacity", "slowdown",
			"serviceunavailableexception":
			return 503
		case "timeout", "gatewaytimeout", "deadlineexceeded":
			return 504
		}
		if strings.Contains(w, "overloaded") {
			return 503
		}
	}
	return 500
}
