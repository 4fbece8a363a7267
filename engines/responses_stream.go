package engines

import (
	"context"
	"net/http"
	"strconv"
)

// responseStream is the sink of a Responses stream: every event carries its name
// and a number that counts up.
type responseStream struct {
	out    *sse
	run    *responseRun
	number int64
	item   string
	after  int64 // events up to this number are left out; -1: none
}

// stream answers with events. The two that announce the response go out before the
// engine has a slot for it.
func (run *responseRun) stream(ctx context.Context, w http.ResponseWriter) error {
	out, err := newSSE(w)
	if err != nil {
		return err
	}
	s := &responseStream{out: out, run: run, item: run.itemID(), after: -1}
	if err := s.announce("in_progress", "response.created", "response.in_progress"); err != nil {
		return err
	}
	u, err := run.e.generate(ctx, run.plan, s)
	if err != nil {
		return err
	}
	resp := run.complete(u)
	run.store(resp, nil)
	return s.finish(resp)
}

// announce sends events that hold the response before its first token.
func (s *responseStream) announce(status string, names ...string) error {
	for _, name := range names {
		if err := s.event(name, map[string]any{"response": withStatus(s.run.resp, status)}); err != nil {
			return err
		}
	}
	return nil
}

// finish sends the last event, whose name tells how the response ended.
func (s *responseStream) finish(resp map[string]any) error {
	status, _ := resp["status"].(string)
	return s.event("response."+status, map[string]any{"response": resp})
}

// skips numbers the next event and tells whether the client has it already.
func (s *responseStream) skips() bool {
	s.number++
	return s.number-1 <= s.after
}

func (s *responseStream) event(name string, fields map[string]any) error {
	fields["type"] = name
	fields["sequence_number"] = s.number
	if s.skips() {
		return nil
	}
	return s.out.event(name, fields)
}

func (s *responseStream) called() bool { return s.run.plan.answers[0].tool != "" }

func (s *responseStream) begin(usage) error {
	if err := s.event("response.output_item.added", map[string]any{"output_index": 0, "item": s.run.outputItem(s.item, false)}); err != nil {
		return err
	}
	if s.called() {
		return nil
	}
	return s.event("response.content_part.added", map[string]any{"item_id": s.item, "output_index": 0, "content_index": 0,
		"part": outputText("", []tokenLogprob{})})
}

// token is written by hand: it is nearly all of a stream.
func (s *responseStream) token(_, step int, piece string) error {
	a := s.run.plan.answers[0]
	name := "response.output_text.delta"
	if s.called() {
		name = "response.function_call_arguments.delta"
	}
	number := s.number
	if s.skips() {
		return nil
	}
	b := s.out.open(name)
	b = append(b, `{"type":"`...)
	b = append(b, name...)
	b = append(b, `","sequence_number":`...)
	b = strconv.AppendInt(b, number, 10)
	b = append(b, `,"item_id":`...)
	b = appendString(b, s.item)
	b = append(b, `,"output_index":0`...)
	switch {
	case a.logprobs:
		b = append(b, `,"content_index":0`...)
		b = appendLogprobs(b, true, func() any { return []tokenLogprob{a.logprob(step)} })
	case !s.called():
		b = append(b, `,"content_index":0,"logprobs":[]`...)
	}
	b = append(b, `,"delta":`...)
	b = appendString(b, piece)
	return s.out.send(append(b, '}'))
}

func (s *responseStream) end(int, string) error {
	a := s.run.plan.answers[0]
	if s.called() {
		if err := s.event("response.function_call_arguments.done", map[string]any{"item_id": s.item, "output_index": 0, "name": a.tool, "arguments": a.text()}); err != nil {
			return err
		}
	} else {
		at := func() map[string]any {
			return map[string]any{"item_id": s.item, "output_index": 0, "content_index": 0}
		}
		text := at()
		text["text"], text["logprobs"] = a.text(), a.allLogprobs()
		if err := s.event("response.output_text.done", text); err != nil {
			return err
		}
		part := at()
		part["part"] = outputText(a.text(), a.allLogprobs())
		if err := s.event("response.content_part.done", part); err != nil {
			return err
		}
	}
	return s.event("response.output_item.done", map[string]any{"output_index": 0, "item": s.run.outputItem(s.item, true)})
}
