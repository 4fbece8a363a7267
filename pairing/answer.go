package pairing

import (
	"encoding/json"
	"strings"

	"tierway/openai"
)

// Answer is the answer to a repeated request, or its error.
type Answer struct {
	Result Result
	Tier   string // tier that answered; empty without one
	Status int    // of HTTP
	Code   string // of the error; empty without one
	Body   []byte // whole. It has text of the model, which may repeat a prompt
}

// Result is how a repeated request ended.
type Result uint8

// The results of repeated requests.
const (
	Answered Result = iota
	Refused         // by the gateway or an engine, such as by a limit of the tenant
	Failed
)

type part struct {
	Type, Text, Refusal string
}

// answer has the fields of all dialects that hold the text of an answer.
type answer struct {
	Choices []struct {
		Text    *string // completions
		Message struct {
			Content *string
			Refusal *string
		}
	}
	Content []part // messages
	Output  []struct {
		Type    string
		Content []part
	} // responses
}

// Text returns the text of a whole answer: that of its first choice, or all its parts of text in their order. A
// refusal of the model is a text too. ok is false for an answer without a text, such as one that only calls tools.
func Text(d openai.Dialect, body []byte) (text string, ok bool) {
	var a answer
	if json.Unmarshal(body, &a) != nil {
		return "", false
	}
	var parts []part
	switch d {
	case openai.Chat, openai.Completions:
		if len(a.Choices) == 0 {
			return "", false
		}
		first := a.Choices[0]
		for _, t := range []*string{first.Text, first.Message.Content, first.Message.Refusal} {
			if t != nil {
				return *t, true
			}
		}
	case openai.Messages:
		parts = a.Content
	case openai.Responses:
		for _, item := range a.Output {
			if item.Type == "message" {
				parts = append(parts, item.Content...)
			}
		}
	}
	var all strings.Builder
	for _, p := range parts {
		switch p.Type {
		case "text", "output_text":
			all.WriteString(p.Text)
		case "refusal":
			all.WriteString(p.Refusal)
		default:
			continue
		}
		ok = true
	}
	return all.String(), ok
}
