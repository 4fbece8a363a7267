package engines

import (
	"cmp"
)

// open sends the two events that announce the response, before the engine has a slot.
func (resp *response) open() error {
	if err := resp.begun(); err != nil {
		return err
	}
	return resp.announce("in_progress", "response.created", "response.in_progress")
}

// announce sends events with the response before its first token.
func (resp *response) announce(status string, names ...string) error {
	for _, name := range names {
		if err := resp.event(name, map[string]any{"response": resp.with(status)}); err != nil {
			return err
		}
	}
	return nil
}

func (resp *response) last(u Tokens) error {
	resp.whole(u)
	return resp.finish(resp.object)
}

// finish sends the last event, whose name states how the response ended. OpenAI has no event for a
// cancelled response: response.failed carries its status.
func (resp *response) finish(object map[string]any) error {
	status, _ := object["status"].(string)
	if status == "cancelled" {
		status = "failed"
	}
	return resp.event("response."+status, map[string]any{"response": object})
}

// event sends an event with its name and an increasing number.
func (resp *response) event(name string, fields map[string]any) error {
	fields["type"], fields["sequence_number"] = name, resp.number
	resp.number++
	return resp.emit(name, fields)
}

func (resp *response) begin(Tokens) error {
	if resp.cancel != nil {
		resp.e.stored.update(resp, resp.with("in_progress"))
		if err := resp.announce("in_progress", "response.in_progress"); err != nil {
			return err
		}
	}
	if err := resp.openItem(0); err != nil || len(resp.answer.calls) > 0 {
		return err
	}
	return resp.event("response.content_part.added", resp.part("part", outputText("", []tokenLogprob{})))
}

func (resp *response) openItem(i int) error {
	return resp.event("response.output_item.added", map[string]any{"output_index": i, "item": resp.outputItem(i, false)})
}

func (resp *response) closeItem(i int) error {
	return resp.event("response.output_item.done", map[string]any{"output_index": i, "item": resp.outputItem(i, true)})
}

// closeCall sends the events that end a call.
func (resp *response) closeCall(i int) error {
	a := resp.answer
	return cmp.Or(
		resp.event("response.function_call_arguments.done", map[string]any{"item_id": resp.itemID(i), "output_index": i,
			"name": a.calls[i].tool, "arguments": a.arguments(i)}),
		resp.closeItem(i))
}

// responseDelta is the event of one token; the fields of a place in a text are nil for the
// arguments of a call.
type responseDelta struct {
	Type     string `json:"type"`
	Number   int64  `json:"sequence_number"`
	Item     string `json:"item_id"`
	Output   int    `json:"output_index"`
	Content  *int   `json:"content_index,omitempty"`
	Logprobs any    `json:"logprobs,omitempty"`
	Delta    string `json:"delta"`
}

func (resp *response) token(_, step int, piece string) error {
	a := resp.answer
	d := responseDelta{Type: "response.output_text.delta", Content: new(0), Delta: piece}
	if len(a.calls) > 0 {
		call, begins := a.callAt(step)
		if begins && call > 0 {
			if err := cmp.Or(resp.closeCall(call-1), resp.openItem(call)); err != nil {
				return err
			}
		}
		d = responseDelta{Type: "response.function_call_arguments.delta", Output: call, Delta: piece}
	} else {
		logprobs := []tokenLogprob{}
		if a.logprobs {
			logprobs = append(logprobs, a.logprob(step))
		}
		d.Logprobs = logprobs
	}
	d.Item, d.Number = resp.itemID(d.Output), resp.number
	resp.number++
	return resp.emit(d.Type, d)
}

func (resp *response) end(int, string) error {
	a := resp.answer
	if len(a.calls) > 0 {
		return resp.closeCall(len(a.calls) - 1)
	}
	text := resp.part("text", a.text())
	text["logprobs"] = a.allLogprobs()
	return cmp.Or(
		resp.event("response.output_text.done", text),
		resp.event("response.content_part.done", resp.part("part", outputText(a.text(), a.allLogprobs()))),
		resp.closeItem(0))
}

// part returns a field with its place: the answer's only text.
func (resp *response) part(name string, v any) map[string]any {
	return map[string]any{"item_id": resp.itemID(0), "output_index": 0, "content_index": 0, name: v}
}
