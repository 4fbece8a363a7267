package openai

import (
	"bytes"
	"slices"
)

// Usage is the tokens of a response, as counted by its engine.
type Usage struct {
	Prompt int64 // tokens of the prompt, including cached ones
	Cached int64 // tokens of Prompt that came from a cache
	Output int64 // generated tokens, including reasoning
	// CachedKnown reports whether the engine reported Cached. Many engines do so only with a
	// special option.
	CachedKnown bool
}

// Answer is the content of a whole JSON response.
type Answer struct {
	Usage    Usage
	HasUsage bool   // the response contains usage, or llama.cpp's timings
	ID       string // ID of the response; may be empty
	// Err is set if the body is an error object despite a success status. A Responses object with
	// the status "failed" is not an error: the client reads its reason.
	Err *EngineError
	// Failed is the reason of a Responses object with the status "failed"; nil without one.
	Failed *EngineError
	// Valid reports whether the body is exactly one JSON object. If it is not, Err is set if the body is
	// an array that begins with an error, or its first line is an error.
	Valid bool
	// Hollow reports that the object lacks the dialect's content: no choices, no type "message", or
	// no object member. Err is then set if the object is an error in any form.
	Hollow bool
	// Aborted reports that the engine ended the response before it was complete, like MarkAborted.
	Aborted bool
}

// ReadAnswer reads a whole response of the dialect in one pass without copying it. Long strings
// and arrays of numbers are skipped at memory speed.
func ReadAnswer(d Dialect, body []byte) Answer {
	var choices eventChoices
	var tokens eventTokens
	p := eventPayload{choices: &choices, tokens: &tokens}
	a := Answer{Valid: p.read(body), ID: textOf(p.id)}
	a.Usage, a.HasUsage = tokens.usage(d)
	if !a.Valid {
		a.Err = brokenError(body)
		return a
	}
	failed := d == Responses && string(p.object) == "response"
	if (p.errorMark() | p.mark).Has(MarkError) && !failed {
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
		a.Aborted = p.mark.Has(MarkAborted)
	case Messages:
		a.Aborted = p.unstopped
	case Responses:
		switch string(p.status) {
		case "", "queued", "in_progress":
		case "failed":
			if e, ok := ErrorOf(body); ok {
				a.Failed = &e
			}
		default:
			a.Aborted = cancelled(p.status, p.incomplete)
		}
	}
	return a
}

// brokenError returns the error of a body that is not one object; nil if there is none. Frameworks write
// an error as one line and go on with their stream.
func brokenError(body []byte) *EngineError {
	line, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte{'\n'})
	for _, data := range [][]byte{body, line} {
		if e, ok := ErrorOf(data); ok {
			return &e
		}
	}
	return nil
}

// hollow reports whether a whole response lacks the content of its dialect.
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

// eventTokens collects the token counts of one response under the names of all dialects. A
// later count replaces an earlier one of the same name.
type eventTokens struct {
	prompt, output, total, cached, cacheRead, cacheMade eventCount
	// llama.cpp's timings, for responses without usage.
	promptN, cacheN, predictedN eventCount
}

type eventCount struct {
	n   int64
	set bool
}

// read reads the next value and stores it if it is a count.
func (n *eventCount) read(c *Reader) bool {
	v, ok := c.readInteger()
	if ok {
		*n = eventCount{n: v, set: true}
	}
	return ok
}

// readUsage reads a usage object and reports whether it contained a count.
func (t *eventTokens) readUsage(c *Reader) bool {
	any := false
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "prompt_tokens":
			any = t.prompt.read(c) || any
		case "input_tokens":
			// message_delta of some engines repeats input_tokens as 0.
			var n eventCount
			if n.read(c) {
				any = true
				if n.n > 0 || !t.prompt.set {
					t.prompt = n
				}
			}
		case "completion_tokens", "output_tokens":
			any = t.output.read(c) || any
		case "total_tokens":
			any = t.total.read(c) || any
		case "cache_read_input_tokens":
			any = t.cacheRead.read(c) || any
		case "cache_creation_input_tokens":
			any = t.cacheMade.read(c) || any
		case "prompt_tokens_details", "input_tokens_details":
			t.readDetails(c)
		}
	}
	return any
}

func (t *eventTokens) readDetails(c *Reader) {
	if c.Next() != '{' {
		return
	}
	for c.Enter('{'); c.More('}'); {
		if string(c.Name()) == "cached_tokens" {
			t.cached.read(c)
		}
	}
}

// readTimings reads llama.cpp's timings: prompt_n tokens were computed, cache_n came from the
// slot's cache, predicted_n were generated.
func (t *eventTokens) readTimings(c *Reader) {
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "prompt_n":
			t.promptN.read(c)
		case "cache_n":
			t.cacheN.read(c)
		case "predicted_n":
			t.predictedN.read(c)
		}
	}
}

// usage combines the collected counts. In the Messages dialect, input_tokens excludes cached
// tokens, so the prompt is the sum of three counts; elsewhere the prompt count includes cached
// tokens. A total without a prompt count, as from rerankers, gives the prompt as total minus
// output. Usage of a generated response without a prompt or output count is not reported: a
// missing count is not zero. Cached never exceeds Prompt.
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

// JoinUsageChunk moves the other members of a usage chunk, which is then dropped, into the
// previous chunk. out[from:] is the previous chunk's event, and usage is the data of the usage
// chunk. Engines write some members only into their last chunk, such as vLLM's
// system_fingerprint and llama.cpp's timings; without include_usage, that is the chunk with the
// finish_reason. out is returned unchanged if the event has several lines or no choices, or if
// there is nothing to move.
func JoinUsageChunk(out []byte, from int, usage []byte) []byte {
	event := bytes.TrimRight(out[from:], "\r\n")
	data, ok := bytes.CutPrefix(event, []byte("data:"))
	if !ok || !bytes.HasSuffix(data, []byte("}")) || bytes.ContainsAny(data, "\r\n") ||
		!hasField(data, []byte("choices")) {
		return out
	}
	var moved []byte
	c := NewReader(usage)
	for c.Enter('{'); c.More('}'); {
		at := c.i
		name := c.Name()
		if c.nonEmpty() && string(name) != "choices" && string(name) != "usage" && !hasField(data, name) {
			moved = append(append(moved, ','), usage[at:c.i]...)
		}
	}
	if !c.AtEnd() || len(moved) == 0 {
		return out
	}
	return slices.Insert(out, from+len(event)-1, moved...)
}

// hasField reports whether an object has a member of that name.
func hasField(object, name []byte) bool {
	c := NewReader(object)
	for c.Enter('{'); c.More('}'); {
		if bytes.Equal(c.Name(), name) {
			return true
		}
	}
	return false
}
