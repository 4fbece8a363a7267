package engines

import (
	"encoding/json"
	"net/http"
)

// chunk is one event of a stream of chat or completions.
type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   any      `json:"usage,omitempty"`

	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"` // in the first event of a chat
}

// choice is a chunk's part of a choice: a Delta in chat, a Text in completions.
type choice struct {
	Index    int     `json:"index"`
	Delta    any     `json:"delta,omitempty"`
	Text     *string `json:"text,omitempty"`
	Logprobs any     `json:"logprobs"`
	Finish   any     `json:"finish_reason"`

	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"` // in the first event of a choice of completions
	TokenIDs       json.RawMessage `json:"token_ids,omitempty"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u Tokens) chat() chatUsage {
	c := chatUsage{PromptTokens: u.Prompt, CompletionTokens: u.Output, TotalTokens: u.Prompt + u.Output}
	c.PromptDetails.CachedTokens = u.Cached
	return c
}

// choices is an answer of chat or completions.
type choices struct {
	*sse
	head      chunk
	chat      bool
	withUsage bool // the stream ends with usage
	answers   []*answer
	calls     [][]string // ids of the calls of each answer
	prompts   [][]uint32 // if the answer returns token ids; otherwise nil
}

// writeChoices answers a request of the chat or completions dialect.
func (e *Engine) writeChoices(w http.ResponseWriter, r *request, p *plan, s *sampling, chat bool) error {
	c := &choices{
		sse:       &sse{w: w},
		chat:      chat,
		withUsage: s.StreamOptions.IncludeUsage,
		answers:   p.answers,
		calls:     make([][]string, len(p.answers)),
		head: chunk{
			ID:      e.answerID(r, "cmpl-"),
			Object:  "text_completion",
			Created: e.c.Clock().Unix(),
			Model:   e.modelName(s.Model),
		},
	}
	if chat {
		c.head.ID, c.head.Object = "chat"+c.head.ID, "chat.completion"
	}
	if s.TokenIDs {
		c.prompts = p.prompts
	}
	for i, a := range p.answers {
		for range a.calls {
			c.calls[i] = append(c.calls[i], e.newID("call_"))
		}
	}
	return e.write(r.Context(), w, p, c)
}

func (c *choices) whole(u Tokens) any {
	list := make([]map[string]any, len(c.answers))
	for i := range list {
		list[i] = c.wholeChoice(i)
	}
	body := map[string]any{"id": c.head.ID, "object": c.head.Object, "created": c.head.Created,
		"model": c.head.Model, "choices": list, "usage": u.chat()}
	c.addTokenIDs(body, list)
	return body
}

// addTokenIDs adds the ids of the tokens where vLLM has them, if they were requested.
func (c *choices) addTokenIDs(body map[string]any, list []map[string]any) {
	if c.prompts == nil {
		return
	}
	for i, one := range list {
		var ids []uint32
		for _, piece := range c.answers[i].pieces {
			ids = append(ids, tokenID(piece))
		}
		one["token_ids"] = listOf(ids)
		if !c.chat {
			one["prompt_token_ids"] = listOf(c.promptOf(i))
		}
	}
	if c.chat {
		body["prompt_token_ids"] = listOf(c.prompts[0])
	}
}

// promptOf returns the prompt of a choice.
func (c *choices) promptOf(i int) []uint32 { return c.prompts[i*len(c.prompts)/len(c.answers)] }

// wholeChoice returns one choice of a complete answer.
func (c *choices) wholeChoice(i int) map[string]any {
	a := c.answers[i]
	body := map[string]any{"index": i, "logprobs": nil, "finish_reason": a.finish}
	if !c.chat {
		body["text"] = a.text()
		if a.logprobs {
			body["logprobs"] = a.textLogprobs(0, len(a.pieces))
		}
		return body
	}
	message := map[string]any{"role": "assistant", "content": a.text(), "refusal": nil}
	if len(a.calls) > 0 {
		list := make([]any, len(a.calls))
		for k, call := range a.calls {
			list[k] = map[string]any{"id": c.calls[i][k], "type": "function",
				"function": map[string]any{"name": call.tool, "arguments": a.arguments(k)}}
		}
		message["content"], message["tool_calls"] = nil, list
	}
	if a.logprobs {
		body["logprobs"] = map[string]any{"content": a.allLogprobs(), "refusal": nil}
	}
	body["message"] = message
	return body
}

func (c *choices) open() error {
	if c.chat {
		c.head.Object = "chat.completion.chunk"
	}
	if c.withUsage {
		c.head.Usage = json.RawMessage("null")
	}
	return c.sse.open()
}

func (c *choices) last(u Tokens) error {
	if c.withUsage {
		c.head.Choices, c.head.Usage = []choice{}, u.chat()
		if err := c.event("", c.head); err != nil {
			return err
		}
	}
	return c.sse.send("", []byte("[DONE]"))
}

func (c *choices) add(one choice) error {
	c.head.Choices = []choice{one}
	return c.event("", c.head)
}

// begin opens the choices of a chat: the role, and the name of the first call.
func (c *choices) begin(Tokens) error {
	if !c.chat {
		return nil
	}
	if c.prompts != nil {
		c.head.PromptTokenIDs = listOf(c.prompts[0])
	}
	for i, a := range c.answers {
		one := choice{Index: i, Delta: chatDelta{Role: "assistant", Content: new("")}}
		if len(a.calls) > 0 {
			one.Delta = map[string]any{"role": "assistant", "content": nil, "tool_calls": c.opened(i, 0)}
		}
		if err := c.add(one); err != nil {
			return err
		}
		c.head.PromptTokenIDs = nil // only the first event has it
	}
	return nil
}

// opened is the beginning of a call.
func (c *choices) opened(i, call int) []any {
	return []any{map[string]any{"index": call, "id": c.calls[i][call], "type": "function",
		"function": map[string]any{"name": c.answers[i].calls[call].tool, "arguments": ""}}}
}

func (c *choices) token(i, step int, piece string) error {
	a, one := c.answers[i], choice{Index: i}
	switch {
	case !c.chat:
		one.Text = &piece
		if a.logprobs {
			one.Logprobs = a.textLogprobs(step, step+1)
		}
	case len(a.calls) > 0:
		call, begins := a.callAt(step)
		if begins && call > 0 {
			if err := c.add(choice{Index: i, Delta: map[string]any{"tool_calls": c.opened(i, call)}}); err != nil {
				return err
			}
		}
		one.Delta = map[string]any{"tool_calls": []any{map[string]any{"index": call,
			"function": map[string]any{"arguments": piece}}}}
	default:
		one.Delta = chatDelta{Content: &piece}
		if a.logprobs {
			one.Logprobs = map[string]any{"content": []tokenLogprob{a.logprob(step)}}
		}
	}
	if c.prompts != nil {
		one.TokenIDs = listOf(appendIDs(nil, piece))
		if !c.chat && step == 0 {
			one.PromptTokenIDs = listOf(c.promptOf(i))
		}
	}
	return c.add(one)
}

func (c *choices) end(i int, finish string) error {
	one := choice{Index: i, Finish: finish, Delta: chatDelta{}}
	if !c.chat {
		one.Delta, one.Text = nil, new("")
	}
	return c.add(one)
}
