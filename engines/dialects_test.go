package engines

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

const hello = `"messages":[{"role":"user","content":"Tell me a story."}]`

// streamed is what a chat stream said.
type streamed struct {
	texts, arguments, finish [4]string
	tokens                   int
	usage                    map[string]any
	roles, names             int
}

func readChat(t *testing.T, body string) streamed {
	t.Helper()
	var s streamed
	events := readEvents(t, body)
	if last := events[len(events)-1]; last.data != "[DONE]" {
		t.Fatalf("the stream ends with %q", last.data)
	}
	for _, ev := range events[:len(events)-1] {
		chunk := object(t, ev.data)
		if _, wrong := chunk["error"]; wrong {
			t.Errorf("a chunk has an error key: %s", ev.data)
		}
		choices := at(t, chunk, "choices").([]any)
		if len(choices) == 0 {
			s.usage = at(t, chunk, "usage").(map[string]any)
			continue
		}
		i := number(t, choices, 0, "index")
		delta := at(t, choices, 0, "delta").(map[string]any)
		if _, ok := delta["role"]; ok {
			s.roles++
		}
		if piece, _ := delta["content"].(string); piece != "" {
			s.texts[i] += piece
			s.tokens++
		}
		if calls, ok := delta["tool_calls"]; ok {
			if _, named := at(t, calls, 0, "function").(map[string]any)["name"]; named {
				s.names++
			}
			if piece := text(t, calls, 0, "function", "arguments"); piece != "" {
				s.arguments[i] += piece
				s.tokens++
			}
		}
		if finish, ok := at(t, choices, 0, "finish_reason").(string); ok {
			s.finish[i] += finish
		}
	}
	return s
}

