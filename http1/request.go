package http1

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// appendHead appends the request line and the header of r to b. It rejects anything that could end
// a line early or be read as framing: a request made from a client's input must not become two.
func appendHead(b []byte, host string, r *Request) ([]byte, error) {
	if err := r.Check(); err != nil {
		return b, err
	}
	if host == "" || !isTarget("/"+host) {
		return b, fmt.Errorf("worker host %q is not a host name", host)
	}
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	for key, values := range r.Header {
		if IsConnectionField(key) {
			continue
		}
		for _, value := range values {
			b = append(b, key...)
			b = append(b, ": "...)
			b = append(b, value...)
			b = append(b, "\r\n"...)
		}
	}
	length := r.UploadLength
	if r.Upload == nil {
		length = 0
		for _, piece := range r.Body {
			length += int64(len(piece))
		}
	}
	switch {
	case length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case length > 0 || r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH":
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// Check returns an error if the request line or the header is not valid. The error shows neither
// the path nor a value, which may hold a secret.
func (r *Request) Check() error {
	if !isToken(r.Method) {
		return fmt.Errorf("request method %q is not a token", r.Method)
	}
	if !isTarget(r.Path) {
		return errors.New("request path must begin with / and hold only visible ASCII characters (escape others as %xx)")
	}
	for key, values := range r.Header {
		if IsConnectionField(key) {
			continue
		}
		if !isToken(key) {
			return fmt.Errorf("request header name %q is not a token", key)
		}
		for _, value := range values {
			if !isFieldValue(value) {
				return fmt.Errorf("request header %s holds a control character", key)
			}
		}
	}
	return nil
}

// connectionFields belong to a connection or to framing. The names in a client's own Connection
// header are not among them: such a client could remove the worker's key.
var connectionFields = []string{"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization",
	"Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade"}

// IsConnectionField reports whether a header field belongs to a connection or to
// framing, in any spelling of its case. A client never sends such a field of a Request.
func IsConnectionField(key string) bool {
	for _, name := range connectionFields {
		if len(name) == len(key) && strings.EqualFold(name, key) {
			return true
		}
	}
	return false
}

// tokenChars are the characters of header names and methods (RFC 9110 §5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var tokenTable = func() (t [256]bool) {
	for _, c := range []byte(tokenChars) {
		t[c] = true
	}
	return t
}()

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenTable[s[i]] {
			return false
		}
	}
	return s != ""
}

// isTarget reports whether s may stand between the two blanks of a request line.
func isTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != "" && s[0] == '/'
}

// isFieldValue reports whether s has no control characters other than the tab (RFC 9110 §5.5).
func isFieldValue[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}
