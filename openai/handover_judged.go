package openai

import "slices"

// outputFields are fields of a body that the request of a prefill stage replaces or removes. An engine that sees only
// that request does not refuse their faults.
type outputFields struct {
	limited bool
	limit   int64 // the lowest output limit
	min     int64 // min_tokens
	budget  int64 // thinking.budget_tokens, which must be below the limit; -1: none
	unclear bool  // engines may read a value differently
}

// defaultCompletion is the output limit of completions without max_tokens.
const defaultCompletion = 16

func (o *outputFields) read(r *Request, name string, c *Reader) {
	switch name {
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		replaced := (name == "max_output_tokens") == (r.Dialect == Responses)
		if n, ok := c.readInteger(); ok && replaced && (!o.limited || n < o.limit) {
			o.limited, o.limit = true, n
		}
	case "min_tokens":
		o.min = o.number(c)
	case "stream_options":
		at := r.place.continuous // an engine may refuse a value other than true
		o.unclear = o.unclear || c.nonEmpty() && !r.Stream || at != (span{}) && string(r.Body[at.from:at.to]) != "true"
	case "thinking":
		if r.Dialect != Messages || c.Next() != '{' {
			return
		}
		for c.Enter('{'); c.More('}'); {
			if string(c.Name()) == "budget_tokens" {
				o.budget = o.number(c)
			}
		}
	}
}

// number reads an integer. Some engines also accept other values as one.
func (o *outputFields) number(c *Reader) int64 {
	null := c.Next() == 'n'
	n, ok := c.readInteger()
	o.unclear = o.unclear || !ok && !null
	return n
}

// faulty reports whether an engine may refuse the fields.
func (o *outputFields) faulty(d Dialect) bool {
	limit := o.limit // 0 for messages without the required one
	switch {
	case o.limited || d == Messages:
	case d == Completions:
		limit = defaultCompletion
	default:
		return o.unclear
	}
	return o.unclear || limit < max(1, o.min, o.budget+1)
}

// Judged returns the members of PrefillMembers without those that replace or remove a faulty field. The engine then
// refuses the request before it computes the prompt.
func (r *Request) Judged(members []Member) []Member {
	return slices.DeleteFunc(members, func(m Member) bool {
		switch m.Name {
		case "max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens":
			return true
		case "stream_options":
			return !r.Stream
		}
		return false
	})
}