func TestUsageIsWhatWasWritten(t *testing.T) {
	table := []struct {
		name, fields string
		choices      int
		finish       string
	}{
		{"plain", ``, 1, "stop"},
		{"three choices", `,"n":3`, 3, "stop"},
		{"cut by max_tokens", `,"max_tokens":5`, 1, "length"},
		{"cut by max_completion_tokens", `,"max_completion_tokens":5`, 1, "length"},
		{"going on to the end", `,"ignore_eos":true,"max_tokens":200`, 1, "stop"},
		{"object", `,"response_format":{"type":"json_object"}`, 1, "stop"},
		{"required tool", `,"tool_choice":"required","tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]`, 1, "tool_calls"},
	}
	for _, row := range table {
		e := New(Config{Model: "m", Seed: 3})
		_, body := call(t, e, "POST", "/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true},`+hello+row.fields+`}`)
		s := readChat(t, body)
		if s.usage == nil || s.tokens != number(t, s.usage, "completion_tokens") || s.tokens == 0 {
			t.Errorf("%s: %d tokens were written, the usage is %v", row.name, s.tokens, s.usage)
		}
		if w := e.Stats().Written; w.Output != int64(s.tokens) || w.Prompt != int64(number(t, s.usage, "prompt_tokens")) {
			t.Errorf("%s: stats count %+v, the usage is %v", row.name, w, s.usage)
		}
		if s.roles != row.choices || s.finish[row.choices-1] != row.finish {
			t.Errorf("%s: %d roles, finish %q", row.name, s.roles, s.finish)
		}
		if number(t, s.usage, "total_tokens") != number(t, s.usage, "prompt_tokens")+s.tokens {
			t.Errorf("%s: the usage does not add up: %v", row.name, s.usage)
		}
		whole := ask(t, New(Config{Model: "m", Seed: 3}), "/v1/chat/completions", `{"model":"m",`+hello+row.fields+`}`)
		if got := number(t, whole, "usage", "completion_tokens"); got != s.tokens {
			t.Errorf("%s: %d tokens as a stream, %d whole", row.name, s.tokens, got)
		}
		if s.names == 0 && text(t, whole, "choices", 0, "message", "content") != s.texts[0] {
			t.Errorf("%s: stream and whole answer differ", row.name)
		}
		if s.names > 0 && text(t, whole, "choices", 0, "message", "tool_calls", 0, "function", "arguments") != s.arguments[0] {
			t.Errorf("%s: the calls of stream and whole answer differ", row.name)
		}
	}
}

func TestUsageComesOnlyWhenAsked(t *testing.T) {
	_, body := call(t, New(Config{Model: "m"}), "POST", "/v1/chat/completions", `{"model":"m","stream":true,`+hello+`}`)
	if strings.Contains(body, "usage") {
		t.Errorf("nobody asked for usage: %s", body)
	}
	_, body = call(t, New(Config{Model: "m"}), "POST", "/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true},`+hello+`}`)
	events := readEvents(t, body)
	for _, ev := range events[:len(events)-2] {
		if usage, there := object(t, ev.data)["usage"]; !there || usage != nil {
			t.Errorf("an early chunk's usage is not null: %s", ev.data)
		}
	}
}

func TestAnswersDependOnSeedAndPromptOnly(t *testing.T) {
	say := func(seed uint64, fields string) string {
		return text(t, ask(t, New(Config{Model: "m", Seed: seed}), "/v1/chat/completions", `{"model":"m",`+hello+fields+`}`), "choices", 0, "message", "content")
	}
	if say(1, "") != say(1, "") {
		t.Error("the same request was answered differently")
	}
	if say(1, "") == say(2, "") || say(1, "") == say(1, `,"seed":9`) {
		t.Error("seeds change nothing")
	}
}

func TestStopSequencesEndTheAnswer(t *testing.T) {
	e := New(Config{Model: "m", Script: func(string, []byte) Script { return Script{Text: "one two three four five"} }})
	for _, stop := range []string{`"three"`, `["five","three"]`} {
		whole := ask(t, e, "/v1/chat/completions", `{"model":"m",`+hello+`,"stop":`+stop+`}`)
		if text(t, whole, "choices", 0, "message", "content") != "one two " || text(t, whole, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("stop %s: %v", stop, whole["choices"])
		}
	}
	m := ask(t, e, "/v1/messages", `{"model":"m","max_tokens":99,`+hello+`,"stop_sequences":["three"]}`)
	if text(t, m, "stop_reason") != "stop_sequence" || text(t, m, "stop_sequence") != "three" || text(t, m, "content", 0, "text") != "one two " {
		t.Errorf("messages: %v", m)
	}
}

func TestToolsAreCalledWhenAskedFor(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"get_time","parameters":{"type":"object"}}},{"type":"function","function":{"name":"send_letter","parameters":{"type":"object","required":["to"],"properties":{"to":{"type":"string"}}}}}]`
	user := func(s string) string { return `{"role":"user","content":"` + s + `"}` }
	table := []struct{ messages, choice, called string }{
		{user("How is the weather?"), `"auto"`, "get_time"},
		{user("Write a LETTER to Ann"), `"auto"`, "send_letter"},
		{user("Hello"), `"auto"`, ""},
		{user("Hello"), `"required"`, "get_time"},
		{user("How is the weather?"), `"none"`, ""},
		{user("Hello"), `{"type":"function","function":{"name":"send_letter"}}`, "send_letter"},
		{user("Letter!") + `,{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"send_letter","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"letter sent"}`, `"auto"`, ""},
	}
	for _, row := range table {
		for _, stream := range []bool{false, true} {
			e := New(Config{Model: "m"})
			_, body := call(t, e, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,"messages":[%s],"tool_choice":%s,%s}`, stream, row.messages, row.choice, tools))
			name, arguments := "", ""
			if stream {
				s := readChat(t, body)
				arguments = s.arguments[0]
				if s.names == 1 {
					_, after, _ := strings.Cut(body, `"name":"`)
					name, _, _ = strings.Cut(after, `"`)
				}
			} else if calls, ok := at(t, object(t, body), "choices", 0, "message").(map[string]any)["tool_calls"]; ok {
				name, arguments = text(t, calls, 0, "function", "name"), text(t, calls, 0, "function", "arguments")
			}
			if name != row.called || name != "" && !json.Valid([]byte(arguments)) {
				t.Errorf("%s with %s, stream %v: called %q with %q, want %q", row.messages, row.choice, stream, name, arguments, row.called)
			}
			if name == "send_letter" && !strings.Contains(arguments, `"to"`) {
				t.Errorf("the call lacks its required argument: %s", arguments)
			}
		}
	}
}

