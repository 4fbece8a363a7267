package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// responseItem is one item of a Responses input.
type responseItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   content         `json:"content"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// responseInput is a string or a list of items.
type responseInput []responseItem

func (in *responseInput) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*in = responseInput{{Type: "message", Role: "user", Content: content{text: text, texts: []string{text}}}}
		return nil
	}
	return json.Unmarshal(b, (*[]responseItem)(in))
}

func (in responseInput) turns() []turn {
	var turns []turn
	for _, item := range in {
		switch item.Type {
		case "", "message":
			turns = append(turns, turn{item.Role, item.Content})
		case "function_call":
			turns = append(turns, turn{"assistant", content{text: item.Name + item.Arguments, calls: []string{item.Name}}})
		case "function_call_output":
			turns = append(turns, turn{"tool", content{text: string(item.Output), result: true}})
		}
	}
	return turns
}

type responseRequest struct {
	Model           string        `json:"model"`
	Input           responseInput `json:"input"`
	Instructions    *string       `json:"instructions"`
	Previous        *string       `json:"previous_response_id"`
	MaxOutputTokens *int          `json:"max_output_tokens"`
	Stream          bool          `json:"stream"`
	Store           *bool         `json:"store"`
	Background      bool          `json:"background"`
	Tools           []tool        `json:"tools"`
	ToolChoice      toolChoice    `json:"tool_choice"`
	Parallel        *bool         `json:"parallel_tool_calls"`
	Include         []string      `json:"include"`
	TopLogprobs     int           `json:"top_logprobs"`
	CacheSalt       string        `json:"cache_salt"`
	Priority        priority      `json:"priority"`
	Text            struct {
		Format format `json:"format"`
	} `json:"text"`
}

// responses serves POST /v1/responses.
func (e *Engine) responses(w http.ResponseWriter, r *request) error {
	var req responseRequest
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	turns, err := e.responseTurns(&req)
	if err != nil {
		return err
	}
	wish, err := req.wishes()
	if err != nil {
		return err
	}
	p, err := e.planTurns(r, turns, wish)
	if err != nil {
		return err
	}
	resp := &response{e: e, id: e.newID("resp_"), answer: p.answers[0], turns: turns, keep: req.Store == nil || *req.Store}
	resp.start = resp.newObject(&req, r.body)
	if req.Background {
		return resp.background(r.Context(), w, p)
	}
	out := &sse{w: w}
	resp.emit, resp.begun = out.event, out.open
	return e.write(r.Context(), w, p, resp)
}

// responseTurns returns the whole conversation: the stored turns of the previous id, then the
// instructions and the input.
func (e *Engine) responseTurns(req *responseRequest) ([]turn, error) {
	if len(req.Input) == 0 {
		return nil, badRequest("input", "the field input is missing or empty")
	}
	var turns []turn
	if req.Instructions != nil {
		turns = append(turns, turn{"system", content{text: *req.Instructions}})
	}
	if req.Previous != nil && *req.Previous != "" {
		old, _, err := e.stored.get(*req.Previous)
		if err != nil {
			return nil, err
		}
		turns = append(turns, old.history()...)
	}
	return append(turns, req.Input.turns()...), nil
}

func (req *responseRequest) wishes() (*wishes, error) {
	w := &wishes{stream: req.Stream, priority: req.Priority, tools: req.Tools, choice: req.ToolChoice, salt: req.CacheSalt}
	w.choice.single = req.Parallel != nil && !*req.Parallel
	if err := w.limit("max_output_tokens", req.MaxOutputTokens); err != nil {
		return nil, err
	}
	asked := slices.Contains(req.Include, "message.output_text.logprobs")
	if asked || req.TopLogprobs != 0 {
		if err := w.wantLogprobs("top_logprobs", req.TopLogprobs); err != nil {
			return nil, err
		}
		w.logprobs = asked
	}
	return w, w.take("text.format", &req.Text.Format)
}

// response is one response, while it is generated and while it is stored.
type response struct {
	e      *Engine
	id     string
	answer *answer
	turns  []turn         // the conversation before the answer
	start  map[string]any // the object before anything is generated; immutable
	object map[string]any // immutable, only replaced; of a stored response under the store's lock
	keep   bool

	begun  func() error                   // begins the stream
	emit   func(name string, v any) error // sends an event
	number int64                          // of the next event

	cancel context.CancelFunc // for a background response; otherwise nil
	log    *eventLog          // for a background response that was created as a stream; otherwise nil
}

// newObject returns the object before anything is generated. Fields that the client set are
// repeated unchanged.
func (resp *response) newObject(req *responseRequest, body []byte) map[string]any {
	var raw map[string]json.RawMessage
	_ = json.Unmarshal(body, &raw) // the same bytes were just decoded
	object := map[string]any{
		"id": resp.id, "object": "response", "created_at": resp.e.c.Clock().Unix(), "status": "in_progress",
		"model": resp.e.modelName(req.Model), "background": req.Background, "error": nil, "incomplete_details": nil,
		"output": []any{}, "usage": nil, "store": resp.keep, "service_tier": "default",
		"parallel_tool_calls": true, "tools": []any{}, "tool_choice": "auto", "temperature": 1.0, "top_p": 1.0,
		"truncation": "disabled", "metadata": map[string]any{}, "instructions": nil, "previous_response_id": nil,
		"max_output_tokens": nil, "reasoning": map[string]any{"effort": nil, "summary": nil}, "user": nil,
		"text": map[string]any{"format": map[string]any{"type": "text"}},
	}
	for field, v := range raw {
		if _, known := object[field]; known && string(v) != "null" {
			object[field] = v
		}
	}
	return object
}

// with returns the object with a status, without an answer.
func (resp *response) with(status string) map[string]any {
	object := maps.Clone(resp.start)
	object["status"] = status
	return object
}

// finished returns the final object.
func (resp *response) finished(u Tokens) map[string]any {
	object := resp.with("completed")
	if resp.answer.finish == finishLength {
		object["status"] = "incomplete"
		object["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	object["completed_at"] = resp.e.c.Clock().Unix()
	output := make([]any, max(len(resp.answer.calls), 1))
	for i := range output {
		output[i] = resp.outputItem(i, true)
	}
	object["output"] = output
	object["usage"] = map[string]any{
		"input_tokens": u.Prompt, "input_tokens_details": map[string]any{"cached_tokens": u.Cached},
		"output_tokens": u.Output, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		"total_tokens": u.Prompt + u.Output,
	}
	return object
}

func (resp *response) whole(u Tokens) any {
	resp.object = resp.finished(u)
	if resp.keep {
		resp.e.stored.put(resp)
	}
	return resp.object
}

// outputItem returns the text or a call of the answer as an output item; incomplete items have empty
// text.
func (resp *response) outputItem(i int, done bool) map[string]any {
	a, id := resp.answer, resp.itemID(i)
	status := "in_progress"
	if done {
		status = "completed"
		if a.finish == finishLength && i+1 >= len(a.calls) {
			status = "incomplete"
		}
	}
	if len(a.calls) > 0 {
		arguments := ""
		if done {
			arguments = a.arguments(i)
		}
		return map[string]any{"type": "function_call", "id": id, "call_id": "call_" + id, "name": a.calls[i].tool,
			"arguments": arguments, "status": status}
	}
	parts := []any{}
	if done {
		parts = append(parts, outputText(a.text(), a.allLogprobs()))
	}
	return map[string]any{"type": "message", "id": id, "role": "assistant", "status": status, "content": parts}
}

func outputText(text string, logprobs []tokenLogprob) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": logprobs}
}

// itemID returns the id of an output item.
func (resp *response) itemID(i int) string {
	switch {
	case len(resp.answer.calls) == 0:
		return "msg_" + resp.id
	case i == 0:
		return "fc_" + resp.id
	}
	return fmt.Sprintf("fc_%s_%d", resp.id, i)
}

// history returns the conversation including the answer, for a response that continues it. OpenAI
// does not carry the instructions over.
func (resp *response) history() []turn {
	turns, a := slices.Clone(resp.turns), resp.answer
	if len(turns) > 0 && turns[0].role == "system" {
		turns = turns[1:]
	}
	if len(a.calls) == 0 {
		return append(turns, turn{"assistant", content{text: a.text()}})
	}
	for i, call := range a.calls {
		turns = append(turns, turn{"assistant", content{text: call.tool + a.arguments(i), calls: []string{call.tool}}})
	}
	return turns
}
