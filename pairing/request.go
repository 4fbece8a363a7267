package pairing

import (
	"bytes"
	"encoding/json"

	"tierway/openai"
)

// Comparable reports whether the answers of two tiers to a request can be compared as texts: the request has one
// prompt, asks for one answer, offers no tools, and refers to no images, audio or files.
func Comparable(r *openai.Request) bool {
	return r.N <= 1 && r.Prompts() <= 1 && !r.Tools && !r.Media
}

// Unstreamed returns the body of a request without its fields about streams, so that the answer comes as a whole.
// The body must be a JSON object without duplicate fields.
func Unstreamed(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	delete(fields, "stream")
	delete(fields, "stream_options")
	return encode(fields)
}

// encode returns a value as JSON, with texts as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
