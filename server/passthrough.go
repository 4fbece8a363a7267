package server

import (
	"bytes"
	"net/http"
	"strings"

	"tierway/openai"
)

// passThrough serves a request that is on no route: untouched through a pool
// whose paths take it, else with an error. status is 405 when the path has a
// route for other methods.
func (x *exchange) passThrough(status int) error {
	if err := x.authenticate(); err != nil {
		return err
	}
	if strings.EqualFold(x.r.Header.Get("Upgrade"), "websocket") {
		return errWebSocket
	}
	x.inLedger = true
	x.pool = x.snap.passing(x.r.URL.Path, x.caller)
	if x.pool == nil {
		return x.unknownURL(status)
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	if x.req, err = x.passed(body); err != nil {
		return err
	}
	x.workerPath = x.r.URL.EscapedPath()
	x.class = x.priority()
	x.d.Class, x.d.Tier, x.d.Policy, x.d.Rule = x.class.String(), x.pool.Name, x.pool.Policy.Name, "path"
	if err := x.charge(); err != nil {
		return err
	}
	x.gather()
	return x.forward()
}

// speaksOfRights tells whether a body may have a member that no tenant may choose
// freely, its name plain or escaped. "priority" is a word of many texts: it is
// looked for as a name only.
func (x *exchange) speaksOfRights(body []byte) bool {
	for _, name := range []string{"cache_salt", "extra_key", `\u`} {
		if bytes.Contains(body, []byte(name)) {
			return true
		}
	}
	e := x.pool.Engine
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

const jsonSpace = " \t\r\n"

// isObject tells whether a body may be one JSON object: nothing else has members
// that an engine takes for a request's. Readers skip a mark of the byte order.
func isObject(body []byte) bool {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	return bytes.HasPrefix(bytes.TrimLeft(body, jsonSpace), []byte("{"))
}

// otherwiseEncoded tells whether a body that is said to be JSON is in UTF-16 or
// UTF-32, which RFC 8259 does not allow and Python's reader takes: the first two
// characters are of ASCII, or a mark of the byte order stands before them.
func (x *exchange) otherwiseEncoded(body []byte) bool {
	kind := mediaType(x.r.Header.Get("Content-Type"))
	if kind != "" && kind != "application/json" && !strings.HasSuffix(kind, "+json") || len(body) < 2 {
		return false
	}
	return body[0] == 0 || body[1] == 0 || body[0] >= 0xfe
}

// passed is a body that goes through untouched but for a cache_salt, which no
// tenant may choose for itself, and for a priority above its class. An object that
// cannot be read for them must not speak of them at all.
func (x *exchange) passed(body []byte) (*openai.Request, error) {
	if !x.otherwiseEncoded(body) && !(isObject(body) && x.speaksOfRights(body)) {
		return &openai.Request{Dialect: openai.Other, Body: body}, nil
	}
	r, err := openai.Parse(openai.Other, body, openai.Limits{})
	if err != nil {
		return nil, err
	}
	if r.CacheSalt != "" {
		x.salt = openai.CacheSalt(x.caller.Tenant, r.CacheSalt)
	}
	return r, nil
}

// unknownURL is the answer to what nothing takes.
func (x *exchange) unknownURL(status int) error {
	if status == http.StatusMethodNotAllowed {
		return &openai.Error{Code: openai.CodeMethodNotAllowed, Allow: x.w.Header().Get("Allow"),
			Message: "Method " + knownMethod(x.r.Method) + " is not allowed here; allowed: " + x.w.Header().Get("Allow") + "."}
	}
	return &openai.Error{Code: openai.CodeUnknownURL, Message: "Unknown URL: " + knownMethod(x.r.Method) + " " + quoted(x.r.URL.Path) + "."}
}
