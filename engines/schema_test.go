package engines

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"tierway/routing"
)

// violation checks a value against a schema, independently of how conform makes
// values: "" when it fits.
func violation(root, schema, v any) string {
	s, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return "nothing is allowed here"
		}
		return ""
	}
	if ref, ok := s["$ref"].(string); ok {
		at := root
		for _, part := range strings.Split(strings.TrimPrefix(strings.TrimPrefix(ref, "#"), "/"), "/") {
			if part != "" {
				at = at.(map[string]any)[part]
			}
		}
		if bad := violation(root, at, v); bad != "" {
			return bad
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, ok := s[key].([]any)
		fits := 0
		for _, one := range list {
			if violation(root, one, v) == "" {
				fits++
			}
		}
		if ok && (fits == 0 || key == "allOf" && fits < len(list) || key == "oneOf" && fits != 1) {
			return fmt.Sprintf("%v fits %d of %d in %s", v, fits, len(list), key)
		}
	}
	if c, ok := s["const"]; ok && !reflect.DeepEqual(c, v) {
		return fmt.Sprintf("%v is not %v", v, c)
	}
	if list, ok := s["enum"].([]any); ok {
		found := false
		for _, one := range list {
			found = found || reflect.DeepEqual(one, v)
		}
		if !found {
			return fmt.Sprintf("%v is not in %v", v, list)
		}
	}
	if bad := wrongType(s["type"], v); bad != "" {
		return bad
	}
	limit := func(key string) (float64, bool) { x, ok := s[key].(float64); return x, ok }
	switch v := v.(type) {
	case map[string]any:
		return objectViolation(root, s, v)
	case []any:
		return arrayViolation(root, s, v)
	case string:
		if x, ok := limit("minLength"); ok && utf8.RuneCountInString(v) < int(x) {
			return v + " is too short"
		}
		if x, ok := limit("maxLength"); ok && utf8.RuneCountInString(v) > int(x) {
			return v + " is too long"
		}
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			return v + " does not match " + p
		}
	case float64:
		if x, ok := limit("minimum"); ok && v < x {
			return fmt.Sprint(v, " < ", x)
		}
		if x, ok := limit("maximum"); ok && v > x {
			return fmt.Sprint(v, " > ", x)
		}
		if x, ok := limit("exclusiveMinimum"); ok && v <= x {
			return fmt.Sprint(v, " <= ", x)
		}
		if x, ok := limit("exclusiveMaximum"); ok && v >= x {
			return fmt.Sprint(v, " >= ", x)
		}
		if x, ok := limit("multipleOf"); ok && math.Abs(math.Remainder(v, x)) > 1e-9 {
			return fmt.Sprint(v, " is no multiple of ", x)
		}
	}
	return ""
}

func wrongType(types, v any) string {
	list, many := types.([]any)
	if !many && types != nil {
		list = []any{types}
	}
	for _, one := range list {
		fits := false
		switch x := v.(type) {
		case nil:
			fits = one == "null"
		case bool:
			fits = one == "boolean"
		case string:
			fits = one == "string"
		case float64:
			fits = one == "number" || one == "integer" && x == math.Trunc(x)
		case []any:
			fits = one == "array"
		case map[string]any:
			fits = one == "object"
		}
		if fits {
			return ""
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%v is no %v", v, types)
}

func objectViolation(root any, s, v map[string]any) string {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Sprintf("%v is missing", name)
		}
	}
	for name, x := range v {
		schema, known := properties[name]
		if !known {
			schema = s["additionalProperties"]
		}
		if bad := violation(root, schema, x); bad != "" {
			return name + ": " + bad
		}
	}
	return ""
}

func arrayViolation(root any, s map[string]any, v []any) string {
	if x, ok := s["minItems"].(float64); ok && len(v) < int(x) {
		return fmt.Sprintf("%d items are too few", len(v))
	}
	if x, ok := s["maxItems"].(float64); ok && len(v) > int(x) {
		return fmt.Sprintf("%d items are too many", len(v))
	}
	prefix, _ := s["prefixItems"].([]any)
	for i, x := range v {
		schema := s["items"]
		if i < len(prefix) {
			schema = prefix[i]
		}
		if bad := violation(root, schema, x); bad != "" {
			return fmt.Sprintf("[%d]: %s", i, bad)
		}
		for _, other := range v[:i] {
			if s["uniqueItems"] == true && reflect.DeepEqual(x, other) {
				return fmt.Sprintf("%v is there twice", x)
			}
		}
	}
	return ""
}

