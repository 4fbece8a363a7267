package intake

import (
	"fmt"

	"tierway/openai"
)

// FromForm reports whether the body is a form with files. No other body of a route is anything but JSON.
func (p *Parsed) FromForm(in *Inbound) bool {
	return openai.MediaType(in.HTTP.Header.Get("Content-Type")) == "multipart/form-data"
}

// Replace replaces the body of a request by one that a hook returned, and parses it with all limits of a client's. It
// also reads the request's headers again. A nil body keeps the present one. The tenant, the key and the path do not
// depend on the body; a model is checked by Resolve, which must follow. After an error, p is unchanged. Call
// NameModel before the first Replace.
//
// The length of the body must be reserved in in.Memory. Replace releases everything else of it.
func (it *Intake) Replace(in *Inbound, c *Caller, p *Parsed, body []byte) error {
	if body == nil {
		p.Class, p.AskedClass = in.class(c.Caller, p.Req.ServiceTier)
		return nil
	}
	if maxBytes := int64(in.Snap.File.MaxBodyBytes); int64(len(body)) > maxBytes {
		return fmt.Errorf("the changed body has %d bytes, more than max_body_bytes (%d)", len(body), maxBytes)
	}
	req, err := openai.Parse(in.Dialect, body)
	switch {
	case err != nil:
		return err
	case req.Stream != p.Req.Stream:
		return errStreamChanged
	}
	it.setContent(in, c, p, req)
	return nil
}

// setContent makes req the content of the request. It releases all memory except that of its body.
func (it *Intake) setContent(in *Inbound, c *Caller, p *Parsed, req *openai.Request) {
	it.DropPrompt(p)
	*p = Parsed{in: in}
	it.fill(in, c, p, req)
	in.Memory.Return(in.Memory.Reserved - int64(len(req.Body)))
}

// NameModel writes the model that the path names into the body, and clears in.Deployment: from then on the model of the
// body applies. Call it before Replace, so that hooks receive the model and can change it.
func (it *Intake) NameModel(in *Inbound, c *Caller, p *Parsed) error {
	if in.Deployment == "" {
		return nil
	}
	if body := p.Req.NamedBody(); body != nil {
		if in.Memory.Reserve(int64(len(body))) != nil {
			return it.noBodyMemory()
		}
		req, err := openai.Parse(in.Dialect, body)
		if err != nil {
			return err
		}
		it.setContent(in, c, p, req)
	}
	in.Deployment = ""
	return nil
}

// errStreamChanged refuses a body that another kind of answer belongs to: the client would not understand it.
var errStreamChanged = fmt.Errorf("the changed body has another value of stream")
