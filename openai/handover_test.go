package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustParse(t *testing.T, d Dialect, body string) *Request {
	t.Helper()
	r, err := Parse(d, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func joined(pieces [][]byte) string { return string(bytes.Join(pieces, nil)) }

func TestStageFieldsNameWhatOneEngineMustServe(t *testing.T) {
	chat := `{"model":"m","messages":[{"role":"user","content":"a"}]`
	for _, tt := range []struct {
		d             Dialect
		body          string
		whole, forged string
	}{
		{Chat, chat + `}`, "", ""},
		{Chat, chat + `,"n":1,"best_of":1,"prompt_logprobs":null,"echo":true,"logprobs":false,"use_beam_search":false}`, "", ""},
		{Chat, chat + `,"n":3}`, "n", ""},
		{Chat, chat + `,"best_of":2}`, "best_of", ""},
		{Chat, chat + `,"use_beam_search":true}`, "use_beam_search", ""},
		{Chat, chat + `,"prompt_logprobs":0}`, "prompt_logprobs", ""},
		{Chat, chat + `,"prompt_logpr\u006fbs":5}`, "prompt_logprobs", ""},
		{Chat, chat + `,"echo":true,"logprobs":true}`, "echo", ""},
		{Chat, chat + `,"tools":[{"type":"web_search"}]}`, "", ""},
		{Completions, `{"model":"m","prompt":"a","logprobs":1}`, "", ""},
		{Completions, `{"model":"m","prompt":"a","echo":true,"logprobs":0}`, "echo", ""},
		{Completions, `{"model":"m","prompt":["a"]}`, "", ""},
		{Completions, `{"model":"m","prompt":["a","b"]}`, "prompt", ""},
		{Completions, `{"model":"m","prompt":[[1],[2]]}`, "prompt", ""},
		{Completions, `{"model":"m","prompt":[1,2]}`, "", ""},
		{Completions, `{"model":"m","prompt_embeds":"x"}`, "prompt_embeds", ""},
		{Responses, `{"model":"m","input":"a","previous_response_id":"resp_1"}`, "previous_response_id", ""},
		{Responses, `{"model":"m","input":"a","conversation":{"id":"c"}}`, "conversation", ""},
		{Responses, `{"model":"m","input":"a","background":true}`, "background", ""},
		{Responses, `{"model":"m","input":"a","tools":[{"type":"function","name":"f"},{"type":"mcp"}]}`, "tools", ""},
		{Responses, `{"model":"m","input":"a","tools":[{"type":"function","name":"f"}]}`, "", ""},
		{Chat, chat + `,"truncate_prompt_tokens":0}`, "truncate_prompt_tokens", ""},
		{Chat, chat + `,"truncate_prompt_tokens":null,"truncation":"auto"}`, "", ""},
		{Responses, `{"model":"m","input":"a","truncation":"auto"}`, "truncation", ""},
		{Responses, `{"model":"m","input":"a","truncation":"disabled"}`, "", ""},
		{Chat, chat + `,"kv_transfer_params":{"do_remote_prefill":true}}`, "", "kv_transfer_params"},
		{Chat, chat + `,"kv_transfer_params":null}`, "", ""},
		{Chat, chat + `,"KV_transfer_params":{}}`, "", "kv_transfer_params"},
		{Chat, chat + `,"bootstrap_room":1}`, "", "bootstrap_room"},
		{Chat, chat + `,"bootstrap_host":"h"}`, "", "bootstrap_host"},
		{Chat, chat + `,"prompt_token_ids":[1]}`, "", "prompt_token_ids"},
		{Chat, chat + `,"request_id":"___prefill_addr_a:1___decode_addr_b:2_0"}`, "", "request_id"},
		{Chat, chat + `,"request_id":"\u005f__prefill_addr_a:1"}`, "", "request_id"},
		{Chat, chat + `,"request_id":"mine"}`, "", ""},
	} {
		f := mustParse(t, tt.d, tt.body).StageFields()
		if f.Whole != tt.whole || f.Forged != tt.forged {
			t.Errorf("%s: whole %q, forged %q; want %q, %q", tt.body, f.Whole, f.Forged, tt.whole, tt.forged)
		}
	}
}

func TestFieldsThatAnEngineMayRefuseAreFaulty(t *testing.T) {
	for d, list := range map[Dialect]map[string]bool{
		Chat: {``: false, `,"max_tokens":1`: false, `,"max_tokens":0`: true, `,"max_completion_tokens":0`: true,
			`,"max_tokens":-1`: false, `,"max_tokens":null`: false, `,"max_output_tokens":0`: false,
			`,"max_tokens":9,"max_completion_tokens":5,"min_tokens":7`: true, `,"max_tokens":7,"min_tokens":7`: false,
			`,"min_tokens":7`: false, `,"min_tokens":"7"`: true, `,"min_tokens":null`: false, `,"min_tokens":-1`: true,
			`,"stream_options":{"include_usage":true}`: true, `,"stream_options":{}`: false, `,"stream_options":null`: false,
			`,"stream":true,"stream_options":{"include_usage":true}`:          false,
			`,"stream":true,"stream_options":{"continuous_usage_stats":true}`: false,
			`,"stream":true,"stream_options":{"continuous_usage_stats":"x"}`:  true,
			`,"max_tokens":5,"thinking":{"budget_tokens":9}`:                  false, `,"min_to\u006bens":9,"max_tokens":8`: true},
		Completions: {``: false, `,"max_tokens":0`: true, `,"min_tokens":16`: false, `,"min_tokens":17`: true,
			`,"max_tokens":20,"min_tokens":17`: false},
		Responses: {``: false, `,"max_output_tokens":0`: true, `,"max_output_tokens":1`: false, `,"max_tokens":0`: false},
		Messages: {``: true, `,"max_tokens":null`: true, `,"max_tokens":0`: true, `,"max_tokens":1`: false,
			`,"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":9}`:  true,
			`,"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":8}`:  false,
			`,"max_tokens":9,"thinking":{"budget_tokens":"8"}`:                 true,
			`,"max_tokens":9,"thinking":null`:                                  false,
			`,"max_tokens":9,"thinking":{"a":{"budget_tokens":99},"type":"x"}`: false},
	} {
		for fields, want := range list {
			input := `"messages":[{}]`
			switch d {
			case Completions:
				input = `"prompt":"a"`
			case Responses:
				input = `"input":"a"`
			}
			if f := mustParse(t, d, `{"model":"m",`+input+fields+`}`).StageFields(); f.Faulty != want {
				t.Errorf("dialect %v, %s: faulty is %v", d, fields, f.Faulty)
			}
		}
	}
}

func TestPrefillRequestHasTheFieldsOfTheProtocol(t *testing.T) {
	const keep = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
		`"remote_block_ids":null,"remote_host":null,"remote_port":null},`
	for _, tt := range []struct {
		name      string
		d         Dialect
		body      string
		keep, ids bool
		want      string
	}{
		{"chat", Chat, `{"model":"m","messages":[{}]}`, true, false,
			`{` + keep + `"max_completion_tokens":1,"max_tokens":1,"stream":false,"model":"m","messages":[{}]}`},
		{"chat with all fields", Chat,
			`{"stream_options":{"include_usage":true},"model":"m","messages":[{}],"max_tokens":-1,` +
				`"max_completion_tokens": 50 ,"min_tokens":7,"stream":true}`, true, true,
			`{` + keep + `"return_token_ids":true,"model":"m","messages":[{}],"max_tokens":1,` +
				`"max_completion_tokens": 1 ,"min_tokens":1,"stream":false}`},
		{"options in the middle", Completions,
			`{"model":"m", "stream_options" : null , "prompt":"a","min_tokens":1,"max_completion_tokens":9}`, false, false,
			`{"max_tokens":1,"stream":false,"model":"m" , "prompt":"a","min_tokens":1,"max_completion_tokens":1}`},
		{"own parameters and options last", Chat,
			`{"model":"m","messages":[{}],"kv_transfer_params":null,"stream_options":{}}`, true, false,
			`{` + keep + `"max_completion_tokens":1,"max_tokens":1,"stream":false,"model":"m","messages":[{}]}`},
		{"responses", Responses, `{"model":"m","input":"a","store":true,"max_output_tokens":9}`, true, false,
			`{` + keep + `"stream":false,"model":"m","input":"a","store":false,"max_output_tokens":1}`},
		{"messages", Messages,
			`{"model":"m","messages":[{}],"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":5000}}`, true, false,
			`{` + keep + `"stream":false,"model":"m","messages":[{}],"max_tokens":1,` +
				`"thinking":{"type":"enabled","budget_tokens":5000}}`},
	} {
		r := mustParse(t, tt.d, tt.body)
		f := r.StageFields()
		got := joined(r.Splice(Edit{Set: r.PrefillMembers(&f, tt.keep, tt.ids)}))
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s: not JSON: %s", tt.name, got)
		}
	}
}

func TestDecodeRequestHasTheObjectUnchanged(t *testing.T) {
	const object = `{ "do_remote_prefill":true,"remote_block_ids":[[9007199254740993,1.50]],"remote_port":5600}`
	const ids = `[1, 2,3]`
	for _, tt := range []struct {
		name    string
		d       Dialect
		body    string
		ids     string
		abandon bool
		want    string
	}{
		{"chat", Chat, `{"model":"m","messages":[{}],"stream":true,"kv_transfer_params":null}`, "", false,
			`{"kv_transfer_params":` + object + `,"model":"m","messages":[{}],"stream":true}`},
		{"chat with ids", Chat, `{"model":"m","messages":[{}]}`, ids, false,
			`{"kv_transfer_params":{"prompt_token_ids":[1, 2,3], "do_remote_prefill":true,` +
				`"remote_block_ids":[[9007199254740993,1.50]],"remote_port":5600},"model":"m","messages":[{}]}`},
		{"completions with ids", Completions, `{"model":"m","prompt":"abc"}`, ids, false,
			`{"kv_transfer_params":` + object + `,"model":"m","prompt":[1, 2,3]}`},
		{"completions of ids", Completions, `{"model":"m","prompt":[7]}`, ids, false,
			`{"kv_transfer_params":` + object + `,"model":"m","prompt":[7]}`},
		{"abandoned", Chat, `{"model":"m","messages":[{}],"max_tokens":50,"stream_options":{}}`, "", true,
			`{"kv_transfer_params":` + object + `,"max_completion_tokens":1,"stream":true,"model":"m","messages":[{}],"max_tokens":1}`},
	} {
		r := mustParse(t, tt.d, tt.body)
		f := r.StageFields()
		var list []byte
		if tt.ids != "" {
			list = []byte(tt.ids)
		}
		set := r.DecodeMembers(&f, []byte(object), list)
		if tt.abandon {
			set = append(set, r.AbandonMembers(&f)...)
		}
		if got := joined(r.Splice(Edit{Set: set})); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestBootstrapMembersAreAdded(t *testing.T) {
	r := mustParse(t, Chat, `{"model":"m","messages":[{}],"bootstrap_room":null}`)
	got := joined(r.Splice(Edit{Set: BootstrapMembers("10.0.0.1", 8998, 1<<63-1)}))
	want := `{"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":9223372036854775807,` +
		`"model":"m","messages":[{}]}`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestReadPrefillReturnsTheReceivedBytes(t *testing.T) {
	const from = `"remote_engine_id":"e","remote_host":"h","remote_port":5600`
	const old = `{ "remote_block_ids":[17,18], "x":1e30,` + from + `}`
	const current = `{"remote_num_tokens":3,"remote_block_ids":[[9007199254740993]],` + from + `}`
	const push = `{"transfer_mode":"push",` + from + `}`
	for _, tt := range []struct {
		body string
		want Prefill
	}{
		{`{"choices":[{"text":"a","prompt_token_ids":[5, 6]}],"kv_transfer_params":` + old + `}`,
			Prefill{Object: []byte(old), TokenIDs: []byte(`[5, 6]`)}},
		{`{"prompt_token_ids":[1],"kv_transfer_params":` + current + `}`,
			Prefill{Object: []byte(current), TokenIDs: []byte(`[1]`), ReadsTokenIDs: true}},
		{`{"kv_transfer_params":` + push + `}`, Prefill{Object: []byte(push)}},
		{`{"kv_transfer_params":null,"prompt_token_ids":null}`, Prefill{}},
		{`{"kv_transfer_params":{}}`, Prefill{}},
		{`{"kv_transfer_params":{"remote_block_ids":[[]],` + from + `}}`, Prefill{}},
		{`{"kv_transfer_params":{"remote_block_ids":null,` + from + `}}`, Prefill{}},
		{`{"kv_transfer_params":{"remote_block_ids":[[1]],"remote_engine_id":"e","remote_host":null,"remote_port":1}}`, Prefill{}},
		{`{"kv_transfer_params":{"remote_block_ids":[[1]],"remote_engine_id":"e","remote_port":1}}`, Prefill{}},
		{`{"kv_transfer_params":"x"}`, Prefill{}},
		{`{"kv_transfer_params":{"a":1}`, Prefill{}},
		{``, Prefill{}},
	} {
		if diff := cmp.Diff(tt.want, ReadPrefill([]byte(tt.body))); diff != "" {
			t.Errorf("%s: %s", tt.body, diff)
		}
	}
}

func TestAnswersAreCleanedOfHandoverFields(t *testing.T) {
	for _, tt := range []struct {
		name       string
		d          Dialect
		a          AnswerCleaner
		body, want string
	}{
		{"nothing to remove", Chat, AnswerCleaner{}, `{"id":"a", "choices":[{"token_ids":null}]}`,
			`{"id":"a", "choices":[{"token_ids":null}]}`},
		{"chat", Chat, AnswerCleaner{},
			`{"kv_transfer_params":null,"id":"a","choices":[{"token_ids":[1],"x":1}],"prompt_token_ids":[1],"y":2}`,
			`{"id":"a","choices":[{"x":1}],"y":2}`},
		{"all members", Chat, AnswerCleaner{}, `{"kv_transfer_params":{"a":1}, "prompt_token_ids":[1] }`, `{ }`},
		{"last member", Chat, AnswerCleaner{}, `{"id":"a","kv_transfer_params":{"remote_host":"h"}}`, `{"id":"a"}`},
		{"requested ids", Chat, AnswerCleaner{TokenIDs: true}, `{"prompt_token_ids":[1],"choices":[{"token_ids":[2]}]}`,
			`{"prompt_token_ids":[1],"choices":[{"token_ids":[2]}]}`},
		{"text with the name", Chat, AnswerCleaner{},
			`{"choices":[{"message":{"content":"{\"kv_transfer_params\":1}"}}]}`,
			`{"choices":[{"message":{"content":"{\"kv_transfer_params\":1}"}}]}`},
		{"responses event", Responses, AnswerCleaner{SetCached: true, Cached: 3},
			`{"type":"response.completed","response":{"id":"r","kv_transfer_params":null,"usage":{"input_tokens":9,` +
				`"input_tokens_details":{"cached_tokens":8,"cached_tokens_per_turn":[8]}}}}`,
			`{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":9,` +
				`"input_tokens_details":{"cached_tokens":3,"cached_tokens_per_turn":[3]}}}}`},
		{"chat usage", Chat, AnswerCleaner{SetCached: true},
			`{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}`,
			`{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`},
		{"usage without details", Chat, AnswerCleaner{SetCached: true, Cached: 4},
			`{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}`,
			`{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}`},
		{"messages usage", Messages, AnswerCleaner{SetCached: true, Cached: 3},
			`{"type":"message","usage":{"input_tokens":1,"cache_read_input_tokens":8,"output_tokens":2}}`,
			`{"type":"message","usage":{"input_tokens":6,"cache_read_input_tokens":3,"output_tokens":2}}`},
		{"message start", Messages, AnswerCleaner{SetCached: true},
			`{"type":"message_start","message":{"kv_transfer_params":{},"usage":{"input_tokens":1,"cache_read_input_tokens":8}}}`,
			`{"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":0}}}`},
		{"addresses", Chat, AnswerCleaner{ID: []byte("___prefill_addr_h:1___decode_addr_i:2_00"), Public: []byte("00")},
			`{"id":"chatcmpl-___prefill_addr_h:1___decode_addr_i:2_00","kv_transfer_params":null}`, `{"id":"chatcmpl-00"}`},
	} {
		if got := string(tt.a.Body(tt.d, []byte(tt.body))); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		sse := "event: e\ndata: " + tt.body + "\n\n"
		ev, err := NewEventReader(strings.NewReader(sse), 0).Next()
		if err != nil {
			t.Fatal(err)
		}
		ev = tt.a.Event(tt.d, ev)
		if string(ev.Data) != tt.want || string(ev.Raw) != "event: e\ndata: "+tt.want+"\n\n" {
			t.Errorf("%s: event %q, data %q; want %q", tt.name, ev.Raw, ev.Data, tt.want)
		}
		if got := string(AppendEvent(nil, ev, MarkUnnamed)); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	ev, _ := NewEventReader(strings.NewReader("data: {\"a\":1,\ndata: \"kv_transfer_params\":{}}\n\n"), 0).Next()
	var a AnswerCleaner
	if ev = a.Event(Chat, ev); string(ev.Raw) != "data: {\"a\":1}\n\n" {
		t.Errorf("two lines: %q", ev.Raw)
	}
}

func FuzzAnswerCleaner(f *testing.F) {
	f.Add([]byte(`{"kv_transfer_params":null,"id":"a","choices":[{"token_ids":[1],"x":1}],"usage":{"input_tokens":1}}`), uint8(Chat))
	f.Add([]byte(`{"kv_transfer_params":null,"message":{"kv_transfer_params":1}}`), uint8(Messages))
	f.Fuzz(func(t *testing.T, body []byte, d uint8) {
		a := AnswerCleaner{SetCached: true, Cached: 1}
		got := a.Body(Dialect(d%uint8(Audio+1)), bytes.Clone(body))
		if !json.Valid(body) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q", body, got)
		}
		var top map[string]json.RawMessage
		if json.Unmarshal(got, &top) == nil && top["kv_transfer_params"] != nil {
			t.Fatalf("%q became %q", body, got)
		}
	})
}
