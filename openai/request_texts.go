package openai

// EachText calls do with every text that the model reads of the request, escapes
// resolved, and returns the number of token ids beside them. A text is valid until
// do returns. Templates, images and audio are not texts; a form has none. It reads
// the whole body again.
func (r *Request) EachText(do func(text []byte)) (ids int64) {
	if r.place.form {
		return 0
	}
	var decoded []byte
	again := Request{Dialect: r.Dialect, N: 1}
	p := parser{scanner: scanner{b: r.Body, limit: len(r.Body)}, req: &again}
	p.each = func(t text) {
		raw := p.b[t.from:t.to]
		if t.escaped {
			decoded = appendDecoded(decoded[:0], raw, len(raw))
			raw = decoded
		}
		do(raw)
	}
	p.body() // it was read well before
	return again.ids
}
