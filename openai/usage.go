package openai

// Usage is what an answer cost in tokens, as its engine counted them.
type Usage struct {
	Prompt int64 // tokens of the prompt, cached ones included
	Cached int64 // how many of Prompt were read from a cache
	Output int64 // generated tokens, reasoning included
	// CachedKnown says that the engine reported Cached; without, 0 stands for nothing
	// said, as many engines do unless they are told to.
	CachedKnown bool
}

// Answer is what a whole JSON answer tells about itself.
type Answer struct {
	Usage    Usage
	HasUsage bool   // the answer reports usage, or llama.cpp's timings
	ID       string // the answer's id, empty when it has none
	// Err is set when the answer is an error object although its status said
	// success. A Responses object whose status is "failed" is none: the engine
	// answered, and the client reads why.
	Err *EngineError
	// Valid says that the body is one JSON object and nothing else.
	Valid bool
	// Hollow says that the object has none of what the dialect's answers consist of:
	// no choices, no type "message", or no object of a response. Err is then set if the
	// object reads as an error in any form.
	Hollow bool
	// Finished says that generation has ended by the engine's own word: each
	// choice has a finish_reason, a stop_reason is there, or the Responses
	// object is neither queued nor in progress. In the dialects that generate
	// nothing it is Valid without Err.
	Finished bool
	// Aborted says that the engine ended the answer before it was whole, like MarkAborted.
	Aborted bool
}

// ReadAnswer reads a whole answer of the dialect in one pass, without copying
// it: long strings and arrays of numbers are stepped over at memory speed.
func ReadAnswer(d Dialect, body []byte) Answer {
	var choices eventChoices
	var tokens eventTokens
	p := eventPayload{choices: &choices, tokens: &tokens}
	a := Answer{Valid: p.read(body), ID: textOf(p.id)}
	a.Usage, a.HasUsage = tokens.usage(d)
	if !a.Valid {
		return a
	}
	failed := d == Responses && string(p.object) == "response"
	if p.errorMark().Has(MarkError) && !failed {
		e, _ := ErrorOf(body)
		a.Err = &e
		return a
	}
	if a.Hollow = p.hollow(d); a.Hollow {
		if e, ok := ErrorOf(body); ok {
			a.Err = &e
		}
		return a
	}
	switch d {
	case Chat, Completions:
		a.Finished, a.Aborted = choices.finished(), p.mark.Has(MarkAborted)
	case Messages:
		a.Finished, a.Aborted = p.stop, p.unstopped
	case Responses:
		switch string(p.status) {
		case "", "queued", "in_progress":
		default:
			a.Finished, a.Aborted = true, cancelled(p.status, p.incomplete)
		}
	default:
		a.Finished = true
	}
	return a
}

// hollow reports whether a whole answer has nothing of what the dialect's consist of.
func (p *eventPayload) hollow(d Dialect) bool {
	switch d {
	case Chat, Completions:
		return p.count < 0
	case Messages:
		return string(p.kind) != "message"
	case Responses:
		return len(p.object) == 0
	}
	return false
}

// eventTokens gathers the token counts of one answer under the names of every
// dialect. A later report replaces an earlier one, member by member.
type eventTokens struct {
	prompt, output, total, cached, cacheRead, cacheMade eventCount
	// llama.cpp's timings, for answers without usage.
	promptN, cacheN, predictedN eventCount
}

// eventCount is one count and whether it was reported.
type eventCount struct {
	n   int64
	set bool
}

// take reads the count at the cursor; what is no count changes nothing.
func (n *eventCount) take(c *Reader) bool {
	v, ok := c.integer()
	if ok {
		*n = eventCount{n: v, set: true}
	}
	return ok
}

// read walks a usage object and says whether it had a count in it.
func (t *eventTokens) read(c *Reader) bool {
	any := false
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "prompt_tokens":
			any = t.prompt.take(c) || any
		case "input_tokens":
			// message_delta of some engines repeats input_tokens as 0.
			var n eventCount
			if n.take(c) {
				any = true
				if n.n > 0 || !t.prompt.set {
					t.prompt = n
				}
			}
		case "completion_tokens", "output_tokens":
			any = t.output.take(c) || any
		case "total_tokens":
			any = t.total.take(c) || any
		case "cache_read_input_tokens":
			any = t.cacheRead.take(c) || any
		case "cache_creation_input_tokens":
			any = t.cacheMade.take(c) || any
		case "prompt_tokens_details", "input_tokens_details":
			t.readDetails(c)
		}
	}
	return any
}

// readDetails walks the details of the prompt's tokens.
func (t *eventTokens) readDetails(c *Reader) {
	if c.Next() != '{' {
		return
	}
	for c.Enter('{'); c.More('}'); {
		if string(c.Name()) == "cached_tokens" {
			t.cached.take(c)
		}
	}
}

// readTimings walks llama.cpp's timings: prompt_n tokens were computed, cache_n
// came from the slot's cache, predicted_n were generated.
func (t *eventTokens) readTimings(c *Reader) {
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "prompt_n":
			t.promptN.take(c)
		case "cache_n":
			t.cacheN.take(c)
		case "predicted_n":
			t.predictedN.take(c)
		}
	}
}

// usage sums what was gathered. In the Messages dialect input_tokens are those
// that no cache had a part in, so the prompt is the sum of three; elsewhere the
// prompt's count includes the cached tokens. Of a total without a prompt
// (rerankers) the prompt is what is no output. A report of a generated answer that
// lacks the prompt or the output, or has no number there, is none: the missing count
// is not zero. No more of the prompt than all of it is cached, whatever the report.
func (t *eventTokens) usage(d Dialect) (u Usage, ok bool) {
	either, both := t.prompt.set || t.output.set, t.prompt.set && t.output.set
	switch {
	case !either && !t.total.set:
		if !t.promptN.set && !t.predictedN.set {
			return Usage{}, false
		}
		u = Usage{Prompt: t.promptN.n + t.cacheN.n, Cached: t.cacheN.n, Output: t.predictedN.n, CachedKnown: t.cacheN.set}
	case d.Generates() && !both && !(either && t.total.set):
		return Usage{}, false
	default:
		u = Usage{Prompt: t.prompt.n, Cached: t.cached.n, Output: t.output.n, CachedKnown: t.cached.set}
		if !t.prompt.set {
			u.Prompt = max(t.total.n-t.output.n, 0)
		} else if !t.output.set {
			u.Output = max(t.total.n-t.prompt.n, 0)
		}
		if d == Messages {
			u.Cached, u.CachedKnown = t.cacheRead.n, t.cacheRead.set
			u.Prompt += t.cacheRead.n + t.cacheMade.n
		}
	}
	u.Cached = min(u.Cached, u.Prompt)
	return u, true
}
