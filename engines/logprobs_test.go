package engines

import (
	"math"
	"strings"
	"testing"
)

// readLogprobs checks entries of the chat and Responses dialects against the text
// that they are about, and returns them.
func readLogprobs(t *testing.T, said string, top int, v any) []any {
	t.Helper()
	entries, ok := v.([]any)
	if !ok {
		t.Fatalf("no list of log probabilities: %v", v)
	}
	tokens := ""
	for i := range entries {
		token := text(t, entries, i, "token")
		tokens += token
		if spelled := at(t, entries, i, "bytes").([]any); len(spelled) != len(token) || spelled[0] != float64(token[0]) {
			t.Errorf("the bytes of %q are %v", token, spelled)
		}
		likely := at(t, entries, i, "top_logprobs").([]any)
		if len(likely) != top {
			t.Fatalf("%d of %d most likely tokens", len(likely), top)
		}
		sum, before, seen := 0.0, 0.0, map[string]bool{}
		for j := range likely {
			p := at(t, likely, j, "logprob").(float64)
			if p > before {
				t.Errorf("%v rises at %d", likely, j)
			}
			sum, before, seen[text(t, likely, j, "token")] = sum+math.Exp(p), p, true
		}
		if sum > 1 || len(seen) != top || top > 0 && likely[0].(map[string]any)["logprob"] != at(t, entries, i, "logprob") {
			t.Errorf("%v add up to %v beside %v", likely, sum, entries[i])
		}
		if p := at(t, entries, i, "logprob").(float64); p >= 0 || math.IsInf(p, -1) {
			t.Errorf("a log probability of %v", p)
		}
	}
	if tokens != said {
		t.Errorf("the tokens are %q, the text is %q", tokens, said)
	}
	return entries
}

func TestChatReturnsLogprobs(t *testing.T) {
	for _, row := range []struct {
		fields string
		top    int
	}{{`"logprobs":true`, 0}, {`"logprobs":true,"top_logprobs":1`, 1}, {`"logprobs":true,"top_logprobs":20,"n":2`, 20}} {
		body := `{"model":"m",` + hello + `,"max_tokens":6,` + row.fields
		whole := ask(t, New(Config{Model: "m"}), "/v1/chat/completions", body+`}`)
		said := text(t, whole, "choices", 0, "message", "content")
		readLogprobs(t, said, row.top, at(t, whole, "choices", 0, "logprobs", "content"))
		_, stream := call(t, New(Config{Model: "m"}), "POST", "/v1/chat/completions", body+`,"stream":true}`)
		var all []any
		for _, ev := range readEvents(t, stream) {
			if ev.data == "[DONE]" {
				continue
			}
			chunk := object(t, ev.data)
			piece, _ := at(t, chunk, "choices", 0, "delta").(map[string]any)["content"].(string)
			told := at(t, chunk, "choices", 0, "logprobs")
			if (piece == "") != (told == nil) {
				t.Fatalf("%s: a chunk with %q has %v", row.fields, piece, told)
			}
			if told != nil && number(t, chunk, "choices", 0, "index") == 0 {
				all = append(all, readLogprobs(t, piece, row.top, at(t, told, "content"))...)
			}
		}
		readLogprobs(t, said, row.top, all)
	}
	for _, fields := range []string{``, `,"logprobs":false`} {
		if whole := ask(t, New(Config{Model: "m"}), "/v1/chat/completions", `{"model":"m",`+hello+fields+`}`); at(t, whole,
			"choices", 0, "logprobs") != nil {
			t.Errorf("not requested with %q: %v", fields, whole)
		}
	}
}

