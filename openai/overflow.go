package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The texts of OpenAI and Anthropic for a prompt that is longer than the context.
// LangChain recognizes the code context_length_exceeded; litellm and the agents that
// shorten their prompt by themselves recognize the texts and read the numbers.

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

	// overflowWithin is the length of an engine's message that is searched, in bytes. Parts of
	// the request may follow the engine's own words.
	overflowWithin = 256
)

// Overflow translates an engine's error for a prompt that exceeds its context into the
// dialect's error with OpenAI's code. If the engine gives the numbers, the message has the
// words and numbers that clients recognize. ok is false for every other error.
func (e EngineError) Overflow(d Dialect) (refusal *Error, ok bool) {
	said := strings.ToLower(e.Message[:min(len(e.Message), overflowWithin)])
	var behind string
	for _, words := range overflows {
		if _, behind, ok = strings.Cut(said, words); ok {
			break
		}
	}
	vendors := strings.Contains(said, anthropicOverflow) // the wording of hosted endpoints
	if !ok && !vendors && e.Code != string(CodeContextLengthExceeded) && e.Type != "exceed_context_size_error" {
		return nil, false
	}
	refusal = &Error{Code: CodeContextLengthExceeded, Status: e.Status, Param: e.Param, Message: e.Message}
	limit, most := int64(0), slices.Max(append(numbers(said), 0))
	if n := numbers(behind); len(n) > 0 {
		limit = n[0]
	}
	switch {
	case d == Messages:
		// A message about max_tokens concerns the length of the output, not of the prompt.
		if vendors || strings.Contains(said, "max_tokens") {
			break
		}
		refusal.Message = anthropicOverflow + ": " + e.Message
		if 0 < limit && limit < most {
			refusal.Message = fmt.Sprintf("%s: %d tokens > %d maximum", anthropicOverflow, most, limit)
		}
	case limit > 0 && !strings.Contains(said, openAIOverflow):
		refusal.Message = fmt.Sprintf("This model's maximum context length is %d tokens. The engine answered: %s", limit,
			e.Message)
	}
	return refusal, true
}

// numbers returns the integers in a text.
func numbers(s string) (all []int64) {
	for digits := range strings.FieldsFuncSeq(s, func(c rune) bool { return c < '0' || c > '9' }) {
		n, _ := strconv.ParseInt(digits, 10, 64) // larger numbers become the maximum
		all = append(all, n)
	}
	return all
}

// Into returns an error body of the dialect's form with the error's message and, if the form
// has one, its code. All other members are kept: clients read llama.cpp's n_ctx there. A body
// of another form is returned unchanged.
func (e *Error) Into(body []byte, d Dialect) []byte {
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