func TestCachedTokensGrowWithTheConversation(t *testing.T) {
	e := New(Config{Model: "m", CacheTokens: 1 << 14})
	messages := `{"role":"system","content":"` + strings.Repeat("Be brief and kind. ", 20) + `"},{"role":"user","content":"Tell me a story."}`
	before, whole := 0, 0
	for round := range 4 {
		got := ask(t, e, "/v1/chat/completions", `{"model":"m","messages":[`+messages+`]}`)
		cached := number(t, got, "usage", "prompt_tokens_details", "cached_tokens")
		if round == 0 && cached != 0 || round > 0 && cached <= before {
			t.Errorf("round %d: %d tokens cached after %d", round, cached, before)
		}
		// Prompt and answer of the round before are known, all but a part of a block.
		if round > 0 && cached < whole-16 {
			t.Errorf("round %d: %d of the %d tokens so far are cached", round, cached, whole)
		}
		before, whole = cached, number(t, got, "usage", "total_tokens")
		answer, _ := json.Marshal(text(t, got, "choices", 0, "message", "content"))
		messages += `,{"role":"assistant","content":` + string(answer) + `},{"role":"user","content":"Go on."}`
	}
	salted := ask(t, e, "/v1/chat/completions", `{"model":"m","cache_salt":"other","messages":[`+messages+`]}`)
	if got := number(t, salted, "usage", "prompt_tokens_details", "cached_tokens"); got != 0 {
		t.Errorf("another salt found %d tokens", got)
	}
	if without := ask(t, New(Config{Model: "m"}), "/v1/chat/completions", `{"model":"m",`+hello+`}`); number(t, without, "usage", "prompt_tokens_details", "cached_tokens") != 0 {
		t.Error("an engine without a cache found something")
	}
}