func TestCompletionsReturnLogprobs(t *testing.T) {
	for n, likely := range map[string]int{"0": 1, "1": 1, "5": 5} {
		body := `{"model":"m","prompt":"a","max_tokens":5,"logprobs":` + n
		whole := ask(t, New(Config{Model: "m"}), "/v1/completions", body+`}`)
		said := text(t, whole, "choices", 0, "text")
		read := func(v any) (tokens string, offset int) {
			for i := range at(t, v, "tokens").([]any) {
				token := text(t, v, "tokens", i)
				at := at(t, v, "top_logprobs", i).(map[string]any)
				if len(at) != likely || at[token] == nil || at[token] != v.(map[string]any)["token_logprobs"].([]any)[i] {
					t.Errorf("logprobs %s: %v", n, v)
				}
				tokens += token
			}
			return tokens, number(t, v, "text_offset", 0)
		}
		if tokens, offset := read(at(t, whole, "choices", 0, "logprobs")); tokens != said || offset != 0 {
			t.Errorf("logprobs %s: the tokens are %q, the text is %q, the offset %d", n, tokens, said, offset)
		}
		_, stream := call(t, New(Config{Model: "m"}), "POST", "/v1/completions", body+`,"stream":true}`)
		streamed := ""
		for _, ev := range readEvents(t, stream) {
			if !strings.Contains(ev.data, "top_logprobs") {
				continue
			}
			tokens, offset := read(at(t, object(t, ev.data), "choices", 0, "logprobs"))
			if offset != len(streamed) {
				t.Errorf("logprobs %s: the offset after %q is %d", n, streamed, offset)
			}
			streamed += tokens
		}
		if streamed != said {
			t.Errorf("logprobs %s: streamed %q, the text is %q", n, streamed, said)
		}
	}
}

func TestResponsesReturnLogprobs(t *testing.T) {
	const body = `{"model":"m","input":"a","max_output_tokens":6,"top_logprobs":3`
	const include = `,"include":["message.output_text.logprobs"]`
	e := New(Config{Model: "m"})
	whole := ask(t, e, "/v1/responses", body+include+`}`)
	said := text(t, whole, "output", 0, "content", 0, "text")
	readLogprobs(t, said, 3, at(t, whole, "output", 0, "content", 0, "logprobs"))
	_, stream := call(t, e, "POST", "/v1/responses", body+include+`,"stream":true}`)
	var all []any
	for _, ev := range readEvents(t, stream) {
		o := object(t, ev.data)
		switch ev.name {
		case "response.output_text.delta":
			all = append(all, readLogprobs(t, text(t, o, "delta"), 3, o["logprobs"])...)
		case "response.output_text.done":
			readLogprobs(t, said, 3, o["logprobs"])
		case "response.content_part.done":
			readLogprobs(t, said, 3, at(t, o, "part", "logprobs"))
		case "response.incomplete":
			readLogprobs(t, said, 3, at(t, o, "response", "output", 0, "content", 0, "logprobs"))
		}
	}
	readLogprobs(t, said, 3, all)
	unasked := ask(t, e, "/v1/responses", body+`}`)
	if told := at(t, unasked, "output", 0, "content", 0, "logprobs").([]any); len(told) != 0 {
		t.Errorf("without include: %v", told)
	}
}

func TestInvalidLogprobsAreRejected(t *testing.T) {
	table := []struct{ path, body, says string }{
		{"/v1/chat/completions", hello + `,"top_logprobs":2`, "when using `top_logprobs`, `logprobs` must be set to true."},
		{"/v1/chat/completions", hello + `,"logprobs":true,"top_logprobs":21`, "top_logprobs must be 0 to 20, not 21"},
		{"/v1/completions", `"prompt":"a","logprobs":-1`, "logprobs must be 0 to 20, not -1"},
		{"/v1/responses", `"input":"a","top_logprobs":21`, "top_logprobs must be 0 to 20, not 21"},
	}
	for _, row := range table {
		status, body := call(t, New(Config{Model: "m"}), "POST", row.path, `{"model":"m",`+row.body+`}`)
		if status != 400 || text(t, object(t, body), "error", "message") != row.says {
			t.Errorf("%s %s: %d %s", row.path, row.body, status, body)
		}
	}
}

func TestCallsHaveNoLogprobs(t *testing.T) {
	const tools = `,"logprobs":true,"tool_choice":"required","tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`
	whole := ask(t, New(Config{Model: "m"}), "/v1/chat/completions", `{"model":"m",`+hello+tools+`}`)
	if at(t, whole, "choices", 0, "logprobs") != nil {
		t.Errorf("a call: %v", whole)
	}
}
