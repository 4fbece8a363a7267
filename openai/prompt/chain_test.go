package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/openai"
)

// chainOf returns the chain of a body.
func chainOf(t testing.TB, d openai.Dialect, body string) []Block {
	t.Helper()
	chain, _ := AppendChain(nil, mustParse(t, d, body), 1)
	return chain
}

// commonBlocks returns the number of blocks that two chains share at their beginning.
func commonBlocks(a, b []Block) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// Gateways of different builds must compute the same hashes.
func TestHashesAreStable(t *testing.T) {
	for _, tt := range []struct {
		d     openai.Dialect
		body  string
		first int
		want  []Block
	}{
		{openai.Chat,
			`{"model":"m","cache_salt":"t","tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,2.50,true]}}}],"messages":[
			{"role":"system","content":"` + strings.Repeat("é", 300) + `"},
			{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://x"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"1","content":"done"}]}`, 4, []Block{
				{0x4aff8f7a4e8fcdd3, 36, false},
				{0x7193ca6848c7dd9d, 548, false},
				{0xf279f3257a941f95, 652, true},
				{0xfc41f5a3b07d458b, 672, true},
				{0x69d8f274f2993dc6, 691, true},
				{0x521b476d52083a72, 711, true},
			}},
		{openai.Messages,
			`{"model":"m","system":"S","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}`, 2, []Block{
				{0x45288cea64d75367, 17, true},
				{0x18427ac628bcaf30, 35, true},
			}},
		{openai.Responses,
			`{"model":"m","previous_response_id":"r","instructions":"I","input":[{"role":"user","content":"u"},{"type":"function_call_output","call_id":"c","output":"o"}]}`, 2, []Block{
				{0x3bfcdde14f9d890c, 17, true},
				{0x2945dec7089cc05c, 34, true},
				{0xb6924a2980e805c2, 51, true},
			}},
		{openai.Completions, `{"model":"m","prompt":[` + strings.Repeat("17,", 128) + `18]}`, 2, []Block{
			{0x2dbb23d08ee569b0, 512, false},
			{0x376feeb926a2ddaa, 532, true},
		}},
	} {
		got, first := AppendChain(nil, mustParse(t, tt.d, tt.body), 1)
		if first != tt.first {
			t.Errorf("%s: first %d, want %d", tt.d, first, tt.first)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.d, diff)
		}
	}
}

