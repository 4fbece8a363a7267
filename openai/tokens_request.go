package openai

// CountTokens counts the tokens of what the model reads of the request: every
// text by itself, and token ids as they are. Templates, images and audio are not
// in it. It reads the whole body again, and takes a microsecond or more for 30
// characters: bound PromptBytes first. Forms have none.
func (r *Request) CountTokens(v *Vocabulary) int64 {
	if r.place.form {
		return 0
	}
	var tokens int64
	var decoded []byte
	again := Request{Dialect: r.Dialect, N: 1}
	p := parser{scanner: scanner{b: r.Body, limit: len(r.Body)}, req: &again}
	p.each = func(t text) {
		raw := p.b[t.from:t.to]
		if t.escaped {
			decoded = appendDecoded(decoded[:0], raw, len(raw))
			raw = decoded
		}
		tokens += int64(v.Count(raw))
	}
	p.body() // it was read well before
	return tokens + again.ids
}