func TestCompletionsTakeEveryKindOfPrompt(t *testing.T) {
	for prompt, want := range map[string][2]int{`"abcdefgh"`: {2, 1}, `["abcd","efgh"]`: {2, 2}, `[1,2,3]`: {3, 1}, `[[1,2],[3,4,5]]`: {5, 2}} {
		got := ask(t, New(Config{Model: "m"}), "/v1/completions", `{"model":"m","max_tokens":3,"prompt":`+prompt+`}`)
		if number(t, got, "usage", "prompt_tokens") != want[0] || len(got["choices"].([]any)) != want[1] || number(t, got, "usage", "completion_tokens") != 3*want[1] {
			t.Errorf("%s: %v", prompt, got)
		}
	}
	_, body := call(t, New(Config{Model: "m"}), "POST", "/v1/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":6,"prompt":"a"}`)
	events := readEvents(t, body)
	if len(events) != 6+1+1+1 || text(t, object(t, events[6].data), "choices", 0, "finish_reason") != "length" || number(t, object(t, events[7].data), "usage", "completion_tokens") != 6 {
		t.Errorf("stream: %s", body)
	}
}

func TestResponsesStreamTellsTheWholeStory(t *testing.T) {
	const tools = `,"tool_choice":"required","tools":[{"type":"function","name":"look","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}]`
	for fields, status := range map[string]string{``: "completed", `,"max_output_tokens":4`: "incomplete", tools: "completed"} {
		e := New(Config{Model: "m"})
		_, body := call(t, e, "POST", "/v1/responses", `{"model":"m","stream":true,"input":"Tell me a story."`+fields+`}`)
		events := readEvents(t, body)
		var names []string
		said, deltas := "", 0
		for i, ev := range events {
			o := object(t, ev.data)
			if o["type"] != ev.name || number(t, o, "sequence_number") != i {
				t.Errorf("event %d is named %q and says %s", i, ev.name, ev.data)
			}
			if strings.HasSuffix(ev.name, ".delta") {
				said += text(t, o, "delta")
				if deltas++; deltas > 1 {
					continue
				}
			}
			names = append(names, strings.TrimPrefix(ev.name, "response."))
		}
		want := "created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done " + status
		if fields == tools {
			want = "created in_progress output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed"
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("events\n%s\nwant\n%s", got, want)
		}
		resp := at(t, object(t, events[len(events)-1].data), "response")
		if number(t, resp, "usage", "output_tokens") != deltas || text(t, resp, "status") != status {
			t.Errorf("%d tokens written, the end says %v", deltas, resp)
		}
		final := ""
		if fields == tools {
			final = text(t, resp, "output", 0, "arguments")
		} else {
			final = text(t, resp, "output", 0, "content", 0, "text")
		}
		if final != said {
			t.Errorf("the deltas say %q, the end %q", said, final)
		}
		id := text(t, resp, "id")
		if _, stored := call(t, e, "GET", "/v1/responses/"+id, ""); text(t, object(t, stored), "status") != status {
			t.Errorf("stored: %s", stored)
		}
	}
}

func TestResponsesAreKeptContinuedAndDeleted(t *testing.T) {
	e := New(Config{Model: "m", CacheTokens: 1 << 14})
	first := ask(t, e, "/v1/responses", `{"model":"m","instructions":"Be kind.","input":[{"role":"user","content":[{"type":"input_text","text":"`+strings.Repeat("A long tale. ", 30)+`"}]}],"metadata":{"a":"b"}}`)
	id := text(t, first, "id")
	if text(t, first, "metadata", "a") != "b" || text(t, first, "instructions") != "Be kind." {
		t.Errorf("the response does not repeat the request: %v", first)
	}
	next := ask(t, e, "/v1/responses", `{"model":"m","instructions":"Be kind.","previous_response_id":"`+id+`","input":"Go on."}`)
	if cached := number(t, next, "usage", "input_tokens_details", "cached_tokens"); cached < number(t, first, "usage", "total_tokens")-16 {
		t.Errorf("the continued response found %d tokens of %v", cached, first["usage"])
	}
	if status, _ := call(t, e, "POST", "/v1/responses/"+id+"/cancel", ""); status != 400 {
		t.Errorf("cancelling a finished response: %d", status)
	}
	if status, body := call(t, e, "DELETE", "/v1/responses/"+id, ""); status != 200 || object(t, body)["deleted"] != true {
		t.Errorf("deleting: %d %s", status, body)
	}
	if status, _ := call(t, e, "GET", "/v1/responses/"+id, ""); status != 404 {
		t.Errorf("after deleting: %d", status)
	}
	unkept := ask(t, e, "/v1/responses", `{"model":"m","store":false,"input":"a"}`)
	if status, _ := call(t, e, "GET", "/v1/responses/"+text(t, unkept, "id"), ""); status != 404 {
		t.Errorf("an unstored response was found: %d", status)
	}
	for range maxStored + 5 {
		ask(t, e, "/v1/responses", `{"model":"m","input":"a","max_output_tokens":1}`)
	}
	if n := len(e.stored.byID); n != maxStored {
		t.Errorf("%d responses are kept", n)
	}
}

func TestBackgroundResponsesEndOrAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timed(4, 1))
		const body = `{"model":"m","background":true,"input":"Tell me a story."}`
		status := func(id string) string {
			_, got := call(t, e, "GET", "/v1/responses/"+id, "")
			return text(t, object(t, got), "status")
		}
		done := text(t, ask(t, e, "/v1/responses", body), "id")
		dropped := text(t, ask(t, e, "/v1/responses", body), "id")
		if status(done) != "queued" || status(dropped) != "queued" {
			t.Error("background responses do not start as queued")
		}
		if code, got := call(t, e, "POST", "/v1/responses/"+dropped+"/cancel", ""); code != 200 || text(t, object(t, got), "status") != "cancelled" {
			t.Errorf("cancel: %d %s", code, got)
		}
		e.work.Wait()
		if status(done) != "completed" || status(dropped) != "cancelled" {
			t.Errorf("at the end %s and %s", status(done), status(dropped))
		}
		ask(t, e, "/v1/responses", body)
		e.Close()
		if s := e.Stats(); s.Running != 0 {
			t.Errorf("Close left %+v", s)
		}
	})
}

