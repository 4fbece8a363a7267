package engines

import (
	"cmp"
	"encoding/json"
	"net/http"
)

type messagesRequest struct {
	Model         string        `json:"model"`
	MaxTokens     *int          `json:"max_tokens"`
	System        content       `json:"system"`
	Messages      []chatMessage `json:"messages"`
	StopSequences texts         `json:"stop_sequences"`
	Stream        bool          `json:"stream"`
	Tools         []tool        `json:"tools"`
	ToolChoice    toolChoice    `json:"tool_choice"`
	OutputConfig  struct {
		Format *format `json:"format"`
	} `json:"output_config"`
	OutputFormat *format `json:"output_format"` // beta clients send the format here instead of in output_config
}

func (req *messagesRequest) turns() []turn {
	var turns []turn
	if req.System.text != "" {
		turns = append(turns, turn{"system", req.System})
	}
	return append(turns, chatTurns(req.Messages)...)
}

// parseMessages parses the fields that messages and count_tokens share.
func (e *Engine) parseMessages(r *request) (*messagesRequest, error) {
	req := new(messagesRequest)
	if err := e.parse(r, req, &req.Model); err != nil {
		return nil, err
	}
	if len(req.Messages) == 0 {
		return nil, badRequest("messages", "messages: at least one message is required")
	}
	return req, nil
}

// messages serves POST /v1/messages, Anthropic's dialect.
func (e *Engine) messages(w http.ResponseWriter, r *request) error {
	req, err := e.parseMessages(r)
	if err != nil {
		return err
	}
	if req.MaxTokens == nil {
		return badRequest("max_tokens", "max_tokens: field required")
	}
	wish := &wishes{stream: req.Stream, stop: req.StopSequences, tools: req.Tools, choice: req.ToolChoice}
	if f := cmp.Or(req.OutputConfig.Format, req.OutputFormat); f != nil {
		if f.Type != "json_schema" {
			return badRequest("output_config", "output_config.format.type %q is not json_schema", f.Type)
		}
		if err := wish.take("output_config.format", f); err != nil {
			return err
		}
		wish.schema = withDescribed(wish.schema)
	}
	if err := wish.limit("max_tokens", req.MaxTokens); err != nil {
		return err
	}
	wish.maxField = "max_completion_tokens" // vLLM converts it to a chat request and names that request's field
	p, err := e.planTurns(r, req.turns(), wish)
	if err != nil {
		return err
	}
	m := &message{sse: &sse{w: w}, id: e.answerID(r, "msg_"), model: e.modelName(req.Model), answer: p.answers[0]}
	for range m.answer.calls {
		m.calls = append(m.calls, e.newID("toolu_"))
	}
	return e.write(r.Context(), w, p, m)
}

// countTokens serves POST /v1/messages/count_tokens.
func (e *Engine) countTokens(w http.ResponseWriter, r *request) error {
	req, err := e.parseMessages(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"input_tokens": len(render(req.Tools, req.turns()))})
}

// message is one answer in Anthropic's dialect.
type message struct {
	*sse
	id, model string
	calls     []string // ids of the calls
	answer    *answer
}

func (m *message) whole(u Tokens) any {
	body := m.envelope(u)
	body["content"] = m.blocks()
	body["stop_reason"], body["stop_sequence"] = m.stop()
	return body
}

// envelope returns the message without content. Anthropic's input_tokens exclude tokens read from
// the cache.
func (m *message) envelope(u Tokens) map[string]any {
	return map[string]any{
		"id": m.id, "type": "message", "role": "assistant", "model": m.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": messageUsage(u),
	}
}

func messageUsage(u Tokens) map[string]any {
	return map[string]any{"input_tokens": u.Prompt - u.Cached, "cache_read_input_tokens": u.Cached,
		"cache_creation_input_tokens": 0, "output_tokens": u.Output}
}

// blocks returns the content: a text or calls. Arguments cut by max_tokens are invalid JSON: Anthropic
// then sends an empty input.
func (m *message) blocks() []any {
	if len(m.calls) == 0 {
		return []any{map[string]any{"type": "text", "text": m.answer.text()}}
	}
	blocks := make([]any, len(m.answer.calls))
	for i := range blocks {
		arguments := json.RawMessage(m.answer.arguments(i))
		if !json.Valid(arguments) {
			arguments = json.RawMessage("{}")
		}
		blocks[i] = m.callBlock(i, arguments)
	}
	return blocks
}

func (m *message) callBlock(i int, input any) map[string]any {
	return map[string]any{"type": "tool_use", "id": m.calls[i], "name": m.answer.calls[i].tool, "input": input}
}

func (m *message) stop() (reason string, sequence any) {
	switch {
	case m.answer.stopped != "":
		return "stop_sequence", m.answer.stopped
	case m.answer.finish == finishLength:
		return "max_tokens", nil
	case m.answer.finish == finishTools:
		return "tool_use", nil
	}
	return "end_turn", nil
}

func (m *message) last(u Tokens) error {
	reason, sequence := m.stop()
	return cmp.Or(
		m.event("message_delta", map[string]any{"usage": messageUsage(u),
			"delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence}}),
		m.event("message_stop", map[string]any{}))
}

func (m *message) event(name string, fields map[string]any) error {
	fields["type"] = name
	return m.sse.event(name, fields)
}

// begin sends the events before the first token: the message, its block, and Anthropic's ping.
func (m *message) begin(u Tokens) error {
	return cmp.Or(
		m.event("message_start", map[string]any{"message": m.envelope(u)}),
		m.openBlock(0),
		m.event("ping", map[string]any{}))
}

func (m *message) openBlock(i int) error {
	block := map[string]any{"type": "text", "text": ""}
	if len(m.calls) > 0 {
		block = m.callBlock(i, map[string]any{})
	}
	return m.event("content_block_start", map[string]any{"index": i, "content_block": block})
}

func (m *message) closeBlock(i int) error {
	return m.event("content_block_stop", map[string]any{"index": i})
}

// messageDelta is the event of one token.
type messageDelta struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Delta struct {
		Type    string `json:"type"`
		Text    string `json:"text,omitempty"`
		Partial string `json:"partial_json,omitempty"`
	} `json:"delta"`
}

func (m *message) token(_, step int, piece string) error {
	d := messageDelta{Type: "content_block_delta"}
	d.Delta.Type, d.Delta.Text = "text_delta", piece
	if len(m.calls) > 0 {
		call, begins := m.answer.callAt(step)
		if begins && call > 0 {
			if err := cmp.Or(m.closeBlock(call-1), m.openBlock(call)); err != nil {
				return err
			}
		}
		d.Index = call
		d.Delta.Type, d.Delta.Text, d.Delta.Partial = "input_json_delta", "", piece
	}
	return m.sse.event(d.Type, d)
}

func (m *message) end(int, string) error {
	return m.closeBlock(max(len(m.answer.calls)-1, 0))
}
