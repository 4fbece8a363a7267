package openai

import "bytes"

// peekBytes is the number of bytes, after blanks, that show the form of a body: the length of `event:`.
const peekBytes = 6

// Peek returns the unread bytes of the body, without reading past them. It reads until they show the
// form of the body, or until the body ends. The bytes are valid until the next call of Next.
func (r *EventReader) Peek() []byte {
	for empty := 0; r.err == nil && empty < emptyReads; {
		if begin := content(r.buf[r.next:r.end]); len(begin) >= peekBytes || len(begin) > 0 && begin[0] == '{' {
			break
		}
		if r.fill() > 0 {
			empty = 0
		} else {
			empty++
		}
	}
	return r.buf[r.next:r.end]
}

// BeginsStream reports whether a body begins with a comment or a field of an event stream.
func BeginsStream(begin []byte) bool {
	begin = content(begin)
	if len(begin) > 0 && begin[0] == ':' {
		return true
	}
	end := bytes.IndexAny(begin, ":\r\n")
	if end < 0 {
		return false
	}
	switch string(begin[:end]) {
	case "data", "event", "id", "retry":
		return true
	}
	return false
}

// BeginsObject reports whether a body begins like a JSON object.
func BeginsObject(begin []byte) bool {
	begin = content(begin)
	return len(begin) > 0 && begin[0] == '{'
}

// BeginsNoJSON reports whether a body can be neither a JSON object nor an array, and BeginsStream is
// decided.
func BeginsNoJSON(begin []byte) bool {
	begin = content(begin)
	if len(begin) == 0 || begin[0] == '{' || begin[0] == '[' {
		return false
	}
	return begin[0] == ':' || len(begin) >= peekBytes
}

// content returns the bytes after a byte order mark and blanks.
func content(begin []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(begin, []byte("\xef\xbb\xbf")), " \t\r\n")
}
