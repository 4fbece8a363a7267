package openai

// EachText calls do with every decoded text that the model reads, and returns the number of
// token IDs in the prompt. A text is valid until do returns. Templates, images and audio are
// not texts; a form has no texts. Each call reads the whole body.
func (r *Request) EachText(do func(text []byte)) (ids int64) {
	if r.place.form {
		return 0
	}
	scratch := Request{Dialect: r.Dialect, N: 1}
	p := parser{Reader: Reader{b: r.Body, limit: len(r.Body), strict: true}, req: &scratch}
	p.onText = func(raw []byte) { do(decoded(raw, len(raw))) }
	p.readBody() // the body is valid: Parse has read it
	return scratch.ids
}

// Reader returns a reader of the request body, for values at positions of At.
func (r *Request) Reader() Reader { return NewReader(r.Body) }

// At returns the position of a field's value in the body if the field is present, not null and
// shapes the prompt in the request's dialect; else 0. A form has no fields.
func (r *Request) At(f Field) int { return r.place.start(f) }
