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
// depend on the body; a model is checked by Resolve, which must follow. After an error, p is unchanged.
//
// The length of the body must be reserved in in.Memory. Replace releases everything else of it.
func (it *Intake) Replace(in *Inbound, c *Caller, p *Parsed, body []byte) error {
	if body == nil {
		p.Class, p.AskedClass = in.class(c.Caller, p.Req.ServiceTier)
		return nil
	}
	if most := int64(in.Snap.File.MaxBodyBytes); int64(len(body)) > most {
		return fmt.Errorf("the changed body has %d bytes, more than max_body_bytes (%d)", len(body), most)
	}
	req, err := openai.ParseFor(in.Dialect, body, in.Deployment)
	switch {
	case err != nil:
		return err
	case req.Stream != p.Req.Stream:
		return errStreamChanged
	}
	it.DropPrompt(p)
	*p = Parsed{in: in}
	it.fill(in, c, p, req)
	in.Memory.Return(in.Memory.Reserved - int64(len(body)))
	return nil
}

// errStreamChanged refuses a body that another kind of answer belongs to: the client would not understand it.
var errStreamChanged = fmt.Errorf("the changed body has another value of stream")
