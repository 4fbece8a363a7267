package prompt

import (
	"cmp"
	"strings"
	"testing"

	"tierway/openai"
)

func TestTextsOfUserAndSystem(t *testing.T) {
	const limit = 1 << 20
	for _, tt := range []struct {
		name         string
		d            openai.Dialect
		body         string
		user, system string
	}{
		{"chat", openai.Chat,
			`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"one"},{"role":"assistant","content":"1"},{"role":"user","content":"two"}]}`, "two", "Be brief."},
		{"chat with content before role", openai.Chat,
			`{"messages":[{"content":"two","role":"user"},{"content":"dev","role":"developer"}],"model":"m"}`, "two", "dev"},
		{"chat with system text in the middle", openai.Chat,
			`{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"u"},{"role":"developer","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]}]}`, "u", "a\nb\nc"},
		{"chat with escapes", openai.Chat,
			`{"model":"m","messages":[{"r\u006fle":"us\u0065r","c\u006fntent":"a\"b\\c\/\n\t\u00e9\ud83d\ude00\ufffdx"}]}`,
			"a\"b\\c/\n\té😀\uFFFDx", ""},
		{"chat in Chinese", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"東京の天気は？"}]}`, "東京の天気は？", ""},
		{"chat with parts", openai.Chat,
			`{"model":"m","messages":[{"role":"user","content":[{"text":"look","type":"text"},{"type":"image_url","image_url":{"url":"https://x"}},{"type":"text","text":"at\u0020this"}]}]}`, "at this", ""},
		{"chat with an image as last turn", openai.Chat,
			`{"model":"m","messages":[{"role":"user","content":"words"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x"}}]},{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA"}},{"type":"file","file":{"file_id":"f"}}]}]}`, "words", ""},
		{"chat of an agent", openai.Chat,
			`{"model":"m","messages":[{"role":"user","content":"fix it"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"prove that"},{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"debug"}]},{"role":"function","name":"f","content":"more"}]}`, "fix it", ""},
		{"chat with empty turns", openai.Chat,
			`{"model":"m","messages":[{"role":"user","content":"said"},{"role":"user","content":""},{"role":"user","content":null},{"role":"user"},{"role":"user","content":[]},{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":null}]},{"role":null,"content":"x"},{"role":5,"content":"y"},null]}`, "said", ""},
		{"chat without user messages", openai.Chat,
			`{"model":"m","messages":[{"role":"assistant","content":"x"},{"role":"user","content":{"text":"x"}}]}`, "", ""},
		{"chat with plain strings as parts", openai.Chat,
			`{"model":"m","messages":[{"role":"user","content":["a",{"text":"b"},1,{"type":"refusal","text":"no"},{"type":7,"text":"c"}]}]}`, "c", ""},
		{"chat with duplicate members", openai.Chat,
			`{"model":"m","messages":[{"role":"user","type":"reasoning","type":null,"content":[{"type":"image","type":1,"text":"a"}]},{"role":null,"content":"y"}]}`, "a", ""},
		{"messages", openai.Messages, `{"model":"m","system":"S","messages":[{"role":"user","content":"hi"}]}`, "hi", "S"},
		{"messages with blocks", openai.Messages,
			`{"model":"m","system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}},{"type":"text","text":"T"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","data":"AA"}},{"type":"text","text":"b"}]},{"role":"system","content":"U"}]}`, "b", "S\nT\nU"},
		{"messages of an agent", openai.Messages,
			`{"model":"m","messages":[{"role":"user","content":"fix it"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"role":"user"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"prove"}]},{"role":"assistant","content":[{"type":"tool_use","id":"2","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"debug"}]}]}]}`, "fix it", ""},
		{"messages with text and a tool result", openai.Messages,
			`{"model":"m","messages":[{"role":"user","content":"fix it"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"2","content":"x"},{"type":"text","text":"stop"}]}]}`, "stop", ""},
		{"responses with a string", openai.Responses, `{"model":"m","input":"hel\u006co","instructions":"be kind"}`, "hello",
			"be kind"},
		{"responses with items", openai.Responses,
			`{"model":"m","instructions":null,"input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"https://x"}]}]}`, "look", "d"},
		{"responses of an agent", openai.Responses,
			`{"model":"m","input":[{"role":"user","content":"fix it"},{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"prove"},{"type":"custom","role":"user","content":"not said"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},{"type":"function_call_output","call_id":"d","output":[{"type":"input_text","text":"debug"}]}]}`, "fix it", ""},
		{"responses that only continue", openai.Responses, `{"model":"m","previous_response_id":"r"}`, "", ""},
		{"completions", openai.Completions, `{"model":"m","prompt":"a\tb","suffix":"c"}`, "a\tb", ""},
		{"completions with strings", openai.Completions, `{"model":"m","prompt":["a","b\u0063",""]}`, "bc", ""},
		{"completions with token ids", openai.Completions, `{"model":"m","prompt":[1,2]}`, "", ""},
		{"completions with lists of token ids", openai.Completions, `{"model":"m","prompt":[[1,2],[3]]}`, "", ""},
		{"completions with embeddings", openai.Completions, `{"model":"m","prompt":null,"prompt_embeds":"AA"}`, "", ""},
		{"embeddings", openai.Embeddings, `{"model":"m","input":["a","b"]}`, "b", ""},
		{"embeddings of a chat", openai.Embeddings,
			`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}`, "u", "s"},
		{"rerank", openai.Rerank, `{"query":"q","documents":["a"]}`, "q", ""},
		{"score", openai.Score, `{"text_1":["a","b"],"text_2":"c"}`, "b", ""},
		{"score with queries", openai.Score, `{"queries":"q","items":["a"]}`, "q", ""},
		{"tokenize a prompt", openai.Tokenize, `{"prompt":"p"}`, "p", ""},
		{"tokenize messages", openai.Tokenize, `{"messages":[{"role":"user","content":"u"}]}`, "u", ""},
		{"moderations", openai.Moderations, `{"input":"i"}`, "i", ""},
		{"moderations of parts", openai.Moderations,
			`{"input":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"b"}]}`,
			"a\nb", ""},
		{"images", openai.Images, `{"prompt":"a cat"}`, "a cat", ""},
		{"speech", openai.Audio, `{"model":"m","input":"say","instructions":"slowly"}`, "say", ""},
		{"other", openai.Other, `{"messages":[{"role":"user","content":"u"}],"prompt":"p","input":"i"}`, "", ""},
	} {
		r := mustParse(t, tt.d, tt.body)
		if got := string(AppendUserText([]byte("> "), r, limit)); got != "> "+tt.user {
			t.Errorf("%s: user text %q, want %q", tt.name, got, "> "+tt.user)
		}
		if got := string(AppendSystemText([]byte("> "), r, limit)); got != "> "+tt.system {
			t.Errorf("%s: system text %q, want %q", tt.name, got, "> "+tt.system)
		}
	}
}

func TestLongTextsKeepBeginningAndEnd(t *testing.T) {
	for _, tt := range []struct {
		content string
		limit   int
		want    string // of the system text; the user's text has the last part only
	}{
		{`"abcdef"`, 3, "abcdef"},
		{`"abcdefg"`, 3, "abc\nefg"},
		{`"abcdefghijklmnop"`, 1, "a\np"},
		{`"abc"`, 0, ""},
		{`"abc"`, -1, ""},
		{`"abc"`, 1 << 62, "abc"},
		{`"ééé"`, 3, "ééé"},
		{`"éééé"`, 3, "é\né"}, // an incomplete character is dropped
		{`"東京東京"`, 2, "\n"},
		{`"\u6771\u4eac\u6771\u4eac"`, 4, "東\n京"},
		{`"😀😀😀"`, 5, "😀\n😀"},
		{`["abcd","efgh"]`, 4, "abcd\nefgh"},
		{`[{"text":"abcd"},{"text":"ef"},{"text":"gh"}]`, 3, "abc\n\ngh"},
		{`[{"text":"abcd"},{"text":"e\u0066"},{"text":"\u0067h"}]`, 3, "abc\n\ngh"},
		{`"` + strings.Repeat("x", 5000) + `\n` + strings.Repeat("y", 5000) + `"`, 4, "xxxx\nyyyy"},
		{`"` + strings.Repeat(`\u0078`, 5000) + strings.Repeat(`\u0079`, 1030) + `"`, 600, strings.Repeat("x", 600) + "\n" +
			strings.Repeat("y", 600)},
	} {
		r := mustParse(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":`+tt.content+
			`},{"role":"system","content":`+tt.content+`}]}`)
		user := map[string]string{"abcd\nefgh": "efgh", "abc\n\ngh": "gh"}[tt.want]
		if got := string(AppendUserText(nil, r, tt.limit)); got != cmp.Or(user, tt.want) {
			t.Errorf("%.40s, limit %d: %q, want %q", tt.content, tt.limit, got, tt.want)
		}
		if got := string(AppendSystemText(nil, r, tt.limit)); got != tt.want {
			t.Errorf("%.40s, limit %d: system text %q, want %q", tt.content, tt.limit, got, tt.want)
		}
	}
}

func TestFormsHaveNoPrompt(t *testing.T) {
	r, err := openai.ParseMultipart("multipart/form-data; boundary=b",
		[]byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	for d := openai.Other; d <= openai.Audio; d++ {
		r.Dialect = d
		chain, first := AppendChain(nil, r, 1)
		if text := append(AppendUserText(nil, r, 9), AppendSystemText(nil, r, 9)...); len(chain)+first+len(text) > 0 {
			t.Errorf("%s: %v, %d, %q", d, chain, first, text)
		}
	}
}