// schemas are what structured output is asked for.
var schemas = []string{
	`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tall":{"type":"boolean"},"size":{"type":"number"}},"required":["name","age"],"additionalProperties":false}`,
	`{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},"final_answer":{"type":"string"}},"required":["steps","final_answer"],"additionalProperties":false}`,
	`{"type":"object","properties":{"unit":{"enum":["celsius","fahrenheit"]},"kind":{"const":"weather"},"none":{"type":"null"}},"required":["unit","kind","none"]}`,
	`{"type":"array","minItems":3,"maxItems":4,"items":{"type":"integer","minimum":5,"maximum":7}}`,
	`{"type":"array","minItems":2,"uniqueItems":true,"items":{"enum":["a","b"]}}`,
	`{"type":"array","minItems":2,"maxItems":2,"prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false}`,
	`{"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["value","children"]}},"$ref":"#/$defs/node"}`,
	`{"type":"object","properties":{"value":{"type":"string"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["value","next"]}`,
	`{"anyOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"type":"string"}]}`,
	`{"oneOf":[{"type":"integer","minimum":10},{"type":"string"}]}`,
	`{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},"required":["b"]}]}`,
	`{"type":["null","string"],"minLength":100,"maxLength":110}`,
	`{"type":"string","maxLength":2}`,
	`{"type":"string","pattern":"^[A-Z]{2}-\\d{3,5}$"}`,
	`{"type":"string","pattern":"^(red|green)[^x]+\\.txt$"}`,
	`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1}`,
	`{"type":"number","minimum":-3,"multipleOf":0.5,"maximum":-1}`,
	`{"type":"integer","exclusiveMinimum":3,"maximum":4}`,
	`{"type":"integer","exclusiveMinimum":0.5,"maximum":1}`,
	`{"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":9,"multipleOf":5}`,
	`{"type":"integer","minimum":0,"exclusiveMinimum":7,"maximum":8}`,
	`{"type":["integer","null"],"minimum":1,"maximum":3}`,
	`{"type":"integer","multipleOf":1.5,"minimum":1,"maximum":3}`,
	`{"type":"number","exclusiveMinimum":0,"maximum":0.0001}`,
	`{"type":"number","multipleOf":0.01,"minimum":0.05,"maximum":0.06}`,
	`{"type":"string","pattern":"^[a-z]+$","minLength":30,"maxLength":31}`,
	`{"type":"string","format":"uuid","minLength":36,"maxLength":36}`,
	`{"type":"integer","multipleOf":7,"minimum":1}`,
	`{"type":"integer","maximum":-1000}`,
	`{"properties":{"implied":{"items":{"minimum":2}}},"required":["implied","extra"],"additionalProperties":{"type":"integer"}}`,
	`{"type":"string","format":"date-time","pattern":"^\\d{4}-\\d{2}-\\d{2}T"}`,
	`{}`, `true`,
}

func TestStructuredAnswersConform(t *testing.T) {
	for _, raw := range schemas {
		var schema any
		if err := json.Unmarshal([]byte(raw), &schema); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(50) {
			out, err := conform(json.RawMessage(raw), routing.Draw(seed))
			var v any
			if err != nil || json.Unmarshal([]byte(out), &v) != nil {
				t.Fatalf("%s: %q, %v", raw, out, err)
			}
			if bad := violation(schema, schema, v); bad != "" {
				t.Errorf("%s\n got %s: %s", raw, out, bad)
				break
			}
		}
	}
}

func TestStructuredAnswersReachEveryDialect(t *testing.T) {
	var schema any
	raw := schemas[1]
	_ = json.Unmarshal([]byte(raw), &schema)
	e := New(Config{Model: "m"})
	chat := ask(t, e, "/v1/chat/completions", `{"model":"m",`+hello+
		`,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":`+raw+`}}}`)
	resp := ask(t, e, "/v1/responses",
		`{"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"x","schema":`+raw+`}}}`)
	const messages = `{"model":"m","max_tokens":999,` + hello
	current := ask(t, e, "/v1/messages", messages+`,"output_config":{"format":{"type":"json_schema","schema":`+raw+`}}}`)
	former := ask(t, e, "/v1/messages", messages+`,"output_format":{"type":"json_schema","schema":`+raw+`}}`)
	for _, said := range []string{text(t, chat, "choices", 0, "message", "content"),
		text(t, resp, "output", 0, "content", 0, "text"),
		text(t, current, "content", 0, "text"), text(t, former, "content", 0, "text")} {
		var v any
		if err := json.Unmarshal([]byte(said), &v); err != nil {
			t.Fatal(err)
		}
		if bad := violation(schema, schema, v); bad != "" {
			t.Errorf("%s: %s", said, bad)
		}
	}
	for _, format := range []string{`{"type":"text","schema":{}}`, `{"type":"json_schema"}`} {
		if status, body := call(t, e, "POST", "/v1/messages", messages+`,"output_config":{"format":`+format+`}}`); status !=
			400 {
			t.Errorf("a format that is none, %s: %d %s", format, status, body)
		}
	}
	plain := ask(t, e, "/v1/chat/completions", `{"model":"m",`+hello+`,"response_format":{"type":"json_object"}}`)
	object(t, text(t, plain, "choices", 0, "message", "content"))
}

