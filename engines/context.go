package engines

import "fmt"

// The texts of this file are those of vLLM 0.32.0 (renderers/params.py), by which clients recognise
// an overflow. Its tokenizer stops one token after the limit, so a prompt that is too long is
// always reported as one token too long.

// checkContext rejects a request that cannot fit the model's context. max_tokens is a maximum: if
// prompt and maximum together are too long, the answer is shorter.
func (e *Engine) checkContext(prompt []uint32, w *wishes) error {
	if w.maxTokens > e.c.Context {
		return invalid(w.maxField, w.maxTokens, "%s=%d cannot be greater than max_model_len=%d. "+
			"Please request fewer output tokens.", w.maxField, w.maxTokens, e.c.Context)
	}
	if err := e.checkPrompt(prompt); err != nil {
		return err
	}
	if len(prompt) == e.c.Context {
		return invalid("max_tokens", 0, "max_tokens must be at least 1, got 0.")
	}
	return nil
}

// checkPrompt rejects a prompt that is longer than the model's context.
func (e *Engine) checkPrompt(prompt []uint32) error {
	if len(prompt) <= e.c.Context {
		return nil
	}
	return invalid("input_tokens", e.c.Context+1, "This model's maximum context length is %d tokens. "+
		"However, your prompt contains at least %d input tokens, "+
		"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.", e.c.Context,
		e.c.Context+1)
}

// invalid returns an error in the form of vLLM's validation errors, which end with the parameter
// and its value.
func invalid(param string, value int, format string, args ...any) *apiError {
	e := badRequest(param, "%s (parameter=%s, value=%d)", fmt.Sprintf(format, args...), param, value)
	e.afterSchema = true
	return e
}
