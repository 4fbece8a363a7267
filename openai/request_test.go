package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// totalLength returns the total length of the texts.
func totalLength(texts ...string) int64 { return int64(len(strings.Join(texts, ""))) }

func TestRequestsOfEveryDialect(t *testing.T) {
	for _, tt := range []struct {
		name   string
		body   string
		want   Request
		tokens int64
	}{
		{
			name: "chat with everything",
			body: `{"model":"gpt-4o-mini","messages":[
				{"role":"system","content":"Be brief."},
				{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]},
				{"role":"assistant","content":null,"audio":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}}]},
				{"role":"tool","tool_call_id":"call_1","content":"a cat"}],
				"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}],
				"stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"max_completion_tokens":300,"n":2,
				"store":false,"service_tier":"flex","user":"u\u002d1","session_id":"s1","session_params":{"x":1,"session_id":"s2"},
				"temperature":0.5,"chat_template_kwargs":{"enable_thinking":false}}`,
			want: Request{Dialect: Chat, Model: "gpt-4o-mini", Stream: true, MaxTokens: 300, N: 2, StoreSet: true,
				ServiceTier: "flex", User: "u-1", SessionID: "s1", SessionParamsID: "s2", IncludeUsage: true, Media: true, Tools: true,
				PromptBytes: totalLength("Be brief.", "What is this?", "look", `{"at":1}`, "a cat",
					"type", "function", "function", "name", "look", "parameters", "type", "object")},
		},
		{
			name:   "chat in Chinese",
			body:   `{"model":"m","messages":[{"role":"user","content":"東京\u6771 abcd"}]}`,
			want:   Request{Dialect: Chat, Model: "m", N: 1, PromptBytes: 14},
			tokens: 4, // 5 ÷ 4 + 3 ÷ 1.5, rounded up
		},
		{
			name: "chat with nulls",
			body: `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":null,"stream_options":null,"max_tokens":null,"n":null,
				"store":null,"background":null,"service_tier":null,"tools":null,"user":null,"session_id":null,"session_params":null}`,
			want: Request{Dialect: Chat, Model: "m", N: 1, PromptBytes: 1}, tokens: 1,
		},
		{
			name: "chat with legacy functions and invalid affinity keys",
			body: `{"model":"m","messages":[{"role":"user","content":"x"}],"functions":[{"name":"f"}],"tools":[],"user":5,"user_id":"u7","session_id":{},"session_params":"s"}`,
			want: Request{Dialect: Chat, Model: "m", N: 1, Tools: true, UserID: "u7", PromptBytes: totalLength("x",
				"name", "f")},
		},
		{
			name: "chat with audio, video and a file",
			body: `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},
				{"type":"video_url","video_url":{"url":"https://x"}},{"type":"file","file":{"file_data":"AAAA","filename":"f.pdf"}},{"type":"text","text":"sum up"}]}]}`,
			want: Request{Dialect: Chat, Model: "m", N: 1, Media: true, PromptBytes: totalLength("sum up")},
		},
		{
			name: "chat with null media in every part",
			body: `{"model":"m","messages":[{"role":"assistant","content":"x","audio":null},{"content":[{"type":"text","text":"y","image_url":null,"file":null}]}]}`,
			want: Request{Dialect: Chat, Model: "m", N: 1, PromptBytes: 2},
		},
		{
			name: "messages with an invalid source",
			body: `{"model":"m","messages":[{"content":[{"type":"document","source":{"type":5,"data":["x"]}},{"source":null}]}]}`,
			want: Request{Dialect: Messages, Model: "m", N: 1, Media: true},
		},
		{
			name: "completions with a string",
			body: `{"model":"m","prompt":"def f():","suffix":"\n","max_tokens":1,"stream":true}`,
			want: Request{Dialect: Completions, Model: "m", Stream: true, N: 1, MaxTokens: 1, PromptBytes: 9},
		},
		{
			name: "completions with strings",
			body: `{"model":"m","prompt":["ab","cd"]}`,
			want: Request{Dialect: Completions, Model: "m", N: 1, PromptBytes: 4}, tokens: 1,
		},
		{
			name: "completions with token ids",
			body: `{"model":"m","prompt":[1, 20, 300]}`,
			want: Request{Dialect: Completions, Model: "m", N: 1}, tokens: 3,
		},
		{
			name: "completions with lists of token ids",
			body: `{"model":"m","prompt":[[1,2],[3],[]]}`,
			want: Request{Dialect: Completions, Model: "m", N: 1}, tokens: 3,
		},
		{
			name: "completions with embeddings",
			body: `{"model":"m","prompt":null,"prompt_embeds":"AAAA"}`,
			want: Request{Dialect: Completions, Model: "m", N: 1},
		},
		{
			name: "responses with a string",
			body: `{"model":"m","input":"hello","instructions":"be kind","store":true,"background":true,"max_output_tokens":64,"previous_response_id":"resp_1","conversation":"conv_1"}`,
			want: Request{Dialect: Responses, Model: "m", N: 1, Store: true, StoreSet: true, Background: true, MaxTokens: 64,
				PreviousResponseID: "resp_1", ConversationID: "conv_1", PromptBytes: totalLength("hello", "be kind")},
		},
		{
			name: "responses with items",
			body: `{"model":"m","conversation":{"id":"conv_2"},"input":[
				{"type":"message","role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"https://x/y.png"}]},
				{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"gAAAA"},
				{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
				{"type":"function_call_output","call_id":"c","output":"done"},
				{"type":"image_generation_call","id":"ig","result":"AAAA"}],
				"tools":[{"type":"web_search"}]}`,
			want: Request{Dialect: Responses, Model: "m", N: 1, ConversationID: "conv_2", Media: true, Tools: true,
				PromptBytes: totalLength("look", "hm", "f", "{}", "done", "type", "web_search")},
		},
		{
			name: "responses that only continue",
			body: `{"model":"m","previous_response_id":"resp_1"}`,
			want: Request{Dialect: Responses, Model: "m", N: 1, PreviousResponseID: "resp_1"},
		},
		{
			name: "responses from a stored prompt",
			body: `{"model":"m","prompt":{"id":"pmpt_1","variables":{"city":"Rome"}}}`,
			want: Request{Dialect: Responses, Model: "m", N: 1, PromptBytes: totalLength("Rome")},
		},
		{
			name: "messages with blocks",
			body: `{"model":"claude","max_tokens":1024,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[
				{"role":"user","content":[{"type":"image","source":{"data":"AAAA","type":"base64","media_type":"image/png"}},{"type":"text","text":"what?"}]},
				{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"AAAA"},{"type":"redacted_thinking","data":"AAAA"},
					{"type":"tool_use","id":"t1","name":"get","input":{"url":"https://x","id":"7"}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"}]}]}],
				"tools":[{"name":"get","input_schema":{"type":"object"}}],"stream":true}`,
			want: Request{Dialect: Messages, Model: "claude", Stream: true, N: 1, MaxTokens: 1024, Media: true, Tools: true,
				PromptBytes: totalLength("Be brief.", "what?", "hm", "get", "url", "https://x", "id", "7", "ok",
					"name", "get", "input_schema", "type", "object")},
		},
		{
			name: "messages with documents that are text",
			body: `{"model":"m","system":"s","messages":[{"role":"user","content":[
				{"type":"document","source":{"data":"the text","media_type":"text/plain","type":"te\u0078t"},"title":"T"},
				{"type":"document","source":{"type":"content","content":[{"type":"text","text":"more"}]}},
				{"type":"search_result","source":"a book","content":[{"type":"text","text":"page"}]}]}]}`,
			want: Request{Dialect: Messages, Model: "m", N: 1,
				PromptBytes: totalLength("s", "the text", "T", "more", "a book", "page")},
		},
		{
			name: "embeddings with strings",
			body: `{"model":"bge-m3","input":["one","two"],"dimensions":64}`,
			want: Request{Dialect: Embeddings, Model: "bge-m3", N: 1, PromptBytes: 6},
		},
		{
			name: "embeddings with token ids",
			body: `{"model":"bge-m3","input":[[1,2,3],[4]]}`,
			want: Request{Dialect: Embeddings, Model: "bge-m3", N: 1}, tokens: 4,
		},
		{
			name: "embeddings of a chat",
			body: `{"model":"vlm","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`,
			want: Request{Dialect: Embeddings, Model: "vlm", N: 1, Media: true},
		},
		{
			name: "rerank",
			body: `{"model":"r","query":"cats","documents":["a cat",{"text":"a dog"}],"top_n":1}`,
			want: Request{Dialect: Rerank, Model: "r", N: 1, PromptBytes: totalLength("cats", "a cat", "a dog")},
		},
		{
			name: "rerank without a model",
			body: `{"query":"cats","documents":["a cat"]}`,
			want: Request{Dialect: Rerank, N: 1, PromptBytes: 9},
		},
		{
			name: "score",
			body: `{"model":"s","text_1":"one","text_2":["two","three"]}`,
			want: Request{Dialect: Score, Model: "s", N: 1, PromptBytes: 11},
		},
		{
			name: "tokenize a prompt",
			body: `{"prompt":"count me"}`,
			want: Request{Dialect: Tokenize, N: 1, PromptBytes: 8},
		},
		{
			name: "tokenize messages",
			body: `{"model":null,"messages":[{"role":"user","content":"count"}]}`,
			want: Request{Dialect: Tokenize, N: 1, PromptBytes: 5},
		},
		{
			name: "moderations",
			body: `{"input":[{"type":"text","text":"bad"},{"type":"image_url","image_url":{"url":"data:x"}}]}`,
			want: Request{Dialect: Moderations, N: 1, Media: true, PromptBytes: 3},
		},
		{
			name: "images",
			body: `{"model":"flux","prompt":"a cat","n":4,"size":"1024x1024","stream":true}`,
			want: Request{Dialect: Images, Model: "flux", Stream: true, N: 4, PromptBytes: 5},
		},
		{
			name: "speech",
			body: `{"model":"tts","input":"say it","voice":"alloy","instructions":"slowly"}`,
			want: Request{Dialect: Audio, Model: "tts", N: 1, PromptBytes: 12},
		},
		{
			name: "other with only model and stream read",
			body: `{"model":"m","stream":true,"n":1000,"max_tokens":-1,"messages":{},"Query":1,"user":3}`,
			want: Request{Dialect: Other, Model: "m", Stream: true, N: 1},
		},
		{
			name: "other with values of other types",
			body: `{"model":{"name":"m"},"stream":"yes"}`,
			want: Request{Dialect: Other, N: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.want.Dialect, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreUnexported(Request{}),
				cmpopts.IgnoreFields(Request{}, "Body")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if string(got.Body) != tt.body {
				t.Error("the body changed")
			}
			if want := max(tt.tokens, (tt.want.PromptBytes+3)/4); got.PromptTokens() != want {
				t.Errorf("PromptTokens %d, want %d", got.PromptTokens(), want)
			}
		})
	}
}

