package engines

import (
	"cmp"
	"context"
	"net/http"
)

// stream answers with events. The two that announce the response go out before the
// engine has a slot for it.
func (run *responseRun) stream(ctx context.Context, w http.ResponseWriter) error {
	out, err := newSSE(w)
	if err != nil {
		return err
	}
	run.emit = out.event
	if err := run.announce("in_progress", "response.created", "response.in_progress"); err != nil {
		return err
	}
	u, err := run.e.generate(ctx, run.plan, run)
	if err != nil {
		return err
	}
	resp := run.complete(u)
	run.store(resp, nil)
	return run.finish(resp)
}

// announce sends events that hold the response before its first token.
func (run *responseRun) announce(status string, names ...string) error {
	for _, name := range names {
		if err := run.event(name, map[string]any{"response": withStatus(run.resp, status)}); err != nil {
			return err
		}
	}
	return nil
}

// finish sends the last event, whose name tells how the response ended. OpenAI's stream
// has no event of its own for a cancelled response: response.failed carries its status.
func (run *responseRun) finish(resp map[string]any) error {
	status, _ := resp["status"].(string)
	if status == "cancelled" {
		status = "failed"
	}
	return run.event("response."+status, map[string]any{"response": resp})
}

// event sends an event, which carries its name and a number that counts up.
func (run *responseRun) event(name string, fields map[string]any) error {
	fields["type"], fields["sequence_number"] = name, run.number
	run.number++
	return run.emit(name, fields)
}

func (run *responseRun) begin(usage) error {
	if run.log != nil {
		run.e.stored.update(run.resp)
		if err := run.announce("in_progress", "response.in_progress"); err != nil {
			return err
		}
	}
	err := run.event("response.output_item.added", map[string]any{"output_index": 0, "item": run.outputItem(false)})
	if err != nil || run.plan.answers[0].tool != "" {
		return err
	}
	return run.event("response.content_part.added", run.part("part", outputText("", []tokenLogprob{})))
}

// responseDelta is the event of one token; the fields of a place in a text are nil in
// the arguments of a call.
type responseDelta struct {
	Type     string `json:"type"`
	Number   int64  `json:"sequence_number"`
	Item     string `json:"item_id"`
	Output   int    `json:"output_index"`
	Content  *int   `json:"content_index,omitempty"`
	Logprobs any    `json:"logprobs,omitempty"`
	Delta    string `json:"delta"`
}

func (run *responseRun) token(_, step int, piece string) error {
	d := responseDelta{Type: "response.function_call_arguments.delta", Number: run.number, Item: run.itemID(), Delta: piece}
	run.number++
	if a := run.plan.answers[0]; a.tool == "" {
		d.Type, d.Content = "response.output_text.delta", new(0)
		logprobs := []tokenLogprob{}
		if a.logprobs {
			logprobs = append(logprobs, a.logprob(step))
		}
		d.Logprobs = logprobs
	}
	return run.emit(d.Type, d)
}

func (run *responseRun) end(int, string) error {
	a := run.plan.answers[0]
	if a.tool != "" {
		return cmp.Or(
			run.event("response.function_call_arguments.done", map[string]any{"item_id": run.itemID(), "output_index": 0,
				"name": a.tool, "arguments": a.text()}),
			run.event("response.output_item.done", map[string]any{"output_index": 0, "item": run.outputItem(true)}))
	}
	text := run.part("text", a.text())
	text["logprobs"] = a.allLogprobs()
	return cmp.Or(
		run.event("response.output_text.done", text),
		run.event("response.content_part.done", run.part("part", outputText(a.text(), a.allLogprobs()))),
		run.event("response.output_item.done", map[string]any{"output_index": 0, "item": run.outputItem(true)}))
}

// part is a field with its place, which is the answer's one text.
func (run *responseRun) part(name string, v any) map[string]any {
	return map[string]any{"item_id": run.itemID(), "output_index": 0, "content_index": 0, name: v}
}
