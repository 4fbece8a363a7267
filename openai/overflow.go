package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The messages have the wording of OpenAI and Anthropic for a prompt that exceeds the context.
// LangChain recognizes the code context_length_exceeded. litellm, and agents that shorten their
// prompt, recognize the wording and read the numbers.

// ContextExceeded returns the error for a request with more tokens, prompt and requested output
// together, than the context. field is the dialect's prompt field.
func ContextExceeded(d Dialect, field string, context, prompt, output int64) *Error {
	e := &Error{Code: CodeContextLengthExceeded, Param: field}
	switch anthropic := d == Messages; {
	case anthropic && prompt > context:
		e.Message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", prompt, context)
	case anthropic:
		e.Message = fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length "+
			"or `max_tokens` and try again",
			prompt, output, context)
	case output > 0:
		e.Message = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in "+
			"the %s, %d in the completion). "+
			"Please reduce the length of the %s or completion.", context, prompt+output, prompt, field, output, field)
	default:
		e.Message = fmt.Sprintf("This model's maximum context length is %d tokens. However, your %s resulted in %d tokens. "+
			"Please reduce the length of the %s.", context, field, prompt, field)
	}
	return e
}

// overflows are the phrases, in lower case, with which engines reject a prompt that exceeds
// their context. If they name the context, it is the first number after the phrase.
var overflows = []string{
	openAIOverflow,                               // OpenAI, vLLM
	"maximum context length of",                  // SGLang, of prompt and output together
	"longer than the model's context length",     // SGLang
	"exceeds the maximum allowed length",         // SGLang
	"longer than the maximum model length of",    // vLLM
	"exceeds the available context size",         // llama.cpp
	"exceeds the context length",                 // Ollama
	"exceeds maximum context length",             // Ollama
	"exceeded max context length",                // Ollama
	"exceeds the context window",                 // OpenAI's Responses
	"greater than the context length",            // LM Studio
	"`inputs` tokens + `max_new_tokens` must be", // TGI
}

const (
	openAIOverflow    = "this model's maximum context length is"
	anthropicOverflow = "prompt is too long"

	// overflowWithin is the searched length of an engine's message, in bytes. The engine's own
	// words come first; parts of the request may follow them.
	overflowWithin = 256
)

// Overflow translates an engine's error for a prompt that exceeds its context into the
// dialect's error with OpenAI's code. If the engine gives the numbers, the message has the
// words and numbers that clients recognize. ok is false for every other error.
func (e EngineError) Overflow(d Dialect) (overflow *Error, ok bool) {
	text := strings.ToLower(e.Message[:min(len(e.Message), overflowWithin)])
	var rest string // after the phrase
	for _, phrase := range overflows {
		if _, rest, ok = strings.Cut(text, phrase); ok {
			break
		}
	}
	anthropic := strings.Contains(text, anthropicOverflow) // the wording of hosted endpoints
	if !ok && !anthropic && e.Code != string(CodeContextLengthExceeded) && e.Type != "exceed_context_size_error" {
		return nil, false
	}
	overflow = &Error{Code: CodeContextLengthExceeded, Status: e.Status, Param: e.Param, Message: e.Message}
	limit, maxNumber := int64(0), slices.Max(append(numbers(text), 0))
	if n := numbers(rest); len(n) > 0 {
		limit = n[0]
	}
	switch {
	case d == Messages:
		// A message about max_tokens concerns the length of the output, not of the prompt.
		if anthropic || strings.Contains(text, "max_tokens") {
			break
		}
		overflow.Message = anthropicOverflow + ": " + e.Message
		if 0 < limit && limit < maxNumber {
			overflow.Message = fmt.Sprintf("%s: %d tokens > %d maximum", anthropicOverflow, maxNumber, limit)
		}
	case limit > 0 && !strings.Contains(text, openAIOverflow):
		overflow.Message = fmt.Sprintf("This model's maximum context length is %d tokens. The engine answered: %s", limit,
			e.Message)
	}
	return overflow, true
}

func numbers(s string) (all []int64) {
	for digits := range strings.FieldsFuncSeq(s, func(c rune) bool { return c < '0' || c > '9' }) {
		n, _ := strconv.ParseInt(digits, 10, 64) // larger numbers become the maximum
		all = append(all, n)
	}
	return all
}

// RewriteBody returns a worker's error body with the message and, except for Messages, the code of
// e. All other members are kept: clients read llama.cpp's n_ctx there. A body without an error
// object is returned unchanged.
func (e *Error) RewriteBody(body []byte, d Dialect) []byte {
	var outer, inner map[string]json.RawMessage
	if json.Unmarshal(body, &outer) != nil || json.Unmarshal(outer["error"], &inner) != nil || inner == nil {
		return body
	}
	inner["message"] = appendJSONText(nil, e.message())
	if d != Messages {
		inner["code"] = appendJSONText(nil, string(e.Code))
	}
	var err error
	if outer["error"], err = json.Marshal(inner); err != nil {
		return body
	}
	changed, err := json.Marshal(outer)
	if err != nil {
		return body
	}
	return changed
}
