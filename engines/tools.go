package engines

import (
	"encoding/json"
	"strings"
)

// tool is a function that the client offers, in any dialect.
type tool struct {
	name   string
	params json.RawMessage
}

func (t *tool) UnmarshalJSON(b []byte) error {
	var raw struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function *struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
		Parameters  json.RawMessage `json:"parameters"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return badRequest("tools", "a tool must be an object: %v", err)
	}
	t.name, t.params = raw.Name, raw.Parameters
	if raw.InputSchema != nil {
		t.params = raw.InputSchema
	}
	if raw.Function != nil {
		t.name, t.params = raw.Function.Name, raw.Function.Parameters
	}
	if t.name == "" {
		t.name = raw.Type // hosted tools have a type and no name
	}
	if t.name == "" {
		return badRequest("tools", "a tool has no name")
	}
	return nil
}

// toolChoice is whether a tool must, may or must not be called.
type toolChoice struct {
	mode string // auto, none, required
	name string // the one tool that must be called
}

func (c *toolChoice) UnmarshalJSON(b []byte) error {
	var mode string
	if json.Unmarshal(b, &mode) == nil {
		c.mode = mode
		return c.check()
	}
	var raw struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Mode     string `json:"mode"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		Allowed struct {
			Mode string `json:"mode"`
		} `json:"allowed_tools"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return badRequest("tool_choice", "tool_choice must be a string or an object")
	}
	switch raw.Type {
	case "function", "tool":
		c.mode, c.name = "required", raw.Name+raw.Function.Name
	case "any":
		c.mode = "required"
	case "allowed_tools":
		c.mode = raw.Mode + raw.Allowed.Mode
	default:
		c.mode = raw.Type
	}
	return c.check()
}

func (c *toolChoice) check() error {
	switch c.mode {
	case "", "auto", "none", "required":
		return nil
	}
	return badRequest("tool_choice", "tool_choice %q is not one of auto, none, required or a named function", c.mode)
}

// pickTool decides whether the answer calls a tool, and which. Left to itself the
// engine calls one when the last message is a person's and speaks of the weather,
// asks for a call, or uses a word of a tool's name.
func pickTool(tools []tool, choice toolChoice, turns []turn) (*tool, error) {
	if choice.name != "" {
		for i := range tools {
			if tools[i].name == choice.name {
				return &tools[i], nil
			}
		}
		return nil, badRequest("tool_choice", "tool_choice names %q, which is not among the tools", choice.name)
	}
	if choice.mode == "required" && len(tools) == 0 {
		return nil, badRequest("tools", "tool_choice requires a call and there are no tools")
	}
	if len(tools) == 0 || choice.mode == "none" {
		return nil, nil
	}
	text := ""
	if last := len(turns) - 1; last >= 0 && turns[last].role == "user" && turns[last].human {
		text = strings.ToLower(turns[last].text)
	}
	for i := range tools {
		if text != "" && nameInText(tools[i].name, text) {
			return &tools[i], nil
		}
	}
	if choice.mode == "required" || strings.Contains(text, "weather") || strings.Contains(text, "call ") || strings.Contains(text, "use the tool") {
		return &tools[0], nil
	}
	return nil, nil
}

// nameInText looks for a word of a tool's name that says something: four letters
// and more, "get" and "the" say nothing.
func nameInText(name, text string) bool {
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' }) {
		if len(word) >= 4 && strings.Contains(text, word) {
			return true
		}
	}
	return false
}
