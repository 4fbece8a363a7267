package engines

import (
	"encoding/json"
	"net/http"
	"strconv"

	"tierway/routing"
)

// stopList is a stop field: a string, a list of them, or null.
type stopList []string

func (l *stopList) UnmarshalJSON(b []byte) error {
	var one string
	if string(b) != "null" && json.Unmarshal(b, &one) == nil {
		*l = stopList{one}
		return nil
	}
	if err := json.Unmarshal(b, (*[]string)(l)); err != nil {
		return badRequest("stop", "stop must be a string or a list of strings")
	}
	return nil
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// sampling are the fields that chat and completions share.
type sampling struct {
	Model         string        `json:"model"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
	N             *int          `json:"n"`
	MaxTokens     *int          `json:"max_tokens"`
	MinTokens     int           `json:"min_tokens"`
	IgnoreEOS     bool          `json:"ignore_eos"`
	Stop          stopList      `json:"stop"`
	Seed          *int64        `json:"seed"`
	CacheSalt     string        `json:"cache_salt"`
	Priority      priority      `json:"priority"`
	Format        struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// maxChoices bounds n, as OpenAI does.
const maxChoices = 128

func (s *sampling) wishes() (*wishes, error) {
	w := &wishes{n: 1, minTokens: s.MinTokens, ignoreEOS: s.IgnoreEOS, stop: s.Stop, salt: s.CacheSalt}
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
	switch s.Format.Type {
	case "", "text":
	case "json_object":
		w.jsonObject = true
	case "json_schema":
		w.schema = s.Format.JSONSchema.Schema
		if len(w.schema) == 0 {
			return nil, badRequest("response_format", "response_format.json_schema.schema is missing")
		}
	default:
		return nil, badRequest("response_format", "response_format.type %q is not one of text, json_object, json_schema", s.Format.Type)
	}
	return w, nil
}

// limit takes a bound on the answer's length from a field that may be absent.
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
	raw   string // as they came: they are part of the prompt
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
		return nil // only the names are read, and only where there are some
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
	Logprobs            bool          `json:"logprobs"`
	TopLogprobs         int           `json:"top_logprobs"`
}

func chatTurns(messages []chatMessage) []turn {
	turns := make([]turn, len(messages))
	for i, m := range messages {
		turns[i] = turn{role: m.Role, text: m.Content.text + m.ToolCalls.raw, human: m.Content.human,
			calls: append(m.Content.calls, m.ToolCalls.names...), result: m.Content.result || m.Role == "tool"}
	}
	return turns
}

// chat serves POST /v1/chat/completions.
func (e *Engine) chat(w http.ResponseWriter, r *request) error {
	var req chatRequest
	if err := decode(r.body, &req); err != nil {
		return err
	}
	if err := e.checkModel(req.Model); err != nil {
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
	if err := req.takeLogprobs(wish); err != nil {
		return err
	}
	wish.tools, wish.choice = req.Tools, req.ToolChoice
	turns := chatTurns(req.Messages)
	p, err := e.newPlan(r, req.Stream, req.Priority)
	if err != nil {
		return err
	}
	if err := e.add(p, render(req.Tools, turns), turns, wish); err != nil {
		return err
	}
	id, model := e.newID("chatcmpl-"), e.modelName(req.Model)
	if !req.Stream {
		return e.chatWhole(w, r, p, id, model)
	}
	head := chunkHead(id, "chat.completion.chunk", model, e.c.Clock().Unix())
	return e.streamChunks(w, r, p, &chatStream{answers: p.answers, ids: e.callIDs(p)}, head, req.StreamOptions.IncludeUsage)
}

// takeLogprobs reads the fields for log probabilities.
func (req *chatRequest) takeLogprobs(w *wishes) error {
	switch {
	case req.Logprobs:
		return w.wantLogprobs("top_logprobs", req.TopLogprobs)
	case req.TopLogprobs > 0:
		return badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	}
	return nil
}

// callIDs makes the ids of the tool calls that the answers hold.
func (e *Engine) callIDs(p *plan) []string {
	ids := make([]string, len(p.answers))
	for i, a := range p.answers {
		if a.tool != "" {
			ids[i] = e.newID("call_")
		}
	}
	return ids
}

type chatUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u usage) chat() chatUsage {
	c := chatUsage{PromptTokens: u.prompt, CompletionTokens: u.output, TotalTokens: u.prompt + u.output}
	c.PromptDetails.CachedTokens = u.cached
	return c
}

// chatWhole answers in one body.
func (e *Engine) chatWhole(w http.ResponseWriter, r *request, p *plan, id, model string) error {
	u, err := e.generate(r.Context(), p, nowhere{})
	if err != nil {
		return err
	}
	calls := e.callIDs(p)
	choices := make([]map[string]any, len(p.answers))
	for i, a := range p.answers {
		message := map[string]any{"role": "assistant", "content": a.text(), "refusal": nil}
		if a.tool != "" {
			message["content"] = nil
			message["tool_calls"] = []any{map[string]any{"id": calls[i], "type": "function",
				"function": map[string]any{"name": a.tool, "arguments": a.text()}}}
		}
		choices[i] = map[string]any{"index": i, "message": message,
			"logprobs": a.chatLogprobs(), "finish_reason": a.finish}
	}
	return e.writeWhole(w, u, map[string]any{"id": id, "object": "chat.completion", "created": e.c.Clock().Unix(),
		"model": model, "choices": choices, "usage": u.chat()})
}

// writeWhole writes an answer and counts its tokens as delivered.
func (e *Engine) writeWhole(w http.ResponseWriter, u usage, body any) error {
	if err := writeJSON(w, http.StatusOK, body); err != nil {
		return err
	}
	e.counts.delivered(u)
	return nil
}

// chatStream makes the choices of a chat stream's chunks.
type chatStream struct {
	answers []*answer
	ids     []string // of tool calls
}

// first opens a choice: the role, and the call's name where it is one.
func (c *chatStream) first(b []byte, i int) []byte {
	b = openChoice(b, i)
	if c.answers[i].tool == "" {
		return append(b, `{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`...)
	}
	b = append(b, `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":`...)
	b = appendString(b, c.ids[i])
	b = append(b, `,"type":"function","function":{"name":`...)
	b = appendString(b, c.answers[i].tool)
	return append(b, `,"arguments":""}}]},"logprobs":null,"finish_reason":null}`...)
}

func (c *chatStream) token(b []byte, i, step int, piece string) []byte {
	a := c.answers[i]
	b = openChoice(b, i)
	if a.tool == "" {
		b = append(b, `{"content":`...)
		b = append(appendString(b, piece), '}')
		b = appendLogprobs(b, a.logprobs, func() any {
			return map[string]any{"content": []tokenLogprob{a.logprob(step)}}
		})
		return append(b, `,"finish_reason":null}`...)
	}
	b = append(b, `{"tool_calls":[{"index":0,"function":{"arguments":`...)
	b = appendString(b, piece)
	return append(b, `}}]},"logprobs":null,"finish_reason":null}`...)
}

func (c *chatStream) last(b []byte, i int, finish string) []byte {
	b = openChoice(b, i)
	b = append(b, `{},"logprobs":null,"finish_reason":`...)
	b = appendString(b, finish)
	return append(b, '}')
}

func openChoice(b []byte, i int) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	return append(b, `,"delta":`...)
}
