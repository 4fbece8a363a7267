package intake

import (
	"bytes"
	"net/http"
	"path"
	"strings"

	"tierway/openai"
	"tierway/server/control"
)

// FindPool returns the pool that covers the path of a request without a route, or the error for the
// client. status is 405 if the path has a route for other methods.
func FindPool(in *Inbound, c *Caller, status int) (*control.Pool, error) {
	if in.isUpgrade() {
		return nil, noWebSocket(in)
	}
	if err := in.CheckHeaders(); err != nil {
		return nil, err
	}
	if p := PassingPool(in, c); p != nil {
		return p, nil
	}
	return nil, in.unknownURL(status)
}

// PassingPool returns the pool that covers the path of a request without a route, or nil. The longest
// pattern wins. Engines normalize dot segments and double slashes and often ignore a trailing slash,
// so no pattern covers a path that an engine could read as another one.
func PassingPool(in *Inbound, c *Caller) *control.Pool {
	urlPath := in.HTTP.URL.Path
	bare := strings.TrimSuffix(urlPath, "/")
	if clean := path.Clean(urlPath); clean != urlPath && (clean != bare || isRoute(bare)) {
		return nil
	}
	var best *control.Pool
	longest := -1
	for _, p := range in.Snap.Pools {
		for _, pattern := range p.Paths {
			if len(pattern) > longest && matchPath(pattern, urlPath) && c.MayPass(p.Name) && p.Admits(c.Caller) {
				best, longest = p, len(pattern)
			}
		}
	}
	return best
}

// matchPath reports whether a pattern, exact or with a star at its end, matches a path.
func matchPath(pattern, urlPath string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(urlPath, prefix)
	}
	return pattern == urlPath
}

// ReadPassed reads the request of a passed path. It reads the body, or opens it as an upload.
func (it *Intake) ReadPassed(in *Inbound, c *Caller, pool *control.Pool) (Parsed, error) {
	p := Parsed{in: in}
	p.Class, p.AskedClass = in.class(c.Caller, "")
	if err := refuseKeptObjects(in, pool); err != nil {
		return p, err
	}
	u, err := openUpload(in, pool.MaxUploadBytes)
	switch {
	case err != nil:
		return p, err
	case u == nil:
		return it.ReadUntouched(in, c, pool)
	}
	p.Upload, p.Req = u, &openai.Request{Dialect: openai.Other}
	return p, nil
}

// ReadUntouched reads a body that a pool receives unchanged, except for the fields of passedRequest.
func (it *Intake) ReadUntouched(in *Inbound, c *Caller, pool *control.Pool) (Parsed, error) {
	p := Parsed{in: in}
	body, err := it.readBody(in, c, int64(in.Snap.File.MaxBodyBytes))
	if err != nil {
		return p, err
	}
	if p.Req, err = passedRequest(in, pool, body); err != nil {
		return p, err
	}
	if p.Req.CacheSalt != "" {
		p.Salt = openai.CacheSalt(c.Tenant, p.Req.CacheSalt)
	}
	p.Class, p.AskedClass = in.class(c.Caller, p.Req.ServiceTier)
	return p, nil
}

// mayHaveRestrictedField reports whether a body may have a field that tenants may not choose freely,
// with its name plain or escaped. "priority" is common in texts, so it counts only as a field name.
func mayHaveRestrictedField(body []byte, e openai.Engine) bool {
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

// hasMember reports whether a colon follows the quoted name somewhere in the body.
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

// trimBlank removes the byte order mark and blanks that JSON parsers skip before a value.
func trimBlank(body []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(body, []byte(byteOrderMark)), jsonSpace)
}

// isObject reports whether a body may be a JSON object. No other value has fields that an engine reads.
func isObject(body []byte) bool { return bytes.HasPrefix(trimBlank(body), []byte("{")) }

// otherwiseEncoded reports whether a JSON body is in UTF-16 or UTF-32, which RFC 8259 forbids and
// Python's parser accepts. Such a body has a zero byte in its first two bytes, or a byte order mark.
func (in *Inbound) otherwiseEncoded(body []byte) bool {
	kind := openai.MediaType(in.HTTP.Header.Get("Content-Type"))
	if kind != "" && kind != "application/json" && !strings.HasSuffix(kind, "+json") || len(body) < 2 {
		return false
	}
	return body[0] == 0 || body[1] == 0 || body[0] >= 0xfe
}

// passedRequest returns the request of a passed path. Its body passes unchanged, except for fields that
// a tenant may not choose freely: cache_salt, a priority above its class, and fields that name hosts or
// a place inside an engine. The body is parsed only if it may have such a field, or if it belongs to
// the Responses API and may continue a stored response. It is then rejected if it is not JSON in UTF-8.
func passedRequest(in *Inbound, pool *control.Pool, body []byte) (*openai.Request, error) {
	_, _, continues := openai.ResponsePath(in.HTTP.URL.Path)
	if !in.otherwiseEncoded(body) && !(isObject(body) && (continues || mayHaveRestrictedField(body, pool.Engine))) {
		return &openai.Request{Dialect: openai.Other, Body: body}, nil
	}
	r, err := openai.Parse(openai.Other, body)
	if err != nil {
		return nil, err
	}
	if !continues {
		r.PreviousResponseID, r.ConversationID = "", "" // another API may use these names with another meaning
	}
	return r, nil
}

// unknownURL returns the answer to a request that no route and no pool covers. A POST below /responses
// names an unknown action, not a response.
func (in *Inbound) unknownURL(status int) error {
	if id, below, ok := openai.ResponsePath(in.HTTP.URL.Path); ok && id != "" && below == "" &&
		in.HTTP.Method == http.MethodPost {
		in.header.Del("Allow")
		status = 0
	}
	if status == http.StatusMethodNotAllowed {
		allow := in.header.Get("Allow")
		return &openai.Error{Code: openai.CodeMethodNotAllowed, Allow: allow,
			Message: "Method " + in.Method() + " is not allowed here; allowed: " + allow + "."}
	}
	return &openai.Error{Code: openai.CodeUnknownURL, Message: in.unknownURLMessage()}
}

func (in *Inbound) unknownURLMessage() string {
	return "Unknown URL: " + in.Method() + " " + openai.Quoted(in.HTTP.URL.Path) + ". Check the base URL and the path."
}
