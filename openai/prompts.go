package openai

// Prompts returns the number of prompts in the request, each of which gets its own output. Only
// the Completions dialect accepts several, as a list of strings or of lists of token IDs.
func (r *Request) Prompts() int64 {
	at := r.place.start(FieldPrompt)
	if r.Dialect != Completions || at == 0 {
		return 1
	}
	c := NewReader(r.Body[at:])
	if c.Next() != '[' {
		return 1
	}
	n := int64(0)
	for c.Enter('['); c.More(']'); {
		if first := c.Next(); first != '"' && first != '[' {
			return 1 // the token IDs of one prompt
		}
		c.Skip()
		n++
	}
	return max(1, n)
}
