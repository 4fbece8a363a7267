package engines

import (
	"encoding/json"
	"net/http"
	"slices"

	"tierway/routing"
)

// sampling are the fields that chat and completions share.
type sampling struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N         *int     `json:"n"`
	MaxTokens *int     `json:"max_tokens"`
	IgnoreEOS bool     `json:"ignore_eos"`
	Stop      texts    `json:"stop"`
	Seed      *int64   `json:"seed"`
	CacheSalt string   `json:"cache_salt"`
	Priority  priority `json:"priority"`
	Format    format   `json:"response_format"`
	TokenIDs  bool     `json:"return_token_ids"`
}

// maxChoices bounds n, as OpenAI does.
const maxChoices = 128

func (s *sampling) wishes() (*wishes, error) {
	w := &wishes{stream: s.Stream, priority: s.Priority, n: 1, ignoreEOS: s.IgnoreEOS, stop: s.Stop, salt: s.CacheSalt}
	if s.N != nil {
		if *s.N < 1 || *s.N > maxChoices {
			return nil, badRequest("n", "n must be 1 to %d, not %d", maxChoices, *s.N)
		}
		w.n = *s.N
	}
	if s.Seed != nil {
		w.seed = routing.Draw(uint64(*s.Seed))
	}
	if err := w.limit("max_tokens", s.MaxTokens); err != nil {
		return nil, err
	}
	return w, w.take("response_format", &s.Format)
}

// format is the required form of an answer.
type format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
	Chat   struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"` // chat has the schema one level deeper
}

// take reads the form of an answer from a field.
func (w *wishes) take(field string, f *format) error {
	switch f.Type {
	case "", "text":
	case "json_object":
		w.jsonObject = true
	case "json_schema":
		if w.schema = slices.Concat(f.Schema, f.Chat.Schema); len(w.schema) == 0 {
			return badRequest(field, "%s has no schema", field)
		}
	default:
		return badRequest(field, "%s.type %q is not one of text, json_object, json_schema", field, f.Type)
	}
	return nil
}

// limit reads a bound of the answer's length from an optional field.
func (w *wishes) limit(field string, n *int) error {
	if n == nil {
		return nil
	}
	if *n < 1 {
		return badRequest(field, "%s must be at least 1, not %d", field, *n)
	}
	w.maxTokens, w.maxField = *n, field
	return nil
}

type chatMessage struct {
	Role      string    `json:"role"`
	Content   content   `json:"content"`
	ToolCalls toolCalls `json:"tool_calls"`
}

// toolCalls are the calls of an assistant's message.
type toolCalls struct {
	raw   string // unparsed: they are part of the prompt
	names []string
}

func (c *toolCalls) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	c.raw = string(b)
	var calls []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(b, &calls) != nil {
		return nil // only the names are parsed, and only if there are some
	}
	for _, call := range calls {
		c.names = append(c.names, call.Function.Name)
	}
	return nil
}

type chatRequest struct {
	sampling
	Messages            []chatMessage `json:"messages"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	Tools               []tool        `json:"tools"`
	ToolChoice          toolChoice    `json:"tool_choice"`
	Parallel            *bool         `json:"parallel_tool_calls"`
	Logprobs            bool          `json:"logprobs"`
	TopLogprobs         int           `json:"top_logprobs"`
}

func chatTurns(messages []chatMessage) []turn {
	turns := make([]turn, len(messages))
	for i, m := range messages {
		t := turn{m.Role, m.Content}
		t.text += m.ToolCalls.raw
		t.calls = append(t.calls, m.ToolCalls.names...)
		t.result = t.result || m.Role == "tool"
		turns[i] = t
	}
	return turns
}

// chat serves POST /v1/chat/completions.
func (e *Engine) chat(w http.ResponseWriter, r *request) error {
	var req chatRequest
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if len(req.Messages) == 0 {
		return badRequest("messages", "messages must hold at least one message")
	}
	wish, err := req.wishes()
	if err != nil {
		return err
	}
	if err := wish.limit("max_completion_tokens", req.MaxCompletionTokens); err != nil {
		return err
	}
	if req.Logprobs {
		err = wish.wantLogprobs("top_logprobs", req.TopLogprobs)
	} else if req.TopLogprobs > 0 {
		err = badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	}
	if err != nil {
		return err
	}
	wish.tools, wish.choice = req.Tools, req.ToolChoice
	wish.choice.single = req.Parallel != nil && !*req.Parallel
	p, err := e.planTurns(r, chatTurns(req.Messages), wish)
	if err != nil {
		return err
	}
	return e.writeChoices(w, r, p, &req.sampling, true)
}