// Anthropic's SDKs move what the API does not know into the descriptions, for the model
// to follow: Python's with Python's values, Node's with JSON's.
func TestMessagesFollowDescribedBounds(t *testing.T) {
	const schema = `{"type":"object","required":["days","part","name","tags"],"additionalProperties":false,"properties":{
		"days":{"type":"integer","description":"How long\n\n{exclusiveMinimum: 0, exclusiveMaximum: 3}"},
		"part":{"type":"number","description":"{exclusiveMinimum: 0.0, maximum: 1e-05}"},
		"name":{"anyOf":[{"type":"string","description":"{maxLength: 3, pattern: \"^[A-Z]{2,3}$\"}"},{"type":"null"}]},
		"tags":{"type":"array","items":{"type":"boolean","description":"no {bound: 1} at all"},"description":"{minItems: 2, maxItems: 2, uniqueItems: True}"}}}`
	const meant = `{"type":"object","required":["days","part","name","tags"],"additionalProperties":false,"properties":{
		"days":{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":3},"part":{"type":"number","exclusiveMinimum":0,"maximum":1e-05},
		"name":{"type":"string","maxLength":3,"pattern":"^[A-Z]{2,3}$"},
		"tags":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2,"uniqueItems":true}}}`
	var want, got any
	if err := json.Unmarshal([]byte(meant), &want); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		body :=
			fmt.Sprintf(
				`{"model":"m","max_tokens":999,"messages":[{"role":"user","content":"%d"}],"output_config":{"format":{"type":"json_schema","schema":%s}}}`, i, schema)
		said := text(t, ask(t, New(Config{Model: "m"}), "/v1/messages", body), "content", 0, "text")
		if err := json.Unmarshal([]byte(said), &got); err != nil {
			t.Fatal(err)
		}
		if bad := violation(want, want, got); bad != "" {
			t.Errorf("%s: %s", said, bad)
		}
	}
}

// The arguments are those that tools of agents accept.
func TestArgumentsHaveOnlyWhatIsRequired(t *testing.T) {
	for _, row := range []struct{ params, want string }{
		{`{"type":"object","required":["command"],"properties":{"command":{"type":"string"},"timeout":{"type":"number"},
			"description":{"type":"string"},"run_in_background":{"type":"boolean"}}}`, `{"command":"ls"}`},
		{`{"type":"object","properties":{"name":{"type":"string"}}}`, `{}`},
		{`{"type":"object","properties":{"name":{"const":"a"}},"minProperties":1}`, `{"name":"a"}`},
		{`{"type":"object","required":["a"],"properties":{"a":{"type":"object","required":["b"],
			"properties":{"b":{"const":1},"c":{"type":"string"}}}}}`, `{"a":{"b":1}}`},
		// With strict schemas every parameter is required, and null leaves one out.
		{`{"type":"object","required":["path","limit","unit","sort"],"properties":{"path":{"type":"string"},
			"limit":{"type":["integer","null"]},"unit":{"type":["string","null"],"enum":["c","f",null]},
			"sort":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"limit":null,"path":".","sort":null,"unit":null}`},
		{`{"type":"object","required":["unit"],"properties":{"unit":{"type":["string","null"],"enum":["c"]}}}`, `{"unit":"c"}`},
		{`{"type":"object","required":["is_background"],"properties":{"is_background":{"type":"boolean"}}}`,
			`{"is_background":false}`},
		{`{"type":"object","required":["command"],"properties":{"command":{"type":"array","items":{"type":"string"}}}}`,
			`{"command":["ls"]}`},
		{`{"type":"object","required":["cmd"],"properties":{"cmd":{"$ref":"#/$defs/c"}},"$defs":{"c":{"type":"string"}}}`,
			`{"cmd":"ls"}`},
		{`{"type":"object","required":["url","path"],"properties":{"url":{"type":"string","format":"uri"},
			"path":{"enum":["x"]}}}`, `{"path":"x","url":"https://example.com/a"}`},
		{`{"type":"object","required":["filePath"],"properties":{"filePath":{"type":"string","pattern":"^/$"}}}`,
			`{"filePath":"/"}`},
		// Some clients send tools without parameters like this.
		{`{}`, `{}`}, {`null`, `{}`}, {`{"type":"object","properties":null}`, `{}`}, {`true`, `{}`},
		{`{"type":"object","required":["a"],"properties":{"a":false}}`, `{}`},
	} {
		body := `{"model":"m",` + hello + `,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":` +
			row.params + `}}]}`
		answer := ask(t, New(Config{Model: "m"}), "/v1/chat/completions", body)
		got := text(t, answer, "choices", 0, "message", "tool_calls", 0, "function", "arguments")
		if got != row.want {
			t.Errorf("%s\n got %s, want %s", row.params, got, row.want)
		}
	}
}

