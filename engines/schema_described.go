package engines

import (
	"bytes"
	"encoding/json"
	"strings"
)

// described are the keywords that Anthropic's SDKs write into descriptions; never
// written.
var described = [...]string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"}

// withDescribed returns a schema whose keywords stand where they belong. Anthropic's
// SDKs move those that the API does not know to the end of the description, as in
// "{minimum: 1, maximum: 5}", and check the answer against the whole schema: a model is
// expected to read them there. A schema that is not valid JSON is returned as it is.
func withDescribed(schema json.RawMessage) json.RawMessage {
	var root any
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if d.Decode(&root) != nil {
		return schema
	}
	liftDescribed(root)
	lifted, err := json.Marshal(root)
	if err != nil {
		return schema
	}
	return lifted
}

func liftDescribed(v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			liftDescribed(one)
		}
	case map[string]any:
		if text, ok := v["description"].(string); ok {
			readDescribed(v, text)
		}
		for _, one := range v {
			liftDescribed(one)
		}
	}
}

// readDescribed adds the keywords in braces at a description's end to its schema.
func readDescribed(s map[string]any, text string) {
	start := strings.LastIndex("\n\n"+text, "\n\n{") // of the brace in text
	if start < 0 || !strings.HasSuffix(text, "}") {
		return
	}
	list := ", " + text[start+1:len(text)-1]
	for _, key := range described {
		_, value, found := strings.Cut(list, ", "+key+": ")
		if !found || s[key] != nil {
			continue
		}
		for _, next := range described { // a pattern may hold commas
			value, _, _ = strings.Cut(value, ", "+next+": ")
		}
		s[key] = describedValue(key, value)
	}
}

// describedValue reads a value as JSON or as Python writes it.
func describedValue(key, value string) any {
	var text string
	switch {
	case key == "uniqueItems":
		return strings.EqualFold(value, "true")
	case key != "pattern":
		number, _, _ := strings.Cut(value, ", ")
		return json.Number(number)
	case json.Unmarshal([]byte(value), &text) == nil:
		return text
	}
	return value
}
