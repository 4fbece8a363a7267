package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// turn is one message as the engine renders it, in any dialect.
type turn struct {
	role string // system, user, assistant, tool
	content
}

// content is a message's content: a string or a list of parts.
type content struct {
	text   string
	texts  []string // its texts that are no tool's result
	calls  []string // names of the called tools
	result bool     // contains a tool's result
}

func (c *content) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case len(b) > 0 && b[0] == '"':
		err := json.Unmarshal(b, &c.text)
		c.texts = []string{c.text}
		return err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	for _, raw := range parts {
		var p part
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		c.text += p.render(raw)
		if p.isText() {
			c.texts = append(c.texts, p.Text)
		}
		c.result = c.result || p.Type == "tool_result"
		if p.Type == "tool_use" {
			c.calls = append(c.calls, p.Name)
		}
	}
	return nil
}

// part is one part of a content list, in any of the three dialects.
type part struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Content *content        `json:"content"` // for a tool_result
	Name    string          `json:"name"`    // for a tool_use
	Input   json.RawMessage `json:"input"`
}

func (p *part) isText() bool {
	return p.Type == "text" || p.Type == "input_text" || p.Type == "output_text"
}

func (p *part) render(raw []byte) string {
	switch {
	case p.isText():
		return p.Text
	case p.Type == "tool_result" && p.Content == nil:
		return ""
	case p.Type == "tool_result":
		return p.Content.text
	case p.Type == "tool_use":
		return p.Name + string(p.Input)
	}
	// Images, audio and files have a fixed number of tokens that depends on their content.
	return fmt.Sprintf("<%s %016x>", p.Type, hashIDs(0, appendIDs(nil, string(raw))))
}

// The markers that a chat template puts around messages, as token ids; tokens of text have higher
// ids.
const (
	markStart uint32 = iota + 1
	markEnd
	markText
)

// render formats turns like a chat template and returns the prompt's tokens. Each message is
// tokenised separately, so that an answer in the history has the tokens that it was written with.
func render(tools []tool, turns []turn) []uint32 {
	return appendRole(renderTurns(tools, turns), "assistant")
}

// renderTurns is render without the marks that begin the answer.
func renderTurns(tools []tool, turns []turn) []uint32 {
	size := 2
	for _, t := range turns {
		size += len(t.text)/tokenBytes + 8
	}
	ids := make([]uint32, 0, size)
	for _, t := range tools {
		ids = append(ids, markStart)
		ids = appendIDs(ids, t.name)
		ids = appendIDs(ids, string(t.params))
		ids = append(ids, markEnd)
	}
	for _, t := range turns {
		ids = appendRole(ids, t.role)
		ids = appendIDs(ids, t.text)
		ids = append(ids, markEnd)
	}
	return ids
}

func appendRole(ids []uint32, role string) []uint32 {
	ids = append(ids, markStart)
	ids = appendIDs(ids, role)
	return append(ids, markText)
}

// input is the input of completions and embeddings: a string, strings, token ids, or lists of token
// ids.
type input [][]uint32

func (in *input) UnmarshalJSON(b []byte) error {
	var one string
	var many []string
	var ids []uint32
	switch {
	case json.Unmarshal(b, &one) == nil:
		*in = input{appendIDs(nil, one)}
	case json.Unmarshal(b, &many) == nil:
		for _, s := range many {
			*in = append(*in, appendIDs(nil, s))
		}
	case json.Unmarshal(b, &ids) == nil:
		*in = input{ids}
	case json.Unmarshal(b, (*[][]uint32)(in)) != nil:
		return badRequest("input", "the input must be a string, strings, token ids, or lists of token ids")
	}
	return nil
}