func TestEquivalentPromptsHaveOneChain(t *testing.T) {
	long := strings.Repeat(`one "two" \\ three`+"\n", 100)
	plainLong := strings.NewReplacer("\\", `\\`, `"`, `\"`, "\n", `\n`).Replace(long)
	var spelled strings.Builder
	for _, c := range long {
		fmt.Fprintf(&spelled, `\u%04X`, c)
	}
	for name, tt := range map[string]struct {
		d    openai.Dialect
		same []string
	}{
		"white space": {openai.Chat, []string{`{"model":"m","messages":[{"role":"user","content":"a b"}]}`,
			"{ \"model\" : \"m\" ,\r\n\t\"messages\" : [ { \"role\" : \"user\" , \"content\" : \"a b\" } ] }\n"}},
		"order of members": {openai.Chat, []string{
			`{"model":"m","tools":[{"a":1,"b":{"c":2,"d":[1,2]}}],"messages":[{"role":"user","name":"n","content":[{"type":"image_url","image_url":{"url":"u","detail":"low"}}]}]}`,
			`{"messages":[{"content":[{"image_url":{"detail":"low","url":"u"},"type":"image_url"}],"name":"n","role":"user"}],"tools":[{"b":{"d":[1,2],"c":2},"a":1}],"model":"m"}`}},
		"spelling": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"é/😀�","na/me":"x\ty"}],"tools":[{"é":"é"}]}`,
			`{"model":"m","mess\u0061ges":[{"r\u006fle":"us\u0065r","c\u006fntent":"\u00E9\/\ud83d\uDE00\ufffd","na\/me":"\u0078\u0009y"}],"tools":[{"\u00e9":"\u00e9"}]}`}},
		"spelling of a long text": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"` + plainLong + `","x":"` + plainLong + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"` + spelled.String() + `","x":"` + spelled.String() + `"}]}`}},
		"wide characters across the end of a block": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x😀", 500) + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(`x\ud83d\ude00`, 500) + `"}]}`}},
		"nulls": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}`,
			`{"model":"m","tools":null,"functions":null,"cache_salt":null,"messages":[{"role":"assistant","content":null,"refusal":null,"audio":null,"tool_calls":[{"id":"1","x":null}]}]}`}},
		"order of two texts": {openai.Responses, []string{
			`{"model":"m","input":[{"content":"a","output":"b","text":"c"}]}`,
			`{"model":"m","input":[{"text":"c","output":"b","content":"a"}]}`}},
		"no tools": {openai.Chat, []string{`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","tools":[],"messages":[{"role":"user","content":"a"}]}`}},
		"one part": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","messages":[{"role":"user","content":["hi"]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`}},
		"no text": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":""}]}`,
			`{"model":"m","messages":[{"role":"user","content":null}]}`,
			`{"model":"m","messages":[{"role":"user","content":[]}]}`,
			`{"model":"m","messages":[{"role":"user"}]}`}},
		"sampling and IDs of the caller": {openai.Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":1,"user":"u","stream":true,"prompt":"p","input":"i","system":"s"}`}},
		"cache_control": {openai.Messages, []string{
			`{"model":"m","tools":[{"name":"f"}],"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"hi"}]}]}`,
			`{"model":"m","tools":[{"name":"f","cache_control":{"type":"ephemeral"}}],"system":[{"cache_control":{"type":"ephemeral"},"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","cache_control":{},"content":[{"type":"text","text":"r","cache_control":{}}]},{"type":"text","text":"hi","cache_\u0063ontrol":{"ttl":"1h"}}]}]}`}},
		"billing headers": {openai.Messages, []string{
			`{"model":"m","system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header: v=1; h=00;"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header\u003a v=1; h=` + strings.Repeat("f", 600) +
				`"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`}},
		"one block of system text": {openai.Messages, []string{
			`{"model":"m","system":"S","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`}},
		"input of one message": {openai.Responses, []string{
			`{"model":"m","input":"a"}`,
			`{"model":"m","input":[{"role":"user","content":"a"}]}`,
			`{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}]}`}},
		"one prompt": {openai.Completions, []string{`{"model":"m","prompt":"a"}`, `{"model":"m","prompt":["a"]}`,
			`{"model":"m","prompt":["a","b"]}`}},
		"token ids": {openai.Completions,
			[]string{`{"model":"m","prompt":[1,22,333]}`, `{"model":"m","prompt":[[ 1, 22 ,333 ],[4]]}`}},
		"documents": {openai.Rerank, []string{`{"query":"q","documents":["a"]}`, `{"query":["q"],"documents":["b"]}`}},
	} {
		for _, body := range tt.same[1:] {
			if diff := cmp.Diff(chainOf(t, tt.d, tt.same[0]), chainOf(t, tt.d, body)); diff != "" {
				t.Errorf("%s: %.300s\n%s", name, body, diff)
			}
		}
	}
}

