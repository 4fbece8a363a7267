package openai

import (
	"strconv"
	"unicode/utf8"
)

// Body returns the error as a JSON body: in Anthropic's shape for Messages, else in OpenAI's,
// which has no requestID.
func (e *Error) Body(d Dialect, requestID string) []byte {
	if d == Messages {
		b := append(e.anthropic([]byte(`{"type":"error","error":`)), `,"request_id":`...)
		return append(appendTextOrNull(b, requestID), '}')
	}
	return append(e.openAI([]byte(`{"error":`)), '}')
}

// Frame returns the error as the end of a stream of the dialect, including the blank line. The
// official SDKs raise an exception at it. In the Responses dialect, it is FailedResponse of a
// response without an ID.
func (e *Error) Frame(d Dialect) []byte {
	switch d {
	case Messages:
		b := e.anthropic([]byte("event: error\ndata: {\"type\":\"error\",\"error\":"))
		return append(b, "}\n\n"...)
	case Responses:
		return e.FailedResponse("", 0)
	}
	b := e.openAI([]byte(`data: {"error":`))
	return append(b, "}\n\n"...)
}

// FailedResponse returns the error as the last two events of a Responses stream, with sequence
// numbers from next. The first is an `error` event with the documented members and an `error`
// member: openai-python, openai-node and openai-go raise at that member and stop reading. The
// second is response.failed for the response of that ID, the only one that Codex reads. A
// Tracker that has seen the first event does not take the second one for a proof of
// completeness.
func (e *Error) FailedResponse(id string, next int64) []byte {
	b := appendTextOrNull([]byte("event: error\ndata: {\"type\":\"error\",\"code\":"), string(e.Code))
	b = appendJSONText(append(b, `,"message":`...), e.message())
	b = appendTextOrNull(append(b, `,"param":`...), e.Param)
	b = strconv.AppendInt(append(b, `,"sequence_number":`...), next, 10)
	b = e.openAI(append(b, `,"error":`...))
	b = append(b, "}\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":"...)
	b = strconv.AppendInt(b, next+1, 10)
	b = appendJSONText(append(b, `,"response":{"id":`...), id)
	b = appendTextOrNull(append(b, `,"object":"response","status":"failed","error":{"code":`...), string(e.Code))
	b = appendJSONText(append(b, `,"message":`...), e.message())
	return append(b, `},"incomplete_details":null,"output":[],"usage":null}}`+"\n\n"...)
}

func (e *Error) openAI(b []byte) []byte {
	kind := e.Type
	if kind == "" {
		kind = rowOf(e.Code, e.Status).Type
	}
	b = appendJSONText(append(b, `{"message":`...), e.message())
	b = appendJSONText(append(b, `,"type":`...), kind)
	b = appendTextOrNull(append(b, `,"param":`...), e.Param)
	b = appendTextOrNull(append(b, `,"code":`...), string(e.Code))
	return append(b, '}')
}

func (e *Error) anthropic(b []byte) []byte {
	b = appendJSONText(append(b, `{"type":`...), rowOf(e.Code, e.Status).Anthropic)
	b = appendJSONText(append(b, `,"message":`...), e.message())
	return append(b, '}')
}

// appendTextOrNull appends a JSON string, or null for an empty one.
func appendTextOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendJSONText(b, s)
}

// appendJSONText appends s as a JSON string on one line, as valid UTF-8 for any s, and without
// unnecessary escapes, so that `<` stays readable.
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

// AppendText appends s as a JSON string in the form of the errors: on one line, valid UTF-8, with the fewest escapes.
func AppendText(b []byte, s string) []byte { return appendJSONText(b, s) }
