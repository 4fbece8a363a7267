package prompt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"tierway/openai"
)

// FuzzPromptReaders reads the prompt of every accepted body: the user's text is the one that
// encoding/json finds, and the chain follows its laws.
func FuzzPromptReaders(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"é\ud83d\ude00"}],"stream":true}`,
		`{"mod\u0065l":"q","messages":[{"content":[{"type":"image","source":{"type":"text","data":"x"}}]}],"max_tokens":5,"user":"u"}`,
		`{"cache_salt":"a\u00e9","model":"m","messages":[{}],"query":"q","input":"","stream":true}`,
		`{"model":"m","messages":[{"content":[{"type":"tool_result","content":["x",{"text":"y"}]},{"text":"\ud83d\ude00z"}],"role":"user"}],"system":[{"text":"s"}],"tools":[{"a":[1]}]}`,
		`{"model":"m","input":[{"type":"message","role":"user","content":"a"},{"type":"reasoning","role":"user","content":"b"}],"instructions":"i","conversation":"c"}`,
		`{"model":"m","prompt":[[1,2.5,"x"]],"input":["a",5,"b"],"query":["q"],"cache_salt":[1],"suffix":{}}`,
		`{"model":"m","messages":[{"role":"user","content":[{"text":"<a-context x=1>y</a-context> < = > </user_query>"},"[a] Result:"]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaé\n"},"x",[],5],"prompt":"p","input":{}}`,
	} {
		for d := openai.Other; d <= openai.Audio; d++ {
			f.Add(byte(d), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, d byte, body []byte) {
		r, err := openai.Parse(openai.Dialect(d%byte(openai.Audio+1)), body)
		if err != nil {
			return
		}
		kept := bytes.Clone(body)
		checkTexts(t, r)
		checkChain(t, r)
		if !bytes.Equal(kept, body) {
			t.Fatal("the body changed")
		}
	})
}

// checkTexts compares the texts of a request with those of a reader that decodes the whole body.
func checkTexts(t *testing.T, r *openai.Request) {
	const limit = 8
	whole := AppendUserText(nil, r, len(r.Body))
	applications := len(r.Body) > repeatedLeast && bytes.Contains(r.Body, []byte(`\n`)) ||
		bytes.ContainsAny(r.Body, "<") || bytes.Contains(r.Body, []byte(`\u003`)) || bytes.Contains(r.Body, []byte(" "))
	if want := lastUserText(t, r); string(whole) != want && !applications {
		t.Fatalf("%s %s: user text %q, want %q", r.Dialect, r.Body, whole, want)
	}
	got := AppendUserText([]byte("> "), r, limit)
	if want := "> " + cutText(string(whole), limit); string(got) != want {
		t.Fatalf("%s %s: %q of %q, want %q", r.Dialect, r.Body, got, whole, want)
	}
	system := AppendSystemText(nil, r, len(r.Body))
	if got := AppendSystemText(nil, r, limit); string(got) != cutText(string(system), limit) || !utf8.Valid(system) {
		t.Fatalf("%s %s: %q of %q", r.Dialect, r.Body, got, system)
	}
}

// cutText cuts a text like AppendUserText.
func cutText(s string, limit int) string {
	if len(s) <= 2*limit {
		return s
	}
	head, tail := limit, len(s)-limit
	for !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + "\n" + s[tail:]
}

// lastUserText returns the text of the last user message, from the decoded body.
func lastUserText(t *testing.T, r *openai.Request) string {
	var body map[string]any
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil {
		t.Fatal(err)
	}
	fields := map[openai.Dialect][]string{
		openai.Chat: {"messages"}, openai.Messages: {"messages"}, openai.Responses: {"input"}, openai.Completions: {"prompt"},
		openai.Images:   {"prompt"},
		openai.Tokenize: {"messages", "prompt"}, openai.Embeddings: {"messages", "input"},
		openai.Pooling: {"messages", "input"},
		openai.Rerank:  {"query", "queries", "text_1"},
		openai.Score:   {"query", "queries", "text_1"}, openai.Moderations: {"input"}, openai.Audio: {"input"},
	}[r.Dialect]
	for _, name := range fields {
		found := ""
		turns, array := body[name].([]any)
		switch {
		case array && (name == "messages" || r.Dialect == openai.Responses):
			for _, turn := range turns {
				m, _ := turn.(map[string]any)
				kind, typed := m["type"].(string)
				if text := lastText(m["content"]); m["role"] == "user" && (!typed || kind == "message") && text != "" {
					found = text
				}
			}
		case array && len(turns) > 0 && isString(turns[0]):
			for _, e := range turns {
				if text := joinTexts([]any{e}); text != "" {
					found = text
				}
			}
		default:
			found = joinTexts(body[name])
		}
		if found != "" {
			return found
		}
	}
	return ""
}

// lastText returns the last text of a content.
func lastText(content any) (last string) {
	parts, ok := content.([]any)
	if !ok {
		return joinTexts(content)
	}
	for _, part := range parts {
		last = cmp.Or(joinTexts([]any{part}), last)
	}
	return last
}

func isString(v any) bool { _, ok := v.(string); return ok }

// joinTexts joins the texts of a content.
func joinTexts(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	parts, _ := content.([]any)
	joined := ""
	for _, part := range parts {
		text, _ := part.(string)
		if m, ok := part.(map[string]any); ok {
			if kind, typed := m["type"].(string); !typed || kind == "text" || kind == "input_text" {
				text, _ = m["text"].(string)
			}
		}
		if joined != "" && text != "" {
			joined += "\n"
		}
		joined += text
	}
	return joined
}

// checkChain verifies the laws of one chain, and that another spelling of the body has an equal chain.
func checkChain(t *testing.T, r *openai.Request) {
	chain, first := AppendChain(nil, r, 1)
	if len(chain) > MaxBlocks || first < 0 || first > len(chain) || first == 0 && len(chain) > 0 {
		t.Fatalf("%s %s: %d blocks, %d up to the first turn", r.Dialect, r.Body, len(chain), first)
	}
	end := int64(0)
	for _, b := range chain {
		if b.End <= end {
			t.Fatalf("%s %s: ends do not increase: %v", r.Dialect, r.Body, chain)
		}
		end = b.End
	}
	var spaced, escaped bytes.Buffer
	if err := json.Indent(&spaced, r.Body, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	json.HTMLEscape(&escaped, spaced.Bytes())
	again, err := openai.Parse(r.Dialect, escaped.Bytes())
	if err != nil {
		t.Fatalf("%q became %q: %v", r.Body, escaped.Bytes(), err)
	}
	if same, second := AppendChain(nil, again, 1); !slices.Equal(chain, same) || first != second {
		t.Fatalf("%s: %q has %v, spelled %q %v", r.Dialect, r.Body, chain, escaped.Bytes(), same)
	}
	if !bytes.Equal(AppendSystemText(nil, r, len(r.Body)), AppendSystemText(nil, again, escaped.Len())) {
		t.Fatalf("%s: %q and %q have different system texts", r.Dialect, r.Body, escaped.Bytes())
	}
}
