package pairing

import (
	"bytes"
	"encoding/json"

	"tierway/openai"
)

// Comparable reports whether a request may be sent again and its answers can be compared as texts: it has one prompt,
// asks for one answer, offers no tools, refers to no images, audio, files or stored objects, and all its top-level
// fields are known to keep it so. A field that is null counts as absent.
func Comparable(r *openai.Request) bool {
	return r.N <= 1 && r.Prompts() <= 1 && !r.Tools && !r.Media && hasOnlyKnownFields(r) && hasOnlyMessages(r)
}

// hasOnlyKnownFields reports whether all top-level fields that are not null are known. A list of what is excluded would
// be incomplete: engines add fields that search the web, run code or call servers.
func hasOnlyKnownFields(r *openai.Request) bool {
	body := r.Reader()
	for body.Enter('{'); body.More('}'); {
		name := string(body.Name())
		if body.Next() != 'n' && !isKnownField(r.Dialect, name) {
			return false
		}
		body.Skip()
	}
	return true
}

// isKnownField reports whether a top-level field only shapes the text of the answer, identifies the client, or is
// checked elsewhere, as n and store are.
func isKnownField(d openai.Dialect, name string) bool {
	switch name {
	case "model", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "seed", "service_tier", "metadata",
		"user", "user_id", "session_id", "safety_identifier", "prompt_cache_key", "priority", "chat_template_kwargs":
		return true
	case "max_tokens", "n", "stop", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias",
		"logprobs":
		return d == openai.Chat || d == openai.Completions || d == openai.Messages && name == "max_tokens"
	case "messages":
		return d == openai.Chat || d == openai.Messages
	case "store", "top_logprobs":
		return d == openai.Chat || d == openai.Responses
	case "max_completion_tokens", "response_format", "reasoning_effort", "verbosity":
		return d == openai.Chat
	case "prompt", "suffix":
		return d == openai.Completions
	case "system", "stop_sequences", "thinking", "output_config":
		return d == openai.Messages
	case "input", "instructions", "max_output_tokens", "background", "text", "reasoning", "truncation":
		return d == openai.Responses
	}
	return false
}

// hasOnlyMessages reports whether the input of a request to /v1/responses has messages only. Other items are calls of
// tools, or refer to what an engine stores.
func hasOnlyMessages(r *openai.Request) bool {
	at := r.At(openai.FieldInput)
	if r.Dialect != openai.Responses || at == 0 {
		return true
	}
	input := r.Reader()
	if input.Seek(at); input.Next() != '[' {
		return true
	}
	for input.Enter('['); input.More(']'); {
		if !isMessage(&input) {
			return false
		}
	}
	return true
}

// isMessage reads an item of an input. The type of a message may be absent.
func isMessage(item *openai.Reader) bool {
	if item.Next() != '{' {
		return false
	}
	for item.Enter('{'); item.More('}'); {
		if string(item.Name()) == "type" {
			if string(item.Word()) != "message" {
				return false
			}
			continue
		}
		item.Skip()
	}
	return true
}

// Unstreamed returns the body of a request without its fields about streams, so that the answer comes as a whole.
// The body must be a JSON object without duplicate fields.
func Unstreamed(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	delete(fields, "stream")
	delete(fields, "stream_options")
	return encode(fields)
}

// encode returns a value as JSON, with texts as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
