package openai

// EachText calls do with every text that the model reads of the request, escapes
// resolved, and returns the number of token ids beside them. A text is valid until
// do returns. Templates, images and audio are not texts; a form has none. It reads
// the whole body again.
func (r *Request) EachText(do func(text []byte)) (ids int64) {
	if r.place.form {
		return 0
	}
	again := Request{Dialect: r.Dialect, N: 1}
	p := parser{Reader: Reader{b: r.Body, limit: len(r.Body), strict: true}, req: &again}
	p.each = func(raw []byte) { do(decoded(raw, len(raw))) }
	p.body() // it was read well before
	return again.ids
}

// Reader returns a reader of the request's body, for values that begin where At says.
func (r *Request) Reader() Reader { return newReader(r.Body) }

// At returns where the value of a field begins in the body if the field is given, is not
// null and shapes the prompt in the request's dialect; else 0. A form has no fields.
func (r *Request) At(f Field) int { return r.place.of(f) }
