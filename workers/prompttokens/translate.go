package prompttokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"tierway/openai"
)

// The translations are those of vLLM 0.32, which makes a chat of each request before it renders the prompt.

type chatTurn struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content,omitempty"`
	Reasoning *string         `json:"reasoning,omitempty"`
	Calls     []toolCall      `json:"tool_calls,omitempty"`
	CallID    *string         `json:"tool_call_id,omitempty"`

	from int // the message of the client's request that ends it
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newCall(id, name, arguments string) toolCall {
	c := toolCall{ID: id, Type: "function"}
	c.Function.Name, c.Function.Arguments = name, arguments
	return c
}

type textPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type chatTool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

// function is a function as a tool of any dialect.
type function struct {
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	Parameters   json.RawMessage `json:"parameters"`
	Strict       *bool           `json:"strict,omitempty"`
	DeferLoading *bool           `json:"defer_loading,omitempty"`
}

// encode returns the JSON form of a value. It keeps < and > as they are.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func isString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// isSet reports whether raw JSON is neither absent nor null.
func isSet(raw []byte) bool { return len(raw) > 0 && raw[0] != 'n' }

// translate makes the members of a chat from those of another dialect.
func (j *job) translate() (ok bool) {
	var all []chatTurn
	switch j.dialect {
	case openai.Chat:
		return json.Unmarshal(orNull(j.source[effort]), &j.effort) == nil && j.renameReasoning()
	case openai.Messages:
		all, ok = j.translateMessages()
	case openai.Responses:
		all, ok = j.translateResponses()
	default:
		return true
	}
	if !ok || len(all) == 0 {
		return false
	}
	j.source[messages] = encode(all)
	j.setTurns(all)
	return j.source[messages] != nil
}

