package intake

import (
	"net/http"
	"strings"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/server/control"
)

// Read reads and decodes the body, and parses the fields that routing needs.
func (it *Intake) Read(in *Inbound, c *Caller) (Parsed, error) {
	p := Parsed{in: in}
	if err := in.CheckHeaders(); err != nil {
		return p, err
	}
	if in.isUpgrade() {
		return p, noWebSocket(in)
	}
	body, err := it.readBody(in, c, int64(in.Snap.File.MaxBodyBytes))
	if err != nil {
		return p, err
	}
	req, err := parseBody(in, c, body)
	if err != nil {
		return p, err
	}
	it.fill(in, c, &p, req)
	return p, nil
}

// fill sets the fields of p that depend on the body's content.
func (it *Intake) fill(in *Inbound, c *Caller, p *Parsed, req *openai.Request) {
	req.Dialect = in.Dialect
	p.Req, p.RawTokens = req, req.PromptTokens()
	p.Class, p.AskedClass = in.class(c.Caller, req.ServiceTier)
	p.Estimate = p.RawTokens
	if usual := in.Snap.DefaultTier; usual != nil {
		p.Estimate = usual.Routing.Learned().PromptTokens(p.RawTokens)
	}
	if req.CacheSalt != "" || c.IsolateCache {
		p.Salt = openai.CacheSalt(c.Tenant, req.CacheSalt)
	}
	p.Prompt = it.prompts.Get().(*Prompt)
	p.Prompt.chain, p.Prompt.first = prompt.AppendChain(p.Prompt.chain[:0], req, control.NameHash(p.Salt))
}

func parseBody(in *Inbound, c *Caller, body []byte) (*openai.Request, error) {
	contentType := in.HTTP.Header.Get("Content-Type")
	if openai.MediaType(contentType) == "multipart/form-data" && in.takesForms {
		r, err := openai.ParseMultipart(contentType, body)
		if err == nil {
			err = r.ReplaceModel(in.Deployment)
		}
		return r, err
	}
	if err := checkJSONType(in, c, body); err != nil {
		return nil, err
	}
	return openai.ParseFor(in.Dialect, body, in.Deployment)
}

// checkJSONType returns an error if the Content-Type of a body is not JSON.
func checkJSONType(in *Inbound, c *Caller, body []byte) error {
	contentType := in.HTTP.Header.Get("Content-Type")
	switch kind := openai.MediaType(contentType); {
	// a web page can send a body without a Content-Type
	case kind == "application/json" || kind == "" && (!c.keyless || len(body) == 0):
		return nil
	case contentType == "":
		return &openai.Error{Code: openai.CodeUnsupportedMediaType,
			Message: "The request has no Content-Type; send application/json."}
	}
	return &openai.Error{Code: openai.CodeUnsupportedMediaType,
		Message: "Content-Type " + openai.Quoted(contentType) + " is not supported here; send application/json."}
}

// isUpgrade reports whether the request asks for a WebSocket.
func (in *Inbound) isUpgrade() bool {
	return strings.EqualFold(in.HTTP.Header.Get("Upgrade"), "websocket")
}

// noWebSocket returns the answer to a request for a WebSocket. It names a route that takes the request over HTTP.
func noWebSocket(in *Inbound) error {
	urlPath := in.HTTP.URL.Path
	if openai.OwnMethod(urlPath) != http.MethodPost {
		urlPath = "/v1" + routeResponses + " or /v1/chat/completions"
	}
	return &openai.Error{Code: openai.CodeWebSocketNotSupported,
		Message: "WebSocket is not served here; send the request as HTTP POST to " + urlPath + "."}
}
