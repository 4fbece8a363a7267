package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

const (
	// maxHead (bytes) and maxFields limit the head of an answer. Hosted services send 2 KiB in 30
	// lines.
	maxHead   = 64 << 10
	maxFields = 100
	// maxInterim limits the 1xx answers before the final one: servers send one, and an endless
	// sequence must end.
	maxInterim = 8
)

type answerHead struct {
	status  int
	oldHTTP bool // HTTP/1.0
	header  http.Header
	length  int64 // Content-Length, -1 without
	chunked bool
	options string // Connection, joined by commas, in lower case
}

// readAnswer reads heads until one is not interim and sets up x from it.
func (x *openAnswer) readAnswer(method string) error {
	for range maxInterim + 1 {
		block, err := x.c.readHead()
		if err != nil {
			return err
		}
		h, err := parseHead(block)
		if err != nil {
			return err
		}
		if h.status >= 200 {
			x.setResponse(method, h)
			return nil
		}
		if h.status == http.StatusSwitchingProtocols {
			return protocolError("it switches protocols without being asked")
		}
	}
	return protocolError("too many interim answers")
}

// readHead returns the status line and header lines, each with its CRLF, without the empty line.
// The result is valid until the next read. The status line is checked as soon as it has arrived, so
// that a peer of another protocol is detected even if it sends nothing more.
func (c *conn) readHead() ([]byte, error) {
	scan, line, lines := 0, 0, 0 // offsets from c.r
	for {
		in := c.buf[c.r:c.w]
		lf := bytes.IndexByte(in[scan:], '\n')
		if lf < 0 {
			scan = len(in)
			if scan >= maxHead {
				return nil, protocolError("its head is over 64 KiB")
			}
			if err := c.fill(maxHead); err != nil {
				return nil, err
			}
			continue
		}
		end := scan + lf
		if end == line || in[end-1] != '\r' {
			return nil, protocolError("a line of the head does not end in CRLF")
		}
		text := in[line : end-1]
		switch {
		case lines == 0:
			if _, _, err := parseStatus(text); err != nil {
				return nil, err
			}
		case len(text) == 0:
			c.r += end + 1
			return in[:line], nil
		case lines > maxFields:
			return nil, protocolError("its head has over 100 fields")
		}
		lines++
		scan, line = end+1, end+1
	}
}

// parseStatus parses a status line without its CRLF.
func parseStatus(line []byte) (status int, oldHTTP bool, err error) {
	const version = len("HTTP/1.1 ")
	if len(line) < version+3 {
		return 0, false, protocolError("its first line is no status line")
	}
	switch string(line[:version]) {
	case "HTTP/1.1 ":
	case "HTTP/1.0 ":
		oldHTTP = true
	default:
		return 0, false, protocolError("its first line is no status line")
	}
	code, err := strconv.ParseUint(string(line[version:version+3]), 10, 16)
	reason := line[version+3:]
	if err != nil || code < 100 || code > 599 || len(reason) > 0 && reason[0] != ' ' {
		return 0, false, protocolError("its status is not a number between 100 and 599")
	}
	if !isFieldValue(reason) {
		return 0, false, protocolError("a control character in its status line")
	}
	return int(code), oldHTTP, nil
}

// parseHead parses a block from readHead. All values are parts of one string, and single values
// share one array: a head costs four allocations, however many fields it has.
func parseHead(block []byte) (h answerHead, err error) {
	end := bytes.IndexByte(block, '\n') + 1
	if h.status, h.oldHTTP, err = parseStatus(block[:end-2]); err != nil {
		return h, err
	}
	text := string(block[end:])
	fields := strings.Count(text, "\n")
	h.header, h.length = make(http.Header, fields), -1
	values := make([]string, 0, fields)
	for text != "" {
		lf := strings.IndexByte(text, '\n')
		name, value, err := parseField(text[:lf-1])
		if err != nil {
			return h, err
		}
		text = text[lf+1:]
		key, ok := usualNames[name]
		if !ok {
			key = textproto.CanonicalMIMEHeaderKey(name)
		}
		if keep, err := h.storeFraming(key, value); err != nil {
			return h, err
		} else if !keep {
			continue
		}
		if old, ok := h.header[key]; ok {
			h.header[key] = append(old, value)
			continue
		}
		values = append(values, value)
		h.header[key] = values[len(values)-1 : len(values) : len(values)]
	}
	if h.chunked && (h.length >= 0 || h.oldHTTP) {
		return h, protocolError("Transfer-Encoding beside Content-Length or in HTTP/1.0")
	}
	h.dropNamed()
	return h, nil
}

// parseField splits a header line. It rejects a line that begins with a blank, the obsolete
// folding, and a blank before the colon.
func parseField(line string) (name, value string, err error) {
	colon := strings.IndexByte(line, ':')
	if colon < 0 || !isToken(line[:colon]) {
		return "", "", protocolError("a header line without a proper name")
	}
	value = strings.Trim(line[colon+1:], " \t")
	if !isFieldValue(value) {
		return "", "", protocolError("a control character in a header value")
	}
	return line[:colon], value, nil
}

// storeFraming stores the fields that frame the answer. keep reports whether the field belongs into
// the Response; fields of this connection do not.
func (h *answerHead) storeFraming(key, value string) (keep bool, err error) {
	switch key {
	case "Content-Length":
		// Digits only; no body has more than 18.
		n, err := strconv.ParseUint(value, 10, 63)
		repeated := h.length >= 0
		if err != nil || len(value) > 18 || repeated && h.length != int64(n) {
			return false, protocolError("Content-Length is not one number")
		}
		h.length = int64(n)
		return !repeated, nil
	case "Transfer-Encoding":
		if h.chunked || !strings.EqualFold(value, "chunked") {
			return false, protocolError("Transfer-Encoding is not chunked, once")
		}
		h.chunked = true
		return false, nil
	case "Connection":
		h.options += "," + strings.ToLower(value)
		return false, nil
	case "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade":
		return false, nil
	}
	return true, nil
}

func (h *answerHead) hasOption(name string) bool {
	for o := range strings.SplitSeq(h.options, ",") {
		if strings.Trim(o, " \t") == name {
			return true
		}
	}
	return false
}

// dropNamed removes the fields that the worker's Connection header names: they are for this
// connection only (RFC 9110 §7.6.1).
func (h *answerHead) dropNamed() {
	if h.options == "" || h.options == ",close" || h.options == ",keep-alive" {
		return
	}
	for o := range strings.SplitSeq(h.options, ",") {
		delete(h.header, textproto.CanonicalMIMEHeaderKey(strings.Trim(o, " \t")))
	}
}

// usualNames maps the header names that engines and hosted services send to their canonical form.
var usualNames = func() map[string]string {
	return bothSpellings("Access-Control-Allow-Origin", "Alt-Svc", "Cache-Control", "Cf-Cache-Status", "Cf-Ray",
		"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Keep-Alive",
		"Openai-Organization", "Openai-Processing-Ms", "Openai-Version", "Request-Id", "Retry-After", "Retry-After-Ms",
		"Server", "Strict-Transport-Security", "Transfer-Encoding", "Vary", "Via", "X-Accel-Buffering",
		"X-Content-Type-Options", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Limit-Tokens",
		"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Requests",
		"X-Ratelimit-Reset-Tokens", "X-Request-Id", "X-Should-Retry")
}()
