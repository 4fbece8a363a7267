package engines

import (
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// completions serves POST /v1/completions: text, or token ids, for one prompt or a
// list of them.
func (e *Engine) completions(w http.ResponseWriter, r *request) error {
	var req struct {
		sampling
		Prompt   input `json:"prompt"`
		Logprobs *int  `json:"logprobs"`
	}
	if err := decode(r.body, &req); err != nil {
		return err
	}
	if err := e.checkModel(req.Model); err != nil {
		return err
	}
	if len(req.Prompt) == 0 {
		return badRequest("prompt", "the field prompt is missing or empty")
	}
	wish, err := req.wishes()
	if err != nil {
		return err
	}
	if wish.maxTokens == 0 {
		wish.maxTokens = 16 // the default of OpenAI's legacy endpoint
	}
	if req.Logprobs != nil {
		if err := wish.wantLogprobs("logprobs", *req.Logprobs); err != nil {
			return err
		}
	}
	p, err := e.newPlan(r, req.Stream, req.Priority)
	if err != nil {
		return err
	}
	for _, prompt := range req.Prompt {
		if err := e.add(p, prompt, nil, wish); err != nil {
			return err
		}
	}
	id, model := e.newID("cmpl-"), e.modelName(req.Model)
	if !req.Stream {
		return e.completionWhole(w, r, p, id, model)
	}
	head := chunkHead(id, "text_completion", model, e.c.Clock().Unix())
	texts := &textStream{answers: p.answers, offsets: make([]int, len(p.answers))}
	return e.streamChunks(w, r, p, texts, head, req.StreamOptions.IncludeUsage)
}

func (e *Engine) completionWhole(w http.ResponseWriter, r *request, p *plan, id, model string) error {
	u, err := e.generate(r.Context(), p, nowhere{})
	if err != nil {
		return err
	}
	choices := make([]map[string]any, len(p.answers))
	for i, a := range p.answers {
		choices[i] = map[string]any{"index": i, "text": a.text(), "logprobs": nil, "finish_reason": a.finish}
		if a.logprobs {
			choices[i]["logprobs"] = a.textLogprobs(0, len(a.pieces), 0)
		}
	}
	return e.writeWhole(w, u, map[string]any{"id": id, "object": "text_completion", "created": e.c.Clock().Unix(),
		"model": model, "choices": choices, "usage": u.chat()})
}

// textStream makes the choices of a completion stream's chunks.
type textStream struct {
	answers []*answer
	offsets []int // of each choice's next token, in characters
}

func (*textStream) first(b []byte, _ int) []byte { return b }

func (c *textStream) token(b []byte, i, step int, piece string) []byte {
	a := c.answers[i]
	b = openText(b, i, piece)
	b = appendLogprobs(b, a.logprobs, func() any { return a.textLogprobs(step, step+1, c.offsets[i]) })
	c.offsets[i] += utf8.RuneCountInString(piece)
	return append(b, `,"finish_reason":null}`...)
}

func (*textStream) last(b []byte, i int, finish string) []byte {
	b = append(openText(b, i, ""), `,"logprobs":null,"finish_reason":`...)
	b = appendString(b, finish)
	return append(b, '}')
}

func openText(b []byte, i int, text string) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `,"text":`...)
	return appendString(b, text)
}

// choiceWriter appends a choice's object to a chunk: its opening (nothing where the
// dialect has none), a token, its end.
type choiceWriter interface {
	first(b []byte, choice int) []byte
	token(b []byte, choice, step int, piece string) []byte
	last(b []byte, choice int, finish string) []byte
}

// chunkHead is what all chunks of a stream begin with, up to the list of choices.
func chunkHead(id, object, model string, created int64) []byte {
	b := append([]byte(nil), `{"id":`...)
	b = appendString(b, id)
	b = append(b, `,"object":`...)
	b = appendString(b, object)
	b = append(b, `,"created":`...)
	b = strconv.AppendInt(b, created, 10)
	b = append(b, `,"model":`...)
	b = appendString(b, model)
	return append(b, `,"choices":[`...)
}

// chunks is the sink of chat and completion streams.
type chunks struct {
	out     *sse
	choices choiceWriter
	n       int
	head    []byte
	tail    string
}

// streamChunks streams an answer of the chat or completions dialect to its end.
func (e *Engine) streamChunks(w http.ResponseWriter, r *request, p *plan, cw choiceWriter, head []byte, withUsage bool) error {
	out, err := newSSE(w)
	if err != nil {
		return err
	}
	c := &chunks{out: out, choices: cw, n: len(p.answers), head: head, tail: `]}`}
	if withUsage {
		c.tail = `],"usage":null}`
	}
	u, err := e.generate(r.Context(), p, c)
	if err != nil {
		return err
	}
	if withUsage {
		if err := c.usage(u); err != nil {
			return err
		}
	}
	return out.done()
}

func (c *chunks) begin(usage) error {
	for i := range c.n {
		b := append(c.out.open(""), c.head...)
		before := len(b)
		if b = c.choices.first(b, i); len(b) == before {
			return nil
		}
		if err := c.out.send(append(b, c.tail...)); err != nil {
			return err
		}
	}
	return nil
}

func (c *chunks) token(i, step int, piece string) error {
	b := c.choices.token(append(c.out.open(""), c.head...), i, step, piece)
	return c.out.send(append(b, c.tail...))
}

func (c *chunks) end(i int, finish string) error {
	b := c.choices.last(append(c.out.open(""), c.head...), i, finish)
	return c.out.send(append(b, c.tail...))
}

func (c *chunks) usage(u usage) error {
	counted, err := json.Marshal(u.chat())
	if err != nil {
		return err
	}
	b := append(c.out.open(""), c.head...)
	b = append(b, `],"usage":`...)
	b = append(b, counted...)
	return c.out.send(append(b, '}'))
}
