package intake

import (
	"errors"
	"fmt"

	"tierway/openai"
	"tierway/server/control"
)

// ReadFeedback reads and parses the body of a feedback.
func (it *Intake) ReadFeedback(in *Inbound, c *Caller) (Parsed, *openai.Feedback, error) {
	p := Parsed{in: in}
	if err := in.CheckHeaders(); err != nil {
		return p, nil, err
	}
	body, err := it.readBody(in, c, openai.MaxFeedback)
	if refused, ok := errors.AsType[*openai.RequestError](err); ok && refused.Reason == openai.CodeRequestTooLarge {
		err = &openai.Error{Code: openai.CodeRequestTooLarge,
			Message: fmt.Sprintf("The body exceeds %d bytes: send only id, ok and weight.", openai.MaxFeedback)}
	}
	if err == nil {
		err = checkJSONType(in, c, body)
	}
	if err != nil {
		return p, nil, err
	}
	f, err := openai.ParseFeedback(body)
	if err == nil && !control.IsRequestID(f.ID) {
		err = &openai.RequestError{Reason: openai.CodeInvalidValue, Param: "id",
			Message: "id is not the X-Request-ID of an answer: send 1 to 128 letters, digits, points, hyphens and underscores"}
	}
	return p, f, err
}
