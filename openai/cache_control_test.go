package openai

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// marked returns the body with a mark in its prompt, if it can have one.
func marked(t *testing.T, d Dialect, body []byte) string {
	t.Helper()
	r, err := Parse(d, body)
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return string(bytes.Join(r.Splice(Edit{CacheControl: true}), nil))
}

func TestEndOfTheStablePromptIsMarked(t *testing.T) {
	const mark = `"cache_control":{"type":"ephemeral"}`
	for name, c := range map[string]struct{ body, want string }{
		"a system string": {`{"model":"m","system" : "a\"b" ,"messages":[{"role":"user","content":"x"}]}`,
			`{"model":"m","system" : [{"type":"text","text":"a\"b",` + mark + `}] ,"messages":[{"role":"user","content":"x"}]}`},
		"the last system block": {
			`{"model":"m","system":[{"type":"text","text":"a"}, { "type":"text","text":"b"} ],"messages":[{"role":"user"}]}`,
			`{"model":"m","system":[{"type":"text","text":"a"}, {` + mark + `, "type":"text","text":"b"} ],` +
				`"messages":[{"role":"user"}]}`},
		"no system prompt": {
			`{"model":"m","messages":[{"role":"assistant","content":"z"},{"content":[{"type":"image"},{"type":"text","text":"x"}],` +
				`"role":"user"},{"role":"user","content":"y"}]}`,
			`{"model":"m","messages":[{"role":"assistant","content":"z"},{"content":[{"type":"image"},{` + mark +
				`,"type":"text","text":"x"}],"role":"user"},{"role":"user","content":"y"}]}`},
		"an empty system prompt": {`{"model":"m","system":"","messages":[{"role":"user","content":"x"}]}`,
			`{"model":"m","system":"","messages":[{"role":"user","content":[{"type":"text","text":"x",` + mark + `}]}]}`},
		"an empty list": {`{"model":"m","system":[ ],"messages":[{"role":"user","content":"x"}]}`,
			`{"model":"m","system":[ ],"messages":[{"role":"user","content":[{"type":"text","text":"x",` + mark + `}]}]}`},
		"null": {`{"model":"m","system":null,"messages":[{"role":"user","content":"x"}]}`,
			`{"model":"m","system":null,"messages":[{"role":"user","content":[{"type":"text","text":"x",` + mark + `}]}]}`},
		"an empty last block": {
			`{"model":"m","system":[{"type":"text","text":""}],"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`,
			`{"model":"m","system":[{"type":"text","text":""}],"messages":[{"role":"user","content":[{` + mark +
				`,"type":"tool_result"}]}]}`},
		"escaped names": {`{"model":"m","messages":[{"r\u006fle":"us\u0065r","c\u006fntent":"x"}]}`,
			`{"model":"m","messages":[{"r\u006fle":"us\u0065r","c\u006fntent":[{"type":"text","text":"x",` + mark + `}]}]}`},
		"the word in a text": {`{"model":"m","system":"\"cache_control\": ","messages":[{"role":"user"}]}`,
			`{"model":"m","system":[{"type":"text","text":"\"cache_control\": ",` + mark + `}],"messages":[{"role":"user"}]}`},

		"its own mark in system":   {`{"model":"m","system":[{"text":"a","cache_control":{}}],"messages":[{"role":"user"}]}`, ""},
		"its own mark in tools":    {`{"tools":[{"cache_control":{}}],"model":"m","system":"a","messages":[{"role":"user"}]}`, ""},
		"its own mark in messages": {`{"model":"m","system":"a","messages":[{"content":[{"cache_\u0063ontrol":{}}]}]}`, ""},
		"its own mark in a result": {`{"model":"m","system":"a","messages":[{"content":[{"content":[{"cache_control":{}}]}]}]}`,
			""},
		"its own mark for the whole body": {`{"model":"m","system":"a","messages":[{}],"cache_control":{"type":"ephemeral"}}`, ""},
		"its own mark that is null":       {`{"model":"m","system":[{"text":"a","cache_control":null}],"messages":[{}]}`, ""},
		"nothing to mark":                 {`{"model":"m","messages":[{"role":"user","content":""}]}`, ""},
		"no content":                      {`{"model":"m","messages":[{"role":"user"}]}`, ""},
		"no user message":                 {`{"model":"m","messages":[{"role":"assistant","content":"x"}]}`, ""},
		"no block":                        {`{"model":"m","messages":[{"role":"user","content":["x"]}]}`, ""},
		"an empty block":                  {`{"model":"m","messages":[{"role":"user","content":[{ }]}]}`, ""},
		"thinking":                        {`{"model":"m","messages":[{"role":"user","content":[{"type":"thinking"}]}]}`, ""},
		"a message that is no object":     {`{"model":"m","messages":["x",{"role":"user","content":5}]}`, ""},
	} {
		want := c.want
		if want == "" {
			want = c.body
		}
		if got := marked(t, Messages, []byte(c.body)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	const chat = `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	if got := marked(t, Chat, []byte(chat)); got != chat {
		t.Errorf("a chat becomes %s", got)
	}
}

func TestMarkCombinesWithOtherEdits(t *testing.T) {
	r, err := Parse(Messages, []byte(`{"kv_transfer_params":{},"system":"s","model":"m","messages":[{"role":"user"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := string(bytes.Join(r.Splice(Edit{Model: "new", CacheControl: true, CacheSalt: "ours"}), nil))
	want := `{"cache_salt":"ours","system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"model":"new",` +
		`"messages":[{"role":"user"}]}`
	if got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
}

// FuzzCacheMark: the marked body is valid JSON, equal to the original but for one mark, and a second edit changes
// nothing.
func FuzzCacheMark(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","system":"s","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"m","system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"model":"m","system":""}`,
		`{"messages":[[],{"role":"user","content":[ {"type":"image","source":{}} ]}],"model":"m","tools":[{"name":"a"}]}`,
		`{"model":"m","system":[{"text":"a","cache_control":null}],"messages":[{"role":"user","content":"\u0041"}]}`,
		`{"model":"m","data_parallel_rank":1,"messages":[{"role":"user","content":"x"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(Messages, body)
		if err != nil {
			return
		}
		plain := bytes.Join(r.Splice(Edit{}), nil)
		with := bytes.Join(r.Splice(Edit{CacheControl: true}), nil)
		if !json.Valid(with) {
			t.Fatalf("%s of %s", with, body)
		}
		was, is := decodedJSON(t, plain), decodedJSON(t, with)
		if marks := unmark(was, &is); marks > 1 || !reflect.DeepEqual(was, is) {
			t.Fatalf("%d marks make %s of %s", marks, with, plain)
		}
		if again := marked(t, Messages, with); again != string(with) {
			t.Fatalf("marked twice: %s of %s", again, with)
		}
	})
}

// decodedJSON decodes a text with all digits of its numbers.
func decodedJSON(t *testing.T, text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// unmark removes the marks from is that was does not have, and returns their number.
func unmark(was any, is *any) (marks int) {
	mark := any(map[string]any{"type": "ephemeral"})
	if text, isText := was.(string); isText {
		want := any([]any{map[string]any{"type": "text", "text": text, "cache_control": mark}})
		if reflect.DeepEqual(*is, want) {
			*is = was
			return 1
		}
		return 0
	}
	switch now := (*is).(type) {
	case map[string]any:
		before, _ := was.(map[string]any)
		if _, had := before["cache_control"]; !had && reflect.DeepEqual(now["cache_control"], mark) {
			delete(now, "cache_control")
			marks++
		}
		for name, value := range now {
			marks += unmark(before[name], &value)
			now[name] = value
		}
	case []any:
		before, _ := was.([]any)
		for i := range min(len(now), len(before)) {
			marks += unmark(before[i], &now[i])
		}
	}
	return marks
}
