package engines

import (
	"cmp"
	"encoding/json"
	"slices"
)

// tool is a tool that the client offers, in any dialect.
type tool struct {
	name     string
	params   json.RawMessage
	function bool // run by the client, with arguments in JSON; hosted and free-text tools are never called
}

func (t *tool) UnmarshalJSON(b []byte) error {
	type signature struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var raw struct {
		signature
		Type        string          `json:"type"`
		Function    *signature      `json:"function"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if raw.Function != nil {
		raw.signature = *raw.Function
	}
	t.name = cmp.Or(raw.Name, raw.Type) // hosted tools have a type and no name
	t.params = raw.Parameters
	t.function = raw.Type == "" || raw.Type == "function" || raw.InputSchema != nil
	if raw.InputSchema != nil {
		t.params = raw.InputSchema
	}
	if t.name == "" {
		return badRequest("tools", "a tool has no name")
	}
	return nil
}

// toolChoice states whether a tool must, may or must not be called.
type toolChoice struct {
	mode    string   // auto, none, required
	name    string   // the only tool, which must be called
	allowed []string // the only allowed tools; nil: all
	single  bool     // at most one call
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
		Single   bool   `json:"disable_parallel_tool_use"`
		Mode     string `json:"mode"`
		Tools    []tool `json:"tools"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		Allowed struct {
			Mode  string `json:"mode"`
			Tools []tool `json:"tools"`
		} `json:"allowed_tools"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	c.single = raw.Single
	switch raw.Type {
	case "function", "tool":
		c.mode, c.name = "required", raw.Name+raw.Function.Name
	case "any":
		c.mode = "required"
	case "allowed_tools": // Responses has mode and tools beside the type, chat has them within allowed_tools
		c.mode = raw.Mode + raw.Allowed.Mode
		c.allowed = make([]string, 0, len(raw.Tools)+len(raw.Allowed.Tools))
		for _, t := range slices.Concat(raw.Tools, raw.Allowed.Tools) {
			c.allowed = append(c.allowed, t.name)
		}
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
