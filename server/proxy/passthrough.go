package proxy

import (
	"bytes"
	"net/http"
	"strings"

	"tierway/openai"
)

// passThrough serves a request that matches no route: untouched through a pool
// whose paths cover it, else with an error. Its answer is relayed as raw bytes,
// whatever dialect the path or the headers resemble. status is 405 when the path has
// a route for other methods.
func passThrough(x *exchange, status int) error {
	if err := x.authenticate(); err != nil {
		return err
	}
	if err := findPassing(x, status); err != nil {
		return err
	}
	if done, err := passStored(x); done {
		return err
	}
	if err := readPassed(x); err != nil {
		return err
	}
	if err := x.admission.charge(x.admission.take); err != nil {
		return err
	}
	x.gather()
	return x.dispatch.forward()
}

// findPassing finds the pool whose paths cover the request.
func findPassing(x *exchange, status int) error {
	if strings.EqualFold(x.in.r.Header.Get("Upgrade"), "websocket") {
		return noWebSocket()
	}
	x.caller.inLedger = true
	if err := checkHeaders(x.in.r.Header); err != nil {
		return err
	}
	if x.resolution.pool = passingPool(x.snap, x.in.r.URL.Path, x.caller.Caller); x.resolution.pool == nil {
		return x.in.unknownURL(status, x.answer.header())
	}
	return nil
}

// readPassed reads the request of a path that passes through a pool: its body, or
// leaves it to stream.
func readPassed(x *exchange) (err error) {
	if err := refuseKept(x); err != nil {
		return err
	}
	if x.parsed.upload, err = openUpload(x); err != nil {
		return err
	}
	x.parsed.req = &openai.Request{Dialect: openai.Other}
	if x.parsed.upload == nil {
		if x.parsed.req, err = readUntouched(x); err != nil {
			return err
		}
	}
	x.in.workerPath = x.in.r.URL.EscapedPath()
	x.resolution.Rule = "path"
	x.parsed.class, x.parsed.askedClass = x.in.class(x.caller.Caller, x.parsed.req.ServiceTier)
	return nil
}

// readUntouched reads a body that passes through.
func readUntouched(x *exchange) (*openai.Request, error) {
	body, err := readBody(x)
	if err != nil {
		return nil, err
	}
	return passedRequest(x, body)
}

// speaksOfRights tells whether a body may have a member that no tenant may choose
// freely, its name plain or escaped. "priority" is a word of many texts: it is
// looked for as a name only.
func speaksOfRights(body []byte, e openai.Engine) bool {
	for _, name := range []string{"cache_salt", "extra_key", `\u`} {
		if bytes.Contains(body, []byte(name)) {
			return true
		}
	}
	for _, name := range openai.EngineFields {
		if bytes.Contains(body, []byte(name)) {
			return true
		}
	}
	return (e == openai.EngineAuto || e.TakesPriority()) && hasMember(body, `"priority"`)
}

// hasMember tells whether a quoted name stands somewhere in front of a colon.
func hasMember(body []byte, name string) bool {
	for {
		_, rest, found := bytes.Cut(body, []byte(name))
		if !found {
			return false
		}
		if bytes.HasPrefix(bytes.TrimLeft(rest, jsonSpace), []byte(":")) {
			return true
		}
		body = rest
	}
}

const (
	jsonSpace     = " \t\r\n"
	byteOrderMark = "\xef\xbb\xbf"
)

// trimBlank removes what JSON readers skip before a value: a byte order mark and blanks.
func trimBlank(body []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(body, []byte(byteOrderMark)), jsonSpace)
}

// isObject reports whether a body may be one JSON object: nothing else has members
// that an engine takes for a request's.
func isObject(body []byte) bool { return bytes.HasPrefix(trimBlank(body), []byte("{")) }

// otherwiseEncoded tells whether a body that is said to be JSON is in UTF-16 or
// UTF-32, which RFC 8259 does not allow and Python's reader takes: the first two
// characters are of ASCII, or a mark of the byte order stands before them.
func (in *inbound) otherwiseEncoded(body []byte) bool {
	kind := mediaType(in.r.Header.Get("Content-Type"))
	if kind != "" && kind != "application/json" && !strings.HasSuffix(kind, "+json") || len(body) < 2 {
		return false
	}
	return body[0] == 0 || body[1] == 0 || body[0] >= 0xfe
}

// passedRequest returns a body that passes unchanged, except for a cache_salt, which no
// tenant may choose for itself, a priority above its class, and fields that name other
// hosts or place the request inside an engine. A body that cannot be
// read for these must not contain them at all. A body of the Responses API is read
// too, because it may continue a stored response.
func passedRequest(x *exchange, body []byte) (*openai.Request, error) {
	_, _, continues := openai.ResponsePath(x.in.r.URL.Path)
	if !x.in.otherwiseEncoded(body) && !(isObject(body) && (continues || speaksOfRights(body, x.resolution.pool.Engine))) {
		return &openai.Request{Dialect: openai.Other, Body: body}, nil
	}
	r, err := openai.Parse(openai.Other, body, openai.Limits{})
	if err != nil {
		return nil, err
	}
	if !continues {
		r.PreviousResponseID, r.ConversationID = "", "" // of another API, whose meaning is not known
	}
	if r.CacheSalt != "" {
		x.parsed.salt = openai.CacheSalt(x.caller.Tenant, r.CacheSalt)
	}
	return r, nil
}

// unknownURL is the answer to a request that no route and no pool takes. A POST
// below /responses names an action that is not there, not a response.
func (in *inbound) unknownURL(status int, h http.Header) error {
	if id, below, ok := openai.ResponsePath(in.r.URL.Path); ok && id != "" && below == "" && in.r.Method == http.MethodPost {
		h.Del("Allow")
		status = 0
	}
	if status == http.StatusMethodNotAllowed {
		return &openai.Error{Code: openai.CodeMethodNotAllowed, Allow: h.Get("Allow"),
			Message: "Method " + knownMethod(in.r.Method) + " is not allowed here; allowed: " + h.Get("Allow") + "."}
	}
	return &openai.Error{Code: openai.CodeUnknownURL, Message: unknownURL(in.r)}
}

func unknownURL(r *http.Request) string {
	return "Unknown URL: " + knownMethod(r.Method) + " " + quoted(r.URL.Path) + "."
}