func TestDifferentPromptsHaveDifferentChains(t *testing.T) {
	chat := func(messages, more string) string { return `{"model":"m","messages":[` + messages + `]` + more + `}` }
	for name, tt := range map[string]struct {
		d      openai.Dialect
		differ []string
	}{
		"text": {openai.Chat,
			[]string{chat(`{"role":"user","content":"a"}`, ""), chat(`{"role":"user","content":"A"}`, ""),
				chat(`{"role":"user","content":"a "}`, ""), chat(`{"role":"user","content":""}`, ""),
				chat(`{"role":"user","content":1}`, ""), chat(`{"role":"user","content":{"text":"a"}}`, "")}},
		"role": {openai.Chat,
			[]string{chat(`{"role":"user","content":"a"}`, ""), chat(`{"role":"assistant","content":"a"}`, ""),
				chat(`{"content":"a"}`, ""), chat(`{"content":"user"}`, ""), chat(`{"role":"user"}`, ""),
				chat(`{"name":"user"}`, "")}},
		"order": {openai.Chat, []string{chat(`{"role":"user","content":"a"},{"role":"user","content":"b"}`, ""),
			chat(`{"role":"user","content":"b"},{"role":"user","content":"a"}`, "")}},
		"message and part boundaries": {openai.Chat,
			[]string{chat(`{"content":"ab"},{"content":"c"}`, ""), chat(`{"content":"a"},{"content":"bc"}`, ""),
				chat(`{"content":"abc"}`, ""), chat(`{"content":["ab","c"]}`, ""), chat(`{"content":["a","bc"]}`, ""),
				chat(`{"content":["a","b","c"]}`, ""), chat(`{"content":["a","bc",""]}`, "")}},
		"calls": {openai.Chat,
			[]string{chat(`{"tool_calls":[{"id":"1"}]}`, ""), chat(`{"tool_calls":[{"id":"2"}]}`, ""),
				chat(`{"tool_calls":[{"id":"1"},{"id":"1"}]}`, ""), chat(`{"tool_call_id":"1"}`, ""),
				chat(`{"tool_calls":[]}`, "")}},
		"images": {openai.Chat, []string{chat(`{"content":[{"type":"image_url","image_url":{"url":"a"}}]}`, ""),
			chat(`{"content":[{"type":"image_url","image_url":{"url":"b"}}]}`, ""),
			chat(`{"content":[{"type":"image_url","image_url":{"url":"a","detail":"low"}}]}`, "")}},
		"position of an image": {openai.Chat,
			[]string{chat(`{"content":["a",{"type":"image_url","image_url":{"url":"a"}}]}`, ""),
				chat(`{"content":[{"type":"image_url","image_url":{"url":"a"}},"a"]}`, "")}},
		"tools": {openai.Chat, []string{chat(`{}`, ``), chat(`{}`, `,"tools":[{"a":1}]`), chat(`{}`, `,"tools":[{"a":1.0}]`),
			chat(`{}`, `,"tools":[{"a":"1"}]`), chat(`{}`, `,"tools":[{"a":true}]`), chat(`{}`, `,"tools":[{"a":[1]}]`),
			chat(`{}`, `,"tools":[{"a":[1,null]}]`),
			chat(`{}`, `,"tools":[{"a":1},{"b":1}]`), chat(`{}`, `,"tools":[{"b":1},{"a":1}]`),
			chat(`{}`, `,"tools":[{"a":1,"b":1}]`), chat(`{}`, `,"functions":[{"a":1}]`), chat(`{}`, `,"tools":[{"a":{"b":1}}]`),
			chat(`{}`, `,"tools":[{"a":{}}]`), chat(`{}`, `,"tools":[{"a":[]}]`),
			chat(`{}`, `,"tools":[{"a":{"cache_control":1}}]`)}},
		"salt": {openai.Chat,
			[]string{chat(`{}`, ``), chat(`{}`, `,"cache_salt":"a"`), chat(`{}`, `,"cache_salt":"b"`),
				chat(`{}`, `,"cache_salt":""`)}},
		"billing header in a user message": {openai.Messages, []string{chat(`{"content":["x-anthropic-billing-header: 1"]}`, ``),
			chat(`{"content":["x-anthropic-billing-header: 2"]}`, ``)}},
		"system": {openai.Messages,
			[]string{chat(`{"role":"user","content":"a"}`, ``), chat(`{"role":"user","content":"a"}`, `,"system":"a"`),
				chat(`{"role":"user","content":"a"}`, `,"system":"b"`),
				chat(`{"role":"user","content":"a"}`, `,"tools":[{"name":"a"}]`)}},
		"continuation": {openai.Responses,
			[]string{`{"model":"m","input":"a"}`, `{"model":"m","input":"a","previous_response_id":"r"}`,
				`{"model":"m","input":"a","previous_response_id":"s"}`, `{"model":"m","input":"a","conversation":"r"}`,
				`{"model":"m","input":"a","prompt":{"id":"r"}}`, `{"model":"m","input":"a","instructions":"r"}`}},
		"items": {openai.Responses,
			[]string{`{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":"x"}]}`,
				`{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":"y"}]}`,
				`{"model":"m","input":[{"type":"function_call_output","call_id":"b","output":"x"}]}`,
				`{"model":"m","input":[{"type":"custom_tool_call_output","call_id":"a","output":"x"}]}`}},
		"prompts": {openai.Completions, []string{`{"model":"m","prompt":"1"}`, `{"model":"m","prompt":[1]}`,
			`{"model":"m","prompt":[2]}`, `{"model":"m","prompt":[1.0]}`, `{"model":"m","prompt":[2.0]}`,
			`{"model":"m","prompt":[12345678901234567890]}`, `{"model":"m","prompt":[22345678901234567890]}`,
			`{"model":"m","prompt":[1,2]}`, `{"model":"m","prompt":[12]}`, `{"model":"m","prompt":["1","2"],"suffix":"s"}`,
			`{"model":"m","prompt":[99999999999999999999]}`, `{"model":"m","prompt_embeds":"1"}`}},
	} {
		seen := map[uint64]string{}
		for _, body := range tt.differ {
			chain := chainOf(t, tt.d, body)
			last := chain[len(chain)-1].Hash
			if other, ok := seen[last]; ok {
				t.Errorf("%s: %s\nand %s\nhave equal hashes", name, other, body)
			}
			seen[last] = body
		}
	}
	r := mustParse(t, openai.Chat, chat(`{"role":"user","content":"a"}`, ""))
	one, _ := AppendChain(nil, r, 1)
	two, _ := AppendChain(nil, r, 2)
	if one[0].Hash == two[0].Hash {
		t.Error("the seed makes no difference")
	}
}

