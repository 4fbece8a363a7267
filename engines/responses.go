package engines

import (
	"context"
	"encoding/json"
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
		*in = responseInput{{Type: "message", Role: "user", Content: content{text: text, human: true}}}
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
	p, err := e.planTurns(r, req.Stream, req.Priority, turns, wish)
	if err != nil {
		return err
	}
	resp := e.newResponse(&req, r.body)
	run := &responseRun{e: e, plan: p, resp: resp, turns: turns, keep: req.Store == nil || *req.Store}
	switch {
	case req.Background:
		return run.background(r.Context(), w, req.Stream)
	case req.Stream:
		return run.stream(r.Context(), w)
	}
	return run.whole(r.Context(), w)
}

// responseTurns is the whole conversation: what is stored under the previous id,
// then the instructions and the input.
func (e *Engine) responseTurns(req *responseRequest) ([]turn, error) {
	if len(req.Input) == 0 {
		return nil, badRequest("input", "the field input is missing or empty")
	}
	var turns []turn
	if req.Instructions != nil {
		turns = append(turns, turn{"system", content{text: *req.Instructions}})
	}
	if req.Previous != nil && *req.Previous != "" {
		old, err := e.stored.get(*req.Previous)
		if err != nil {
			return nil, err
		}
		turns = append(turns, old.history()...)
	}
	return append(turns, req.Input.turns()...), nil
}

func (req *responseRequest) wishes() (*wishes, error) {
	w := &wishes{tools: req.Tools, choice: req.ToolChoice, salt: req.CacheSalt}
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

// responseRun is one response on its way, and the sink of its stream.
type responseRun struct {
	e     *Engine
	plan  *plan
	resp  map[string]any // owned by the run until it is stored; then replaced, never changed
	turns []turn
	keep  bool

	number    int64                          // of the next event
	emit      func(name string, v any) error // sends an event
	log       *eventLog                      // of a background response
	resumable bool                           // it was created as a stream
}

// newResponse is the object as it is before anything was generated. Fields that the
// client set are repeated as they came.
func (e *Engine) newResponse(req *responseRequest, body []byte) map[string]any {
	var raw map[string]json.RawMessage
	_ = json.Unmarshal(body, &raw) // the same bytes were just decoded
	resp := map[string]any{
		"id": e.newID("resp_"), "object": "response", "created_at": e.c.Clock().Unix(), "status": "in_progress",
		"model": e.modelName(req.Model), "background": req.Background, "error": nil, "incomplete_details": nil,
		"output": []any{}, "usage": nil, "store": req.Store == nil || *req.Store, "service_tier": "default",
		"parallel_tool_calls": true, "tools": []any{}, "tool_choice": "auto", "temperature": 1.0, "top_p": 1.0,
		"truncation": "disabled", "metadata": map[string]any{}, "instructions": nil, "previous_response_id": nil,
		"max_output_tokens": nil, "reasoning": map[string]any{"effort": nil, "summary": nil}, "user": nil,
		"text": map[string]any{"format": map[string]any{"type": "text"}},
	}
	for field, v := range raw {
		if _, known := resp[field]; known && string(v) != "null" {
			resp[field] = v
		}
	}
	return resp
}

// outputItem is the answer as an output item; half-made items have empty text.
func (run *responseRun) outputItem(done bool) map[string]any {
	a, id := run.plan.answers[0], run.itemID()
	status, text := "in_progress", ""
	if done {
		status, text = "completed", a.text()
		if a.finish == finishLength {
			status = "incomplete"
		}
	}
	if a.tool != "" {
		return map[string]any{"type": "function_call", "id": id, "call_id": "call_" + id, "name": a.tool, "arguments": text, "status": status}
	}
	parts := []any{}
	if done {
		parts = append(parts, outputText(text, a.allLogprobs()))
	}
	return map[string]any{"type": "message", "id": id, "role": "assistant", "status": status, "content": parts}
}

func outputText(text string, logprobs []tokenLogprob) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": logprobs}
}

// itemID is the id of the one output item.
func (run *responseRun) itemID() string {
	id, _ := run.resp["id"].(string)
	if run.plan.answers[0].tool != "" {
		return "fc_" + id
	}
	return "msg_" + id
}

// complete returns the finished object.
func (run *responseRun) complete(u usage) map[string]any {
	resp := maps.Clone(run.resp)
	resp["status"] = "completed"
	if run.plan.answers[0].finish == finishLength {
		resp["status"] = "incomplete"
		resp["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	resp["completed_at"] = run.e.c.Clock().Unix()
	resp["output"] = []any{run.outputItem(true)}
	resp["usage"] = map[string]any{
		"input_tokens": u.prompt, "input_tokens_details": map[string]any{"cached_tokens": u.cached},
		"output_tokens": u.output, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		"total_tokens": u.prompt + u.output,
	}
	return resp
}

func (run *responseRun) whole(ctx context.Context, w http.ResponseWriter) error {
	u, err := run.e.generate(ctx, run.plan, nowhere{})
	if err != nil {
		return err
	}
	resp := run.complete(u)
	run.store(resp, nil)
	return run.e.writeWhole(w, u, resp)
}

func (run *responseRun) history() []turn {
	a := run.plan.answers[0]
	said := turn{"assistant", content{text: a.tool + a.text()}}
	if a.tool != "" {
		said.calls = []string{a.tool}
	}
	return append(run.turns[:len(run.turns):len(run.turns)], said)
}

func (run *responseRun) store(resp map[string]any, cancel context.CancelFunc) {
	if !run.keep {
		return
	}
	id, _ := resp["id"].(string)
	s := &stored{id: id, resp: resp, turns: run.history(), cancel: cancel}
	if run.resumable {
		s.log = run.log
	}
	run.e.stored.put(s)
}

// withStatus returns the object with another status.
func withStatus(resp map[string]any, status string) map[string]any {
	out := maps.Clone(resp)
	out["status"] = status
	return out
}
