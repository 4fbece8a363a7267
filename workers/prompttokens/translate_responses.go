package prompttokens

import (
	"encoding/json"
)

type responseItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Status    string          `json:"status"`
	Content   json.RawMessage `json:"content"`
	Summary   []textPart      `json:"summary"`
	CallID    string          `json:"call_id"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
	Encrypted string          `json:"encrypted_content"`
}

func (j *job) translateResponses() (all []chatTurn, ok bool) {
	var r struct{ Effort string }
	if !j.translateResponseTools() || json.Unmarshal(orNull(j.source[reasoning]), &r) != nil {
		return nil, false
	}
	j.effort = r.Effort
	at := 0
	if j.source[instructions] != nil {
		if !isString(j.source[instructions]) {
			return nil, false
		}
		if string(j.source[instructions]) != `""` {
			all = append(all, chatTurn{Role: "system", Content: j.source[instructions]})
		}
		at++
	}
	if isString(j.source[input]) {
		return append(all, chatTurn{Role: "user", Content: j.source[input], from: at}), true
	}
	var items []responseItem
	if json.Unmarshal(j.source[input], &items) != nil {
		return nil, false
	}
	for i := range items {
		if all, ok = appendItem(all, &items[i]); !ok {
			return nil, false
		}
		if n := len(all); n > 0 {
			all[n-1].from = at + i
		}
	}
	return all, true
}

// appendItem appends the message of an item, or adds the item to the answer before it.
func appendItem(all []chatTurn, it *responseItem) (out []chatTurn, ok bool) {
	var answer *chatTurn // the answer before the item
	if n := len(all); n > 0 && all[n-1].Role == "assistant" {
		answer = &all[n-1]
	}
	if it.Status == "in_progress" || it.Status == "incomplete" || it.Encrypted != "" {
		return nil, false // the engine goes on with it, or refuses it
	}
	switch it.Type {
	case "function_call":
		name := it.Name
		if it.Namespace != "" {
			name = it.Namespace + "__" + name
		}
		return appendCall(all, answer, newCall(it.CallID, name, it.Arguments)), true
	case "custom_tool_call":
		arguments := encode(map[string]string{"input": it.Input})
		return appendCall(all, answer, newCall(it.CallID, it.Name, string(arguments))), true
	case "function_call_output", "custom_tool_call_output":
		content, ok := partsOf(it.Output)
		return append(all, chatTurn{Role: "tool", CallID: new(it.CallID), Content: content}), ok
	case "reasoning":
		return appendReasoning(all, answer, it)
	case "", "message":
		if it.Role == "assistant" {
			return appendAnswer(all, answer, it.Content)
		}
		content, ok := partsOf(it.Content)
		return append(all, chatTurn{Role: it.Role, Content: content}), ok && it.Role != ""
	}
	return nil, false
}

func appendCall(all []chatTurn, answer *chatTurn, c toolCall) []chatTurn {
	if answer != nil {
		answer.Calls = append(answer.Calls, c)
		return all
	}
	return append(all, chatTurn{Role: "assistant", Calls: []toolCall{c}})
}

func appendReasoning(all []chatTurn, answer *chatTurn, it *responseItem) (out []chatTurn, ok bool) {
	texts := it.Summary
	var own []textPart
	if json.Unmarshal(orNull(it.Content), &own) != nil {
		return nil, false
	}
	if len(own) > 0 {
		texts = own
	}
	thought := ""
	if len(texts) > 0 {
		thought = texts[0].Text
	}
	if answer != nil && answer.Reasoning == nil {
		answer.Reasoning = &thought
		return all, true
	}
	return append(all, chatTurn{Role: "assistant", Reasoning: &thought}), true
}

// appendAnswer appends an earlier answer. Of several parts, the engine reads the first.
func appendAnswer(all []chatTurn, answer *chatTurn, content []byte) (out []chatTurn, ok bool) {
	if !isString(content) {
		var parts []textPart
		if json.Unmarshal(content, &parts) != nil || len(parts) == 0 || parts[0].Type == "refusal" {
			return nil, false
		}
		content = encode(parts[0].Text)
	}
	if answer != nil && answer.Content == nil {
		answer.Content = content
		return all, true
	}
	return append(all, chatTurn{Role: "assistant", Content: content}), true
}

// partsOf returns a content of Responses as that of a chat.
func partsOf(raw []byte) (content json.RawMessage, ok bool) {
	if isString(raw) {
		return raw, true
	}
	var parts []textPart
	if json.Unmarshal(raw, &parts) != nil {
		return nil, false
	}
	for i := range parts {
		switch parts[i].Type {
		case "text", "input_text", "output_text":
			parts[i].Type = "text"
		default:
			return nil, false
		}
	}
	return encode(parts), true
}

// freeform is the schema by which vLLM shows a custom tool to the model.
const freeform = `{"type":"object","properties":{"input":{"type":"string","description":` +
	`"The freeform text payload for this tool."}},"required":["input"],"additionalProperties":false}`

// translateResponseTools makes the tools of a chat from those of Responses. The engine shows functions to the model;
// tools that it would call itself are left out.
func (j *job) translateResponseTools() bool {
	if j.source[tools] == nil {
		return true
	}
	type named struct {
		Type string `json:"type"`
		function
	}
	var sent []struct {
		named
		Tools []named `json:"tools"`
	}
	if json.Unmarshal(j.source[tools], &sent) != nil {
		return false
	}
	var all []chatTool
	for i := range sent {
		switch t := &sent[i]; t.Type {
		case "function":
			all = append(all, chatTool{"function", t.function})
		case "namespace":
			for _, in := range t.Tools {
				if in.Type == "function" {
					in.Name = t.Name + "__" + in.Name
					all = append(all, chatTool{"function", in.function})
				}
			}
		case "custom":
			all = append(all, chatTool{"function", function{Name: t.Name, Description: t.Description,
				Parameters: json.RawMessage(freeform)}})
		}
	}
	j.source[tools] = nil
	if len(all) > 0 {
		j.source[tools] = encode(all)
	}
	return true
}
