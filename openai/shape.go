package openai

import "unicode/utf8"

// Body returns the error as a JSON body in the shape. requestID is only part of
// the Anthropic shape; empty is null.
func (e *Error) Body(s Shape, requestID string) []byte {
	if s == ShapeAnthropic {
		b := append(e.anthropic([]byte(`{"type":"error","error":`)), `,"request_id":`...)
		return append(appendText(b, requestID), '}')
	}
	return append(e.openAI([]byte(`{"error":`)), '}')
}

// Frame returns the error as one event of a stream of the dialect, blank line
// included, at which the official SDKs raise. In the Responses dialect it has
// both the members that the API documents for its error event and an `error`
// member, because openai-python and openai-go raise at that member alone.
func (e *Error) Frame(d Dialect) []byte {
	switch d {
	case Messages:
		b := e.anthropic([]byte("event: error\ndata: {\"type\":\"error\",\"error\":"))
		return append(b, "}\n\n"...)
	case Responses:
		b := appendText([]byte("event: error\ndata: {\"type\":\"error\",\"code\":"), string(e.Code))
		b = appendJSONText(append(b, `,"message":`...), e.message())
		b = appendText(append(b, `,"param":`...), e.Param)
		b = e.openAI(append(b, `,"sequence_number":0,"error":`...))
		return append(b, "}\n\n"...)
	}
	b := e.openAI([]byte(`data: {"error":`))
	return append(b, "}\n\n"...)
}

// openAI appends the error object of the OpenAI shape.
func (e *Error) openAI(b []byte) []byte {
	kind := e.Type
	if kind == "" {
		kind = rowOf(e.Code, e.Status).Type
	}
	b = appendJSONText(append(b, `{"message":`...), e.message())
	b = appendJSONText(append(b, `,"type":`...), kind)
	b = appendText(append(b, `,"param":`...), e.Param)
	b = appendText(append(b, `,"code":`...), string(e.Code))
	return append(b, '}')
}

// anthropic appends the error object of the Anthropic shape.
func (e *Error) anthropic(b []byte) []byte {
	b = appendJSONText(append(b, `{"type":`...), rowOf(e.Code, e.Status).Anthropic)
	b = appendJSONText(append(b, `,"message":`...), e.message())
	return append(b, '}')
}

// appendText appends a JSON string, or null for an empty one.
func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendJSONText(b, s)
}

// appendJSONText appends s as a JSON string: valid UTF-8 whatever s is, one
// line, and nothing escaped that need not be, so that `<` stays readable.
func appendJSONText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
