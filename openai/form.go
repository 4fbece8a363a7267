package openai

import "bytes"

// peekBytes is the number of bytes, after blanks, that show the form of a body: the length of `event:`.
const peekBytes = 6

// blanks are the bytes that may precede JSON.
const blanks = " \t\r\n"

// Beginning finds the first bytes of a growing body after a byte order mark and blanks. It examines
// each byte once.
type Beginning struct{ skipped int }

// after returns the bytes of the body from the first one that is no blank.
func (b *Beginning) after(body []byte) []byte {
	rest := body[b.skipped:]
	if b.skipped == 0 {
		rest = content(rest)
	} else {
		rest = bytes.TrimLeft(rest, blanks)
	}
	b.skipped = len(body) - len(rest)
	return rest
}

// IsNoJSON reports whether a body can be neither a JSON object nor an array, and BeginsStream is
// decided. Each call has the body of the previous one and the bytes that were read since then.
func (b *Beginning) IsNoJSON(body []byte) bool {
	begin := b.after(body)
	if len(begin) == 0 || begin[0] == '{' || begin[0] == '[' {
		return false
	}
	return begin[0] == ':' || len(begin) >= peekBytes
}

// Peek returns the unread bytes of the body, without reading past them. It reads until they show the
// form of the body, or until the body ends. The bytes are valid until the next call of Next.
func (r *EventReader) Peek() []byte {
	var b Beginning
	for empty := 0; r.err == nil && empty < emptyReads; {
		if begin := b.after(r.buf[r.next:r.end]); len(begin) >= peekBytes || len(begin) > 0 && begin[0] == '{' {
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

// content returns the bytes after a byte order mark and blanks.
func content(begin []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(begin, []byte(byteOrderMark)), blanks)
}