func TestMessagesStreamAsAnthropicDoes(t *testing.T) {
	const tools = `,"tool_choice":{"type":"any"},"tools":[{"name":"look","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}]`
	for fields, reason := range map[string]string{`,"max_tokens":99`: "end_turn", `,"max_tokens":4`: "max_tokens", `,"max_tokens":99` + tools: "tool_use"} {
		e := New(Config{Model: "m", CacheTokens: 4096, BlockSize: 4})
		body := `{"model":"m","system":[{"type":"text","text":"Be kind."}],` + hello + fields
		whole := ask(t, e, "/v1/messages", body+`}`)
		_, stream := call(t, e, "POST", "/v1/messages", body+`,"stream":true}`)
		var names []string
		said, deltas := "", 0
		events := readEvents(t, stream)
		for _, ev := range events {
			o := object(t, ev.data)
			if o["type"] != ev.name {
				t.Errorf("the event %s says %s", ev.name, ev.data)
			}
			if ev.name == "content_block_delta" {
				delta := at(t, o, "delta").(map[string]any)
				piece, _ := delta["text"].(string)
				arguments, _ := delta["partial_json"].(string)
				said += piece + arguments
				if deltas++; deltas > 1 {
					continue
				}
			}
			names = append(names, ev.name)
		}
		if got := strings.Join(names, " "); got != "message_start content_block_start ping content_block_delta content_block_stop message_delta message_stop" {
			t.Errorf("events %s", got)
		}
		start, end := object(t, events[0].data), object(t, events[len(events)-2].data)
		if text(t, end, "delta", "stop_reason") != reason || text(t, whole, "stop_reason") != reason {
			t.Errorf("stopped for %v and %v, want %s", end, whole, reason)
		}
		if number(t, end, "usage", "output_tokens") != deltas || number(t, whole, "usage", "output_tokens") != deltas {
			t.Errorf("%d tokens written, counted as %v and %v", deltas, end, whole["usage"])
		}
		_, count := call(t, e, "POST", "/v1/messages/count_tokens", body+`}`)
		prompt := number(t, object(t, count), "input_tokens")
		cached := number(t, start, "message", "usage", "cache_read_input_tokens")
		if cached == 0 || number(t, start, "message", "usage", "input_tokens")+cached != prompt || number(t, whole, "usage", "input_tokens") != prompt {
			t.Errorf("a prompt of %d tokens, %d cached, is counted as %v", prompt, cached, start)
		}
		if reason == "tool_use" {
			input, _ := json.Marshal(at(t, whole, "content", 0, "input"))
			if string(input) != said || text(t, whole, "content", 0, "name") != "look" {
				t.Errorf("called with %s, streamed %s", input, said)
			}
		} else if text(t, whole, "content", 0, "text") != said {
			t.Errorf("stream and whole answer differ: %q %v", said, whole["content"])
		}
	}
}

func TestEmbeddingsAreUnitVectors(t *testing.T) {
	e := New(Config{Model: "m"})
	got := ask(t, e, "/v1/embeddings", `{"model":"m","input":["same","other","same"],"dimensions":64}`)
	vector := func(i int) []any { return at(t, got, "data", i, "embedding").([]any) }
	sum, dot := 0.0, 0.0
	for i, x := range vector(0) {
		sum += x.(float64) * x.(float64)
		dot += x.(float64) * vector(1)[i].(float64)
		if x != vector(2)[i] {
			t.Fatal("equal inputs have different vectors")
		}
	}
	if math.Abs(sum-1) > 1e-5 || math.Abs(dot) > 0.9 || len(vector(0)) != 64 {
		t.Errorf("length² %v, likeness of different inputs %v, %d dimensions", sum, dot, len(vector(0)))
	}
	if number(t, got, "usage", "prompt_tokens") != 1+2+1 {
		t.Errorf("usage %v", got["usage"])
	}
	packed := ask(t, e, "/v1/embeddings", `{"model":"m","input":"same","dimensions":64,"encoding_format":"base64"}`)
	b, err := base64.StdEncoding.DecodeString(text(t, packed, "data", 0, "embedding"))
	if err != nil || len(b) != 4*64 {
		t.Fatalf("base64 of %d bytes, %v", len(b), err)
	}
	if first := math.Float32frombits(binary.LittleEndian.Uint32(b)); math.Abs(float64(first)-vector(0)[0].(float64)) > 1e-6 {
		t.Errorf("base64 begins with %v, floats with %v", first, vector(0)[0])
	}
	ids := ask(t, e, "/v1/embeddings", `{"model":"m","input":[[1,2,3],[4]]}`)
	if number(t, ids, "usage", "total_tokens") != 4 || len(at(t, ids, "data", 1, "embedding").([]any)) != usualDimensions {
		t.Errorf("token ids: %v", ids["usage"])
	}
}