func TestFirstTurnEndsWithTheFirstUserMessage(t *testing.T) {
	long := strings.Repeat("x", 3*blockBytes)
	for _, tt := range []struct {
		d         openai.Dialect
		body      string
		first, of int
	}{
		{openai.Chat,
			`{"model":"m","tools":[{"a":1}],"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"}]}`, 3, 5},
		{openai.Chat, `{"model":"m","messages":[{"content":"` + long +
			`y","role":"\u0075ser"},{"role":"assistant","content":"a"}]}`, 4, 5},
		{openai.Chat, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"assistant","content":"a"}]}`, 2, 2},
		{openai.Messages,
			`{"model":"m","system":"s","messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`, 2, 3},
		{openai.Responses, `{"model":"m","instructions":"s","input":"u"}`, 2, 2},
		{openai.Responses, `{"model":"m","previous_response_id":"r"}`, 0, 0},
		{openai.Completions, `{"model":"m","prompt":"p","suffix":"s"}`, 1, 2},
		{openai.Other, `{"model":"m","messages":[{"role":"user","content":"u"}]}`, 0, 0},
	} {
		before := []Block{{Hash: 7}}
		chain, first := AppendChain(before, mustParse(t, tt.d, tt.body), 0)
		if first != tt.first || len(chain)-1 != tt.of || chain[0] != before[0] {
			t.Errorf("%s %.80s: %d of %d, want %d of %d", tt.d, tt.body, first, len(chain)-1, tt.first, tt.of)
		}
	}
}

// The cases are all fields that contain long texts.
func TestTextsWithACommonPrefixShareItsBlocks(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10*blockBytes/16)
	for _, tt := range []struct {
		d    openai.Dialect
		body string
	}{
		{openai.Chat, `{"model":"m","messages":[{"role":"system","content":"%s"}]}`},
		{openai.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"%s"}]}]}`},
		{openai.Chat, `{"model":"m","messages":[{"role":"tool","tool_call_id":"1","content":"%s"}]}`},
		{openai.Messages, `{"model":"m","system":"%s","messages":[{}]}`},
		{openai.Messages,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"%s"}]}]}`},
		{openai.Messages,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"%s"}]}]}]}`},
		{openai.Responses, `{"model":"m","input":"%s"}`},
		{openai.Responses, `{"model":"m","instructions":"%s","input":"a"}`},
		{openai.Responses, `{"model":"m","input":[{"type":"function_call_output","output":"%s"}]}`},
		{openai.Completions, `{"model":"m","prompt":"%s"}`},
		{openai.Embeddings, `{"model":"m","input":["%s"]}`},
		{openai.Rerank, `{"query":"%s"}`},
		{openai.Score, `{"queries":["%s"]}`},
		{openai.Score, `{"text_1":"%s","text_2":"x"}`},
		{openai.Audio, `{"model":"m","input":"%s"}`},
	} {
		a, b := chainOf(t, tt.d, fmt.Sprintf(tt.body, long+"x")), chainOf(t, tt.d, fmt.Sprintf(tt.body, long+"y"))
		if n := commonBlocks(a, b); n != 10 || len(a) < 11 || a[9].End != 10*blockBytes || a[9].Message || !a[10].Message {
			t.Errorf("%s %s: %d common blocks of %v", tt.d, tt.body, n, a)
		}
	}
	ids := func(last int) string {
		return `{"model":"m","prompt":[` + strings.Repeat("12345, ", 5*blockBytes/idBytes) + fmt.Sprint(last) + `]}`
	}
	if a, b := chainOf(t, openai.Completions, ids(1)), chainOf(t, openai.Completions, ids(2)); commonBlocks(a, b) != 5 ||
		len(a) != 6 {
		t.Errorf("token ids: %v, %v", a, b)
	}
}

// The end of the last block is compared with PromptBytes of Parse.
func TestOnlyTextHasALength(t *testing.T) {
	for _, tt := range []struct {
		d    openai.Dialect
		body string
		end  int64
	}{
		{openai.Messages,
			`{"model":"m","messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}`, 16},
		{openai.Messages,
			`{"model":"m","messages":[{"content":[{"type":"document","source":{"data":"abc","type":"text"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"de"}]}}]}]}`, 21},
		{openai.Messages, `{"model":"m","messages":[{"content":[{"source":["ab",{"name":"c"}]}]}]}`, 19},
		{openai.Messages,
			`{"model":"m","messages":[{"content":[{"type":"tool_use","id":"1","name":"f","input":{"k":"v"}}]}]}`, 19},
		{openai.Chat,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x"}},{"type":"text","text":"a"}]}]}`, 17},
		{openai.Chat, `{"model":"m","messages":[{}],"cache_salt":"abc"}`, 16},
		{openai.Completions, `{"model":"m","prompt_embeds":"AAAA","prompt":null}`, 16},
	} {
		r := mustParse(t, tt.d, tt.body)
		chain, _ := AppendChain(nil, r, 0)
		if got := chain[len(chain)-1].End; got != tt.end || got != r.PromptBytes+messageBytes {
			t.Errorf("%s: %d, want %d; the prompt has %d", tt.body, got, tt.end, r.PromptBytes)
		}
	}
	// An empty tool has a block too.
	if got := chainOf(t, openai.Chat, `{"model":"m","messages":[{}],"tools":[{}]}`); len(got) != 2 || got[0].End != 1 ||
		got[0].Message {
		t.Errorf("an empty tool: %v", got)
	}
}