func TestNumbersAreWholeAndSmallIfTheSchemaAllowsIt(t *testing.T) {
	for _, row := range []struct {
		schema    string
		low, high float64
		whole     bool
	}{
		{`{"type":"number"}`, 0, 100, true},
		{`{"type":"number","minimum":0,"maximum":1}`, 0, 1, true},
		{`{"type":"number","minimum":-90,"maximum":90}`, 0, 90, true},
		{`{"type":"number","minimum":0.5}`, 1, 101, true},
		{`{"type":"number","multipleOf":0.01}`, 0, 10, true},
		{`{"type":"number","multipleOf":0.25,"minimum":2.3}`, 3, 103, true},
		{`{"type":["null","number"]}`, 0, 100, true},
		{`{"anyOf":[{"type":"number","exclusiveMinimum":0}]}`, 1, 101, true},
		{`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1}`, 0.01, 0.99, false},
		{`{"type":"number","multipleOf":0.5,"minimum":0.5,"maximum":0.5}`, 0.5, 0.5, false},
		// zod states the bounds of safe integers.
		{`{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991}`, 0, 100, true},
		{`{"type":"integer","exclusiveMinimum":0,"maximum":9007199254740991}`, 1, 101, true},
		{`{"type":"integer","maximum":-5}`, -105, -5, true},
		{`{"type":"integer","minimum":1000000}`, 1000000, 1000100, true},
	} {
		for seed := range uint64(50) {
			out, err := conform(json.RawMessage(row.schema), seed)
			var v float64
			if err != nil || json.Unmarshal([]byte(out), &v) != nil || v < row.low || v > row.high ||
				row.whole && strings.ContainsAny(out, ".e") {
				t.Errorf("%s: %q, %v", row.schema, out, err)
				break
			}
		}
	}
}

// zod writes patterns that look ahead, which Go's regular expressions do not.
func TestFormatsStandInForUnknownPatterns(t *testing.T) {
	out, err :=
		conform(json.RawMessage(`{"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)[a-z.]+@[a-z.]+$"}`), 1)
	if err != nil || out != `"someone@example.com"` {
		t.Errorf("%s, %v", out, err)
	}
}

func TestInvalidSchemasAreRejected(t *testing.T) {
	for _, raw := range []string{`{`, `3`, `"x"`, `[]`} {
		if out, err := conform(json.RawMessage(raw), 1); err == nil {
			t.Errorf("%s made %s", raw, out)
		}
	}
}

func FuzzSchemas(f *testing.F) {
	for _, raw := range schemas {
		f.Add(raw)
	}
	f.Add(`{"$ref":"#"}`)
	f.Add(`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","required":["b"],"properties":{"b":{"$ref":"#/$defs/a"}}}}}`)
	f.Add(`{"type":"number","minimum":1e308,"multipleOf":1e-300}`)
	f.Add(`{"anyOf":[],"required":[3],"enum":[],"items":{"items":7}}`)
	f.Add(`{"allOf":[null,{"$ref":"#"}]}`)
	f.Add(`{"type":"array","minItems":9,"items":{"type":"array","minItems":9,"items":{"$ref":"#"}}}`)
	f.Add(`{"pattern":"(((a{30}){30}){30}){30}"}`)
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > 2000 {
			return
		}
		out, err := conform(json.RawMessage(raw), 1)
		if err == nil && !json.Valid([]byte(out)) {
			t.Errorf("%s made %q", raw, out)
		}
	})
}
