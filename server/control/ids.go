package control

import (
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"
)

// RequestID returns the client's X-Request-Id if it is safe to log and to forward, else a new random
// UUID.
func RequestID(h http.Header, rand func() uint64) string {
	if id := h.Get("X-Request-Id"); IsRequestID(id) {
		return strings.Clone(id) // the strings of a header share one block of memory, which a record would keep alive
	}
	return newUUID(rand(), rand())
}

// newUUID returns a UUID of version 4 (RFC 9562) from 128 random bits. Servers that are built on
// Starlette commonly reject a request if its X-Request-ID is not a UUID.
func newUUID(high, low uint64) string { return FormatUUID(high, low, 4) }

// FormatUUID returns 128 bits as a UUID of a version from 0 to 15.
func FormatUUID(high, low uint64, version byte) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	from, at := 0, 0
	for _, bytes := range [...]int{4, 2, 2, 2, 6} {
		if at > 0 {
			text[at] = '-'
			at++
		}
		at += hex.Encode(text[at:], b[from:from+bytes])
		from += bytes
	}
	return string(text[:])
}

// IsRequestID reports whether an id has the form of a request id, which is safe to log and to echo.
func IsRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// IsUUID reports whether an id has the form of a UUID.
func IsUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		hyphen := i == 8 || i == 13 || i == 18 || i == 23
		if hyphen != (id[i] == '-') || !hyphen && !strings.ContainsRune("0123456789abcdefABCDEF", rune(id[i])) {
			return false
		}
	}
	return true
}