func TestRerankAndScorePreferWhatMatches(t *testing.T) {
	e := New(Config{Model: "m"})
	got := ask(t, e, "/v1/rerank", `{"model":"m","query":"red apple","documents":["blue sky",{"text":"a red apple"},"red car"],"top_n":2}`)
	if len(got["results"].([]any)) != 2 || number(t, got, "results", 0, "index") != 1 || number(t, got, "results", 1, "index") != 2 || text(t, got, "results", 0, "document", "text") != "a red apple" {
		t.Errorf("reranked to %v", got["results"])
	}
	scores := ask(t, e, "/v1/score", `{"model":"m","text_1":"red apple","text_2":["blue sky","a red apple"]}`)
	if at(t, scores, "data", 0, "score").(float64) >= at(t, scores, "data", 1, "score").(float64) {
		t.Errorf("scores %v", scores["data"])
	}
	flags := ask(t, e, "/v1/moderations", `{"input":["what a day","I will kill it"]}`)
	if at(t, flags, "results", 0, "flagged") != false || at(t, flags, "results", 1, "categories", "violence") != true {
		t.Errorf("moderations %v", flags["results"])
	}
}

func TestTokenizeCountsWhatUsageCounts(t *testing.T) {
	e := New(Config{Model: "m", Context: 4096})
	tokens := ask(t, e, "/tokenize", `{"model":"m",`+hello+`}`)
	chat := ask(t, e, "/v1/chat/completions", `{"model":"m",`+hello+`}`)
	if number(t, tokens, "count") != number(t, chat, "usage", "prompt_tokens") || len(tokens["tokens"].([]any)) != number(t, tokens, "count") || number(t, tokens, "max_model_len") != 4096 {
		t.Errorf("tokenize says %v, usage %v", tokens["count"], chat["usage"])
	}
	if got := ask(t, e, "/tokenize", `{"prompt":"abcdé"}`); number(t, got, "count") != 2 {
		t.Errorf("a text of six bytes: %v", got)
	}
}

func TestMediaAnswers(t *testing.T) {
	e := New(Config{Model: "m"})
	form := func(path, fields string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(strings.ReplaceAll(fields, "\n", "\r\n")))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=B")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	field := func(name, value string) string {
		return "--B\nContent-Disposition: form-data; name=\"" + name + "\"\n\n" + value + "\n"
	}
	file := func(name string) string {
		return "--B\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"a.wav\"\nContent-Type: audio/wav\n\n0123456789\n--B--\n"
	}
	if status, body := form("/v1/audio/transcriptions", field("model", "m")+file("file")); status != 200 || text(t, object(t, body), "text") != "The file a.wav holds 10 bytes." {
		t.Errorf("transcription: %d %s", status, body)
	}
	if status, body := form("/v1/audio/transcriptions", field("model", "m")+field("response_format", "text")+file("file")); status != 200 || body != "The file a.wav holds 10 bytes.\n" {
		t.Errorf("transcription as text: %d %q", status, body)
	}
	if status, body := form("/v1/audio/translations", field("model", "other")+file("file")); status != 404 {
		t.Errorf("another model: %d %s", status, body)
	}
	if status, body := form("/v1/audio/transcriptions", field("model", "m")+"--B--\n"); status != 400 {
		t.Errorf("no file: %d %s", status, body)
	}
	picture := func(body string) string {
		b, err := base64.StdEncoding.DecodeString(text(t, object(t, body), "data", 0, "b64_json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if status, body := form("/v1/images/edits", field("model", "m")+field("prompt", "red")+file("image[]")); status != 200 || !strings.HasPrefix(picture(body), "\x89PNG") {
		t.Errorf("edit: %d %s", status, body)
	}
	if _, body := call(t, e, "POST", "/v1/images/generations", `{"model":"m","prompt":"red"}`); !strings.HasPrefix(picture(body), "\x89PNG") {
		t.Errorf("generation: %s", body)
	}
	if status, sound := call(t, e, "POST", "/v1/audio/speech", `{"model":"m","input":"abcdefgh","voice":"v","response_format":"wav"}`); status != 200 || len(sound) != 2*speechBytes {
		t.Errorf("speech: %d, %d bytes", status, len(sound))
	}
}