func orNull(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

// setTurns makes the turns of a translated chat, and keeps only the ends of the blocks that end one. A turn ends where
// no later message of the request changes it: an item of Responses may be added to the answer before it.
func (j *job) setTurns(all []chatTurn) {
	ends := j.ends
	j.translated, j.ends = nil, nil
	for i, begin := 0, 0; i < len(all); i++ {
		last := i == len(all)-1
		switch open := j.dialect == openai.Responses && all[i].Role == "assistant"; {
		case last && open, all[i].from >= len(ends):
			j.divisible = false
			return
		case open, !last && all[i+1].from == all[i].from:
			continue
		}
		raw := encode(all[begin : i+1])
		j.translated = append(j.translated, turn{raw[1 : len(raw)-1], all[i].Role})
		j.ends = append(j.ends, ends[all[i].from])
		begin = i + 1
	}
	j.divisible = true
}

// renameReasoning gives the reasoning of earlier answers the name that /tokenize reads.
func (j *job) renameReasoning() bool {
	const old = "reasoning_content"
	if !bytes.Contains(j.source[messages], []byte(`"`+old+`"`)) {
		return true
	}
	var all []map[string]json.RawMessage
	if json.Unmarshal(j.source[messages], &all) != nil {
		return true // the engine refuses it
	}
	for _, m := range all {
		if !isSet(m["reasoning"]) && isSet(m[old]) {
			m["reasoning"] = m[old]
		}
		delete(m, old)
	}
	j.source[messages] = encode(all)
	return true
}

// argumentsOf returns the arguments of the chat template: those of the request, the effort of reasoning and documents.
func argumentsOf(own []byte, effort string, documents []byte) (merged []byte, ok bool) {
	if effort == "auto" {
		effort = ""
	}
	if effort == "" && documents == nil {
		return own, true
	}
	all := map[string]json.RawMessage{}
	if own != nil && json.Unmarshal(own, &all) != nil {
		return nil, false
	}
	if documents != nil {
		all["documents"] = documents
	}
	if effort != "" {
		all["reasoning_effort"] = encode(effort)
		if _, set := all["enable_thinking"]; !set {
			all["enable_thinking"] = encode(effort != "none")
		}
	}
	return encode(all), true
}

// billing begins a system text that vLLM leaves out: it changes with each request.
const billing = "x-anthropic-billing-header"

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  *string         `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

func (j *job) translateMessages() (all []chatTurn, ok bool) {
	var sent []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(j.source[messages], &sent) != nil || !j.translateAnthropicTools() || !j.readThinking() {
		return nil, false
	}
	at := 0
	if j.source[system] != nil {
		prefix, ok := systemText(j.source[system])
		if !ok {
			return nil, false
		}
		if prefix != "" {
			all = append(all, chatTurn{Role: "system", Content: encode(prefix)})
		}
		at++
	}
	for i, m := range sent {
		from := len(all)
		switch {
		case m.Role == "system":
			inline, ok := systemText(m.Content)
			if !ok {
				return nil, false
			}
			if inline != "" && !strings.HasPrefix(inline, billing) {
				j.inline = true
				all = append(all, chatTurn{Role: "system", Content: encode(inline)})
			}
		case isString(m.Content):
			all = append(all, chatTurn{Role: m.Role, Content: m.Content})
		default:
			if all, ok = appendAnthropic(all, m.Role, m.Content); !ok {
				return nil, false
			}
		}
		for k := from; k < len(all); k++ {
			all[k].from = at + i
		}
	}
	return all, true
}

func systemText(raw []byte) (joined string, ok bool) {
	if isString(raw) {
		ok = json.Unmarshal(raw, &joined) == nil
		return joined, ok
	}
	var blocks []anthropicBlock
	if json.Unmarshal(raw, &blocks) != nil {
		return "", false
	}
	var b strings.Builder
	for i := range blocks {
		if blocks[i].Type == "text" && !strings.HasPrefix(blocks[i].Text, billing) {
			b.WriteString(blocks[i].Text)
		}
	}
	return b.String(), true
}

// appendAnthropic appends the messages that a message with blocks becomes.
func appendAnthropic(all []chatTurn, role string, content []byte) (out []chatTurn, ok bool) {
	var blocks []anthropicBlock
	if json.Unmarshal(content, &blocks) != nil {
		return all, false
	}
	m := chatTurn{Role: role}
	var parts []textPart
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case "text":
			if b.Text != "" {
				parts = append(parts, textPart{"text", b.Text})
			}
		case "thinking":
			if b.Thinking != nil {
				if m.Reasoning == nil {
					m.Reasoning = new("")
				}
				*m.Reasoning += *b.Thinking
			}
		case "redacted_thinking":
		case "tool_use":
			arguments := "{}"
			if isSet(b.Input) {
				arguments = string(b.Input)
			}
			m.Calls = append(m.Calls, newCall(b.ID, b.Name, arguments))
		case "tool_result":
			result, ok := resultText(b.Content)
			if !ok || role != "user" {
				return all, false
			}
			all = append(all, chatTurn{Role: "tool", CallID: new(b.ToolUseID), Content: encode(result)})
		default:
			return all, false
		}
	}
	switch {
	case len(parts) == 1:
		m.Content = encode(parts[0].Text)
	case len(parts) > 1:
		m.Content = encode(parts)
	case role == "user":
		return all, true
	}
	return append(all, m), true
}

func resultText(raw []byte) (joined string, ok bool) {
	switch {
	case !isSet(raw):
		return "", true
	case isString(raw):
		ok = json.Unmarshal(raw, &joined) == nil
		return joined, ok
	}
	var parts []textPart
	if json.Unmarshal(raw, &parts) != nil {
		return "", false
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", false
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), true
}

func (j *job) translateAnthropicTools() (ok bool) {
	if j.source[tools] == nil {
		return true
	}
	var sent []struct {
		function
		Schema json.RawMessage `json:"input_schema"`
	}
	if json.Unmarshal(j.source[tools], &sent) != nil {
		return false
	}
	all := make([]chatTool, len(sent))
	for i := range sent {
		t := &sent[i]
		if t.Parameters, ok = withType(t.Schema); !ok {
			return false
		}
		all[i] = chatTool{"function", t.function}
	}
	j.source[tools] = encode(all)
	return true
}

// withType returns a schema with the type object as its last member if it has no type.
func withType(schema []byte) ([]byte, bool) {
	var named struct {
		Type json.RawMessage `json:"type"`
	}
	if len(schema) == 0 || schema[0] != '{' || json.Unmarshal(schema, &named) != nil {
		return nil, false
	}
	if named.Type != nil {
		return schema, true
	}
	open := bytes.TrimRight(schema[:len(schema)-1], " \t\r\n")
	if !bytes.Equal(open, []byte("{")) {
		open = append(open[:len(open):len(open)], ',')
	}
	return append(open[:len(open):len(open)], `"type":"object"}`...), true
}

// readThinking reads the effort of reasoning of Messages.
func (j *job) readThinking() bool {
	var o struct{ Effort string }
	var t struct{ Type string }
	if json.Unmarshal(orNull(j.source[output]), &o) != nil || json.Unmarshal(orNull(j.source[thinking]), &t) != nil {
		return false
	}
	j.effort = o.Effort
	if t.Type == "disabled" {
		j.effort = "none"
	}
	return true
}

// placeInline moves the system messages that follow other messages to where the engine puts them: into the first
// one, if the chat template rejects them elsewhere.
func (s *Source) placeInline(ctx context.Context, j *job) bool {
	k := messageEndKey{j.template, "inline system"}
	m, known := s.ends.get(k)
	if !known {
		probe := []turn{probeTurn("system", "t"), probeTurn("user", "t"), probeTurn("system", "t"), probeTurn("user", "t")}
		_, err := s.requestTokens(ctx, tokenizePath, j.part(probe, false, false))
		if err != nil && !errors.Is(err, errRefused) {
			return false
		}
		m = messageEnd{holds: err == nil}
		s.ends.set(k, m)
	}
	return m.holds || j.mergeSystem()
}

// mergeSystem makes one system message of all.
func (j *job) mergeSystem() bool {
	var all, rest []chatTurn
	if json.Unmarshal(j.messages, &all) != nil {
		return false
	}
	var b strings.Builder
	for _, m := range all {
		if m.Role != "system" {
			rest = append(rest, m)
			continue
		}
		var t string
		if json.Unmarshal(m.Content, &t) != nil {
			return false
		}
		b.WriteString(t)
	}
	merged := encode(append([]chatTurn{{Role: "system", Content: encode(b.String())}}, rest...))
	j.body = bytes.Replace(j.body, j.messages, merged, 1)
	j.messages, j.divisible = merged, false
	return true
}