func TestChainsHaveAtMostMaxBlocks(t *testing.T) {
	huge := strings.Repeat("0123456789abcdef", (MaxBlocks+100)*blockBytes/16)
	for _, tt := range []struct {
		d    openai.Dialect
		body string
	}{
		{openai.Chat, `{"model":"m","messages":[{"role":"user","content":"` + huge + `%s"},{"role":"user","content":"x"}]}`},
		{openai.Chat, `{"model":"m","messages":[{"role":"user","content":"\u0030` + huge +
			`%s"},{"role":"user","content":"x"}]}`},
		{openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}` +
			strings.Repeat(`,{"role":"user","content":["x",{"text":"y"}]}`, MaxBlocks) + `,{"content":"%s"}]}`},
		{openai.Chat, `{"model":"m","tools":[{}` + strings.Repeat(`,{"x":"`+huge[:600]+`"}`, MaxBlocks) +
			`,"%s"],"messages":[{"role":"user","content":"x"}]}`},
		{openai.Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":["` + huge +
			`%s"]},{"text":"x"}]}]}`},
		{openai.Responses, `{"model":"m","instructions":"` + huge + `%s","input":"x"}`},
		{openai.Completions, `{"model":"m","prompt":[` + strings.Repeat("1,", MaxBlocks*blockBytes/idBytes) +
			`2],"suffix":"%s"}`},
	} {
		a := mustParse(t, tt.d, fmt.Sprintf(tt.body, "a"))
		b := mustParse(t, tt.d, fmt.Sprintf(tt.body, "b"))
		chain, first := AppendChain(make([]Block, 5), a, 0)
		chain = chain[5:]
		other, _ := AppendChain(nil, b, 0)
		if len(chain) != MaxBlocks || !slices.Equal(chain, other) || first < 1 || first > MaxBlocks {
			t.Errorf("%s %.60s: %d blocks, %d up to the first turn", tt.d, tt.body, len(chain), first)
		}
	}
}

func TestDeepContentsAreOneValue(t *testing.T) {
	deep := func(text string) string {
		const levels = 25
		return `{"model":"m","messages":[` + strings.Repeat(`{"content":[`, levels) + text + strings.Repeat(`]}`, levels) +
			`]}`
	}
	a, b := chainOf(t, openai.Messages, deep(`"a"`)), chainOf(t, openai.Messages, deep(`"b"`))
	if len(a) != 1 || a[0].Hash == b[0].Hash || a[0].End != 1+messageBytes {
		t.Errorf("%v, %v", a, b)
	}
}

func TestReadersOfThePromptDoNotAllocate(t *testing.T) {
	chain, text := make([]Block, 0, 100), make([]byte, 0, 1<<12)
	for _, r := range []*openai.Request{
		mustParse(t, openai.Chat, string(chatOf(8<<10))),
		mustParse(t, openai.Chat, `{"model":"m","tools":[{"`+strings.Repeat("l", 100)+`":"`+strings.Repeat(`\u00e9`, 999)+
			`"}],"messages":[{"role":"user","content":[{"type":"text","text":"`+strings.Repeat(`\u00e9`, 999)+`","`+
			strings.Repeat("l", 100)+`":"`+strings.Repeat(`\u0061`, 99)+`"}]}]}`),
	} {
		if n := testing.AllocsPerRun(20, func() {
			chain, _ = AppendChain(chain[:0], r, 1)
			text = AppendUserText(text[:0], r, 1000)
			text = AppendSystemText(text[:0], r, 1000)
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
