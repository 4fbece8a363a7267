package http1

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// requestHead is the head of a usual request.
type requestHead struct {
	method, target string
	url            url.URL
	header         http.Header
	host           string
	length         int64 // Content-Length; 0 without
	closes         bool  // the connection ends with the request
}

// fill sets the fields of a request, which refers to the URL of the head.
func (h *requestHead) fill(r *http.Request) {
	r.Method, r.RequestURI, r.URL, r.Header = h.method, h.target, &h.url, h.header
	r.Host, r.ContentLength, r.Close = h.host, h.length, h.closes
}

// usualMethods are the methods of usual requests.
var usualMethods = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodPost: true,
	http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true, http.MethodOptions: true}

// parseRequestHead parses a head with its empty line, each line with its CRLF. ok is false if the request is not usual:
// it has a version other than HTTP/1.1, no path, not exactly one Host, more than one Content-Length, or anything that
// net/http could read in another way. All values are parts of one string, and single ones share one array.
func parseRequestHead(block []byte) (h requestHead, ok bool) {
	line, text, _ := strings.Cut(string(block[:len(block)-2]), "\r\n")
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	fields := strings.Count(text, "\n")
	if version != "HTTP/1.1" || !usualMethods[method] || !isTarget(target) || fields > maxFields {
		return h, false
	}
	u, err := parseTarget(target)
	if err != nil {
		return h, false
	}
	h.method, h.target, h.url, h.header = method, target, u, make(http.Header, fields)
	values := make([]string, 0, fields)
	for text != "" {
		lf := strings.IndexByte(text, '\n')
		name, value, err := parseField(text[:lf-1])
		if err != nil {
			return h, false
		}
		text = text[lf+1:]
		key, known := usualRequestNames[name]
		if !known {
			key = textproto.CanonicalMIMEHeaderKey(name)
		}
		old, repeated := h.header[key]
		if !h.storeFraming(key, value, repeated) {
			return h, false
		}
		switch {
		case key == "Host": // net/http keeps it out of the header
		case repeated:
			h.header[key] = append(old, value)
		default:
			values = append(values, value)
			h.header[key] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	return h, h.host != ""
}

// storeFraming stores the fields of the connection, and reports whether the request is usual.
func (h *requestHead) storeFraming(key, value string, repeated bool) bool {
	switch key {
	case "Host":
		usual := h.host == "" && isPlainHost(value)
		h.host = value
		return usual
	case "Content-Length": // digits only; no body has more than 18
		n, err := strconv.ParseUint(value, 10, 63)
		h.length = int64(n)
		return err == nil && len(value) <= 18 && !repeated
	case "Connection":
		h.closes = strings.EqualFold(value, "close")
		return !repeated && (h.closes || strings.EqualFold(value, "keep-alive"))
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Http2-Settings":
		return false
	case "Pragma": // net/http adds a Cache-Control
		return false
	}
	return true
}

// parseTarget parses a target that begins with a slash, as net/http does.
func parseTarget(target string) (url.URL, error) {
	for i := range len(target) {
		if c := target[i]; !isAlphanumeric(c) && c != '/' && c != '-' && c != '.' && c != '_' {
			u, err := url.ParseRequestURI(target)
			if err != nil {
				return url.URL{}, err
			}
			return *u, nil
		}
	}
	return url.URL{Path: target}, nil
}

// isPlainHost reports whether a Host has only characters of names, addresses and ports.
func isPlainHost(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune(".:-_[]", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// usualRequestNames maps the header names that clients and proxies send to their canonical form.
var usualRequestNames = func() map[string]string {
	return bothSpellings("Accept", "Accept-Encoding", "Accept-Language", "Anthropic-Version", "Api-Key",
		"Authorization", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Cookie", "Host",
		"Idempotency-Key", "Openai-Beta", "Openai-Organization", "Openai-Project", "Origin", "Referer", "Traceparent",
		"Tracestate", "User-Agent", "X-Api-Key", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-Model-Tier", "X-Real-Ip", "X-Request-Id", "X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Lang",
		"X-Stainless-Os", "X-Stainless-Package-Version", "X-Stainless-Read-Timeout", "X-Stainless-Retry-Count",
		"X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout")
}()

// bothSpellings maps canonical names, and the same in lower case, to the canonical ones.
func bothSpellings(names ...string) map[string]string {
	table := make(map[string]string, 2*len(names))
	for _, name := range names {
		table[name], table[strings.ToLower(name)] = name, name
	}
	return table
}
