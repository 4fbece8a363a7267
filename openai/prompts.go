package openai

// Prompts returns how many prompts the request brings, each of which is answered
// by itself: more than one only in the Completions dialect, whose prompt may be
// a list of texts or of lists of token ids.
func (r *Request) Prompts() int64 {
	at := r.place.of(FieldPrompt)
	if r.Dialect != Completions || at == 0 {
		return 1
	}
	c := newReader(r.Body[at:])
	if c.Next() != '[' {
		return 1
	}
	n := int64(0)
	for c.Enter('['); c.More(']'); {
		if first := c.Next(); first != '"' && first != '[' {
			return 1 // the ids of one prompt
		}
		c.Skip()
		n++
	}
	return max(1, n)
}