// minimal has the shortest valid body of each dialect.
var minimal = map[Dialect]string{
	Other: `{}`, Chat: `{"model":"m","messages":[{}]}`, Completions: `{"model":"m","prompt":""}`,
	Responses: `{"input":""}`, Messages: `{"model":"m","messages":[{}]}`, Embeddings: `{"model":"m","input":""}`,
	Rerank: `{}`, Score: `{}`, Tokenize: `{}`, Moderations: `{}`, Images: `{}`, Audio: `{"model":"m"}`,
}

func TestMissingFieldsAreNamed(t *testing.T) {
	for d, body := range minimal {
		if _, err := Parse(d, []byte(body)); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
	for _, tt := range []struct {
		d           Dialect
		body, param string
	}{
		{Chat, `{"messages":[{}]}`, "model"},
		{Chat, `{"model":null,"messages":[{}]}`, "model"},
		{Chat, `{"model":"m"}`, "messages"},
		{Chat, `{"model":"m","messages":null}`, "messages"},
		{Chat, `{"model":"m","prompt":"x"}`, "messages"},
		{Messages, `{"model":"m","system":"s"}`, "messages"},
		{Messages, `{"messages":[{}]}`, "model"},
		{Completions, `{"prompt":"x"}`, "model"},
		{Completions, `{"model":"m"}`, "prompt"},
		{Completions, `{"model":"m","prompt":null}`, "prompt"},
		{Embeddings, `{"input":"x"}`, "model"},
		{Embeddings, `{"model":"m"}`, "input"},
		{Responses, `{"model":"m"}`, "input"},
		{Responses, `{"model":"m","previous_response_id":null}`, "input"},
		{Audio, `{"input":"x"}`, "model"},
	} {
		if got := parseError(t, tt.d, tt.body); got.Reason != CodeMissingField || got.Param != tt.param ||
			!strings.Contains(got.Message, tt.param) {
			t.Errorf("%s %s: %+v, want %s missing", tt.d, tt.body, got, tt.param)
		}
	}
}

func TestWrongValuesAreNamed(t *testing.T) {
	chat := func(field, value string) string {
		return fmt.Sprintf(`{"model":"m","messages":[{}],%q:%s}`, field, value)
	}
	type row struct {
		d                 Dialect
		body, param, text string
	}
	rows := []row{
		{Chat, `{"model":5,"messages":[{}]}`, "model", "5"},
		{Chat, `{"model":"","messages":[{}]}`, "model", "empty"},
		{Rerank, `{"model":""}`, "model", "empty"},
		{Chat, `{"model":["m"],"messages":[{}]}`, "model", "an array"},
		{Chat, `{"model":"` + strings.Repeat("m", 257) + `","messages":[{}]}`, "model", "257"},
		{Other, `{"model":"` + strings.Repeat("é", 129) + `"}`, "model", "258"},
		{Chat, `{"model":"m","messages":[]}`, "messages", "empty"},
		{Chat, `{"model":"m","messages":[ ]}`, "messages", "empty"},
		{Chat, `{"model":"m","messages":"secret prompt"}`, "messages", "a string"},
		{Messages, `{"model":"m","messages":{}}`, "messages", "an object"},
		{Completions, `{"model":"m","prompt":5}`, "prompt", "5"},
		{Completions, `{"model":"m","prompt":{}}`, "prompt", "an object"},
		{Completions, `{"model":"m","prompt":[]}`, "prompt", "empty"},
		{Embeddings, `{"model":"m","input":[]}`, "input", "empty"},
		{Embeddings, `{"model":"m","input":true}`, "input", "true"},
		{Responses, `{"model":"m","input":{}}`, "input", "an object"},
		{Chat, chat("stream", `"true"`), "stream", "a string"},
		{Chat, chat("stream", `1`), "stream", "1"},
		{Chat, chat("store", `"yes"`), "store", "a string"},
		{Responses, `{"model":"m","input":"x","background":0}`, "background", "0"},
		{Chat, chat("service_tier", `1`), "service_tier", "1"},
		{Chat, chat("service_tier", `"`+strings.Repeat("x", 65)+`"`), "service_tier", "65"},
		{Chat, chat("stream_options", `true`), "stream_options", "true"},
		{Chat, chat("stream_options", `{"include_usage":1}`), "stream_options.include_usage", "1"},
		{Chat, chat("stream_options", `{"include_usage":"true"}`), "stream_options.include_usage", "a string"},
		{Responses, `{"model":"m","previous_response_id":7}`, "previous_response_id", "7"},
		{Responses, `{"model":"m","conversation":[]}`, "conversation", "an array"},
		{Responses, `{"model":"m","conversation":{"id":7}}`, "conversation.id", "7"},
		{Responses, `{"model":"m","previous_response_id":"` + strings.Repeat("x", 513) + `"}`, "previous_response_id", "513"},
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "n"} {
		for _, value := range []string{"-2", "-1.0", "-0", "1e3", "1E0", "10.0", "2147483648", "9223372036854775808", "1e400",
			"true"} {
			rows = append(rows, row{Chat, chat(name, value), name, value})
		}
		rows = append(rows,
			row{Chat, chat(name, `"10"`), name, "a string"},
			row{Chat, chat(name, `[10]`), name, "an array"},
			row{Chat, chat(name, `{}`), name, "an object"},
			row{Chat, chat(name, strings.Repeat("9", 33)), name, strings.Repeat("9", 32) + "…"})
	}
	rows = append(rows, row{Chat, chat("n", "129"), "n", "129"}, row{Chat, chat("n", "0"), "n", "0"},
		row{Chat, chat("n", "-1"), "n", "-1"},
		row{Messages, `{"model":"m","messages":[{}],"max_tokens":-1}`, "max_tokens", "-1"})
	for _, tt := range rows {
		got := parseError(t, tt.d, tt.body)
		if got.Reason != CodeInvalidValue || got.Param != tt.param || !strings.Contains(got.Message, tt.param) ||
			!strings.Contains(got.Message, tt.text) {
			t.Errorf("%s %.80s: %+v, want an error of %s with %q", tt.d, tt.body, got, tt.param, tt.text)
		}
		if strings.Contains(got.Message, "secret") || len(got.Message) > 200 {
			t.Errorf("%.80s: the message quotes the body: %s", tt.body, got.Message)
		}
	}
}

func TestExtremeIntegersAreAccepted(t *testing.T) {
	r, err := Parse(Chat,
		[]byte(`{"model":"m","messages":[{}],"max_tokens":2147483647,"max_completion_tokens":1,"n":128}`))
	if err != nil || r.MaxTokens != 1<<31-1 || r.N != 128 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = Parse(Chat, []byte(`{"model":"m","messages":[{}],"max_tokens":0}`)); err != nil || r.MaxTokens != 0 {
		t.Errorf("max_tokens 0: %+v, %v", r, err)
	}
	if r, err = Parse(Images, []byte(`{"model":"m","prompt":"x","background":"transparent"}`)); err != nil ||
		r.Background {
		t.Errorf("background of an image: %+v, %v", r, err)
	}
}

func TestDuplicatesOfGuardedFieldsAreRejected(t *testing.T) {
	for _, name := range []string{
		"model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens",
		"max_output_tokens", "n", "store", "background", "service_tier", "tools", "user", "user_id", "session_id",
		"session_params", "cache_salt",
	} {
		for d := range minimal {
			for what, second := range map[string]string{
				"same":           name,
				"escaped":        fmt.Sprintf(`\u%04x%s`, name[0], name[1:]),
				"capital":        strings.ToUpper(name[:1]) + name[1:],
				"all capitals":   strings.ToUpper(name),
				"escaped fold":   fmt.Sprintf(`\u%04X%s`, name[0]-'a'+'A', name[1:]),
				"long s":         strings.ReplaceAll(name, "s", "ſ"),
				"escaped long":   strings.ReplaceAll(name, "s", `\u017f`),
				"kelvin":         strings.ReplaceAll(name, "k", "\u212a"),
				"dotless i":      strings.ReplaceAll(name, "i", "ı"),
				"dotted capital": strings.ReplaceAll(name, "i", "İ"),
			} {
				got := parseError(t, d, fmt.Sprintf(`{%q:null,"x":1,"%s":null}`, name, second))
				if got.Reason != CodeAmbiguousJSON || got.Param != name {
					t.Errorf("%s: %s after %s (%s): %+v", d, second, name, what, got)
				}
			}
			if got := parseError(t, d, fmt.Sprintf(`{%q:null}`, strings.ToUpper(name))); got.Reason != CodeAmbiguousJSON {
				t.Errorf("%s: %s alone: %+v", d, strings.ToUpper(name), got)
			}
		}
	}
	for _, tt := range []struct {
		d           Dialect
		body, param string
	}{
		{Chat, `{"stream_options":{"include_usage":true,"include_usage":false}}`, "stream_options.include_usage"},
		{Chat, `{"stream_options":{"Include_Usage":true}}`, "stream_options.include_usage"},
		{Chat, `{"stream_options":{"include_u\u017fage":true}}`, "stream_options.include_usage"},
		{Chat, `{"session_params":{"session_id":"a","session_\u0069d":"b"}}`, "session_params.session_id"},
		{Responses, `{"previous_response_id":"a","previous_response_id":"b"}`, "previous_response_id"},
		{Responses, `{"conversation":{"id":"a","ID":"b"}}`, "conversation.id"},
		{Messages, `{"system":"a","System":"b"}`, "system"},
		{Chat, `{"cache_salt":"a","cache_\u0073alt":"b"}`, "cache_salt"},
		{Completions, `{"cache_salt":"a","Cache_Salt":"b"}`, "cache_salt"},
		{Rerank, `{"query":"a","query":"b"}`, "query"},
	} {
		if got := parseError(t, tt.d, tt.body); got.Reason != CodeAmbiguousJSON || got.Param != tt.param {
			t.Errorf("%s %s: %+v", tt.d, tt.body, got)
		}
	}
}

func TestEscapedNamesAreRead(t *testing.T) {
	r, err := Parse(Chat,
		[]byte(
			`{"mod\u0065l":"q\u0077en","m\u0065ssages":[{"cont\u0065nt":"hi","image\u005furl":{"url":"AAAA"}}],"stre\u0061m":true}`))
	if err != nil || r.Model != "qwen" || !r.Stream || r.PromptBytes != 2 || !r.Media {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFieldsOfOtherDialectsAreIgnored(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","messages":[{}],"Query":1,"query":2,"Documents":3,"system":{},"System":[],"previous_response_id":5,"temperature":1,"temperature":2}`,
		`{"model":"m","messages":[{}],"models":["a"],"modeI":"x","streams":1,"nn":0,"` + strings.Repeat("long", 100) + `":1}`,
		`{"model":"m","messages":[{}],"prompt":5,"input":{},"é":1,"ﬀ":2}`,
	} {
		if _, err := Parse(Chat, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestLongAffinityKeysAreCut(t *testing.T) {
	for _, id := range []string{strings.Repeat("é", 400), strings.Repeat(`\u00e9`, 400)} {
		r, err := Parse(Chat, []byte(`{"model":"m","messages":[{}],"user":"`+id+`","session_params":{"session_id":"`+id+
			`x"}}`))
		if want := strings.Repeat("é", 256); err != nil || r.User != want || r.SessionID+r.SessionParamsID != want {
			t.Errorf("user has %d bytes, session %d: %v", len(r.User), len(r.SessionID+r.SessionParamsID), err)
		}
	}
}

func TestParseOfAChatAllocatesLittle(t *testing.T) {
	body := chatOf(8 << 10)
	if n := testing.AllocsPerRun(20, func() {
		if _, err := Parse(Chat, body); err != nil {
			t.Fatal(err)
		}
	}); n > 10 {
		t.Errorf("%v allocations", n)
	}
}
