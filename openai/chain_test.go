package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chainOf returns the chain of a body.
func chainOf(t testing.TB, d Dialect, body string) []ChainBlock {
	t.Helper()
	chain, _ := accepted(t, d, body).AppendChain(nil, ChainSeed("m"))
	return chain
}

// common returns how many blocks two chains share at their beginning.
func common(a, b []ChainBlock) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// TestHashesAreForever guards what gateways of different builds agree on.
func TestHashesAreForever(t *testing.T) {
	if got := ChainSeed("llama", "adapter"); got != 0x5ddb083d1c21d2ca {
		t.Errorf("ChainSeed %#x", got)
	}
	for _, tt := range []struct {
		d     Dialect
		body  string
		first int
		want  []ChainBlock
	}{
		{Chat, `{"model":"m","cache_salt":"t","tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,2.50,true]}}}],"messages":[
			{"role":"system","content":"` + strings.Repeat("é", 300) + `"},
			{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://x"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"1","content":"done"}]}`, 4, []ChainBlock{
			{0x962a757e4bc9cbfb, 36, false},
			{0xdc66574e1f06d0ed, 548, false},
			{0x2ed6d6ffc147fb53, 652, true},
			{0x139ac2c8ee811e4d, 672, true},
			{0x1d5fb63c1c539d38, 691, true},
			{0xaf6d4577d50888f8, 711, true},
		}},
		{Messages, `{"model":"m","system":"S","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}`, 2, []ChainBlock{
			{0x51cf43df7b561ecb, 17, true},
			{0x449636064c970eb6, 35, true},
		}},
		{Responses, `{"model":"m","previous_response_id":"r","instructions":"I","input":[{"role":"user","content":"u"},{"type":"function_call_output","call_id":"c","output":"o"}]}`, 2, []ChainBlock{
			{0xc7d86102babae5a5, 17, true},
			{0x97178a92ebbf1c54, 34, true},
			{0xd10916fff8d749d8, 51, true},
		}},
		{Completions, `{"model":"m","prompt":[` + strings.Repeat("17,", 128) + `18]}`, 2, []ChainBlock{
			{0xc764a71f1b1510ea, 512, false},
			{0xabdc87b306a45291, 532, true},
		}},
	} {
		got, first := accepted(t, tt.d, tt.body).AppendChain(nil, ChainSeed("m"))
		if first != tt.first {
			t.Errorf("%s: first %d, want %d", tt.d, first, tt.first)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.d, diff)
		}
	}
}

func TestWhatMakesNoDifference(t *testing.T) {
	long := strings.Repeat(`one "two" \\ three`+"\n", 100)
	plainLong := strings.NewReplacer("\\", `\\`, `"`, `\"`, "\n", `\n`).Replace(long)
	var spelled strings.Builder
	for _, c := range long {
		fmt.Fprintf(&spelled, `\u%04X`, c)
	}
	for name, tt := range map[string]struct {
		d    Dialect
		same []string
	}{
		"white space": {Chat, []string{`{"model":"m","messages":[{"role":"user","content":"a b"}]}`,
			"{ \"model\" : \"m\" ,\r\n\t\"messages\" : [ { \"role\" : \"user\" , \"content\" : \"a b\" } ] }\n"}},
		"key order": {Chat, []string{
			`{"model":"m","tools":[{"a":1,"b":{"c":2,"d":[1,2]}}],"messages":[{"role":"user","name":"n","content":[{"type":"image_url","image_url":{"url":"u","detail":"low"}}]}]}`,
			`{"messages":[{"content":[{"image_url":{"detail":"low","url":"u"},"type":"image_url"}],"name":"n","role":"user"}],"tools":[{"b":{"d":[1,2],"c":2},"a":1}],"model":"m"}`}},
		"spelling": {Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"é/😀�","na/me":"x\ty"}],"tools":[{"é":"é"}]}`,
			`{"model":"m","mess\u0061ges":[{"r\u006fle":"us\u0065r","c\u006fntent":"\u00E9\/\ud83d\uDE00\ufffd","na\/me":"\u0078\u0009y"}],"tools":[{"\u00e9":"\u00e9"}]}`}},
		"spelling of a long text": {Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"` + plainLong + `","x":"` + plainLong + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"` + spelled.String() + `","x":"` + spelled.String() + `"}]}`}},
		"wide characters over the edge of a block": {Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x😀", 500) + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(`x\ud83d\ude00`, 500) + `"}]}`}},
		"nulls": {Chat, []string{
			`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}`,
			`{"model":"m","tools":null,"functions":null,"cache_salt":null,"messages":[{"role":"assistant","content":null,"refusal":null,"audio":null,"tool_calls":[{"id":"1","x":null}]}]}`}},
		"order of two texts": {Responses, []string{
			`{"model":"m","input":[{"content":"a","output":"b","text":"c"}]}`,
			`{"model":"m","input":[{"text":"c","output":"b","content":"a"}]}`}},
		"no tools": {Chat, []string{`{"model":"m","messages":[{"role":"user","content":"a"}]}`, `{"model":"m","tools":[],"messages":[{"role":"user","content":"a"}]}`}},
		"one part": {Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","messages":[{"role":"user","content":["hi"]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`}},
		"no text": {Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":""}]}`,
			`{"model":"m","messages":[{"role":"user","content":null}]}`,
			`{"model":"m","messages":[{"role":"user","content":[]}]}`,
			`{"model":"m","messages":[{"role":"user"}]}`}},
		"sampling and ids of the caller": {Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":1,"user":"u","stream":true,"prompt":"p","input":"i","system":"s"}`}},
		"cache_control": {Messages, []string{
			`{"model":"m","tools":[{"name":"f"}],"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"hi"}]}]}`,
			`{"model":"m","tools":[{"name":"f","cache_control":{"type":"ephemeral"}}],"system":[{"cache_control":{"type":"ephemeral"},"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","cache_control":{},"content":[{"type":"text","text":"r","cache_control":{}}]},{"type":"text","text":"hi","cache_\u0063ontrol":{"ttl":"1h"}}]}]}`}},
		"billing headers": {Messages, []string{
			`{"model":"m","system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header: v=1; h=00;"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header\u003a v=1; h=` + strings.Repeat("f", 600) + `"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`}},
		"one block of system text": {Messages, []string{
			`{"model":"m","system":"S","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`}},
		"an input of one message": {Responses, []string{
			`{"model":"m","input":"a"}`,
			`{"model":"m","input":[{"role":"user","content":"a"}]}`,
			`{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}]}`}},
		"one prompt": {Completions, []string{`{"model":"m","prompt":"a"}`, `{"model":"m","prompt":["a"]}`, `{"model":"m","prompt":["a","b"]}`}},
		"token ids":  {Completions, []string{`{"model":"m","prompt":[1,22,333]}`, `{"model":"m","prompt":[[ 1, 22 ,333 ],[4]]}`}},
		"documents":  {Rerank, []string{`{"query":"q","documents":["a"]}`, `{"query":["q"],"documents":["b"]}`}},
	} {
		for _, body := range tt.same[1:] {
			if diff := cmp.Diff(chainOf(t, tt.d, tt.same[0]), chainOf(t, tt.d, body)); diff != "" {
				t.Errorf("%s: %.300s\n%s", name, body, diff)
			}
		}
	}
}

func TestWhatMakesADifference(t *testing.T) {
	chat := func(messages, more string) string { return `{"model":"m","messages":[` + messages + `]` + more + `}` }
	for name, tt := range map[string]struct {
		d      Dialect
		differ []string
	}{
		"text":              {Chat, []string{chat(`{"role":"user","content":"a"}`, ""), chat(`{"role":"user","content":"A"}`, ""), chat(`{"role":"user","content":"a "}`, ""), chat(`{"role":"user","content":""}`, ""), chat(`{"role":"user","content":1}`, ""), chat(`{"role":"user","content":{"text":"a"}}`, "")}},
		"role":              {Chat, []string{chat(`{"role":"user","content":"a"}`, ""), chat(`{"role":"assistant","content":"a"}`, ""), chat(`{"content":"a"}`, ""), chat(`{"content":"user"}`, ""), chat(`{"role":"user"}`, ""), chat(`{"name":"user"}`, "")}},
		"order":             {Chat, []string{chat(`{"role":"user","content":"a"},{"role":"user","content":"b"}`, ""), chat(`{"role":"user","content":"b"},{"role":"user","content":"a"}`, "")}},
		"borders":           {Chat, []string{chat(`{"content":"ab"},{"content":"c"}`, ""), chat(`{"content":"a"},{"content":"bc"}`, ""), chat(`{"content":"abc"}`, ""), chat(`{"content":["ab","c"]}`, ""), chat(`{"content":["a","bc"]}`, ""), chat(`{"content":["a","b","c"]}`, ""), chat(`{"content":["a","bc",""]}`, "")}},
		"calls":             {Chat, []string{chat(`{"tool_calls":[{"id":"1"}]}`, ""), chat(`{"tool_calls":[{"id":"2"}]}`, ""), chat(`{"tool_calls":[{"id":"1"},{"id":"1"}]}`, ""), chat(`{"tool_call_id":"1"}`, ""), chat(`{"tool_calls":[]}`, "")}},
		"pictures":          {Chat, []string{chat(`{"content":[{"type":"image_url","image_url":{"url":"a"}}]}`, ""), chat(`{"content":[{"type":"image_url","image_url":{"url":"b"}}]}`, ""), chat(`{"content":[{"type":"image_url","image_url":{"url":"a","detail":"low"}}]}`, "")}},
		"a picture's place": {Chat, []string{chat(`{"content":["a",{"type":"image_url","image_url":{"url":"a"}}]}`, ""), chat(`{"content":[{"type":"image_url","image_url":{"url":"a"}},"a"]}`, "")}},
		"tools": {Chat, []string{chat(`{}`, ``), chat(`{}`, `,"tools":[{"a":1}]`), chat(`{}`, `,"tools":[{"a":1.0}]`), chat(`{}`, `,"tools":[{"a":"1"}]`), chat(`{}`, `,"tools":[{"a":true}]`), chat(`{}`, `,"tools":[{"a":[1]}]`), chat(`{}`, `,"tools":[{"a":[1,null]}]`),
			chat(`{}`, `,"tools":[{"a":1},{"b":1}]`), chat(`{}`, `,"tools":[{"b":1},{"a":1}]`), chat(`{}`, `,"tools":[{"a":1,"b":1}]`), chat(`{}`, `,"functions":[{"a":1}]`), chat(`{}`, `,"tools":[{"a":{"b":1}}]`), chat(`{}`, `,"tools":[{"a":{}}]`), chat(`{}`, `,"tools":[{"a":[]}]`), chat(`{}`, `,"tools":[{"a":{"cache_control":1}}]`)}},
		"salt":                      {Chat, []string{chat(`{}`, ``), chat(`{}`, `,"cache_salt":"a"`), chat(`{}`, `,"cache_salt":"b"`), chat(`{}`, `,"cache_salt":""`)}},
		"what users say of billing": {Messages, []string{chat(`{"content":["x-anthropic-billing-header: 1"]}`, ``), chat(`{"content":["x-anthropic-billing-header: 2"]}`, ``)}},
		"system":                    {Messages, []string{chat(`{"role":"user","content":"a"}`, ``), chat(`{"role":"user","content":"a"}`, `,"system":"a"`), chat(`{"role":"user","content":"a"}`, `,"system":"b"`), chat(`{"role":"user","content":"a"}`, `,"tools":[{"name":"a"}]`)}},
		"continuation":              {Responses, []string{`{"model":"m","input":"a"}`, `{"model":"m","input":"a","previous_response_id":"r"}`, `{"model":"m","input":"a","previous_response_id":"s"}`, `{"model":"m","input":"a","conversation":"r"}`, `{"model":"m","input":"a","prompt":{"id":"r"}}`, `{"model":"m","input":"a","instructions":"r"}`}},
		"items":                     {Responses, []string{`{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":"x"}]}`, `{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":"y"}]}`, `{"model":"m","input":[{"type":"function_call_output","call_id":"b","output":"x"}]}`, `{"model":"m","input":[{"type":"custom_tool_call_output","call_id":"a","output":"x"}]}`}},
		"prompts":                   {Completions, []string{`{"model":"m","prompt":"1"}`, `{"model":"m","prompt":[1]}`, `{"model":"m","prompt":[2]}`, `{"model":"m","prompt":[1.0]}`, `{"model":"m","prompt":[2.0]}`, `{"model":"m","prompt":[12345678901234567890]}`, `{"model":"m","prompt":[22345678901234567890]}`, `{"model":"m","prompt":[1,2]}`, `{"model":"m","prompt":[12]}`, `{"model":"m","prompt":["1","2"],"suffix":"s"}`, `{"model":"m","prompt":[99999999999999999999]}`, `{"model":"m","prompt_embeds":"1"}`}},
	} {
		seen := map[uint64]string{}
		for _, body := range tt.differ {
			chain := chainOf(t, tt.d, body)
			last := chain[len(chain)-1].Hash
			if other, ok := seen[last]; ok {
				t.Errorf("%s: %s\nand %s\nhave one hash", name, other, body)
			}
			seen[last] = body
		}
	}
	r := accepted(t, Chat, chat(`{"role":"user","content":"a"}`, ""))
	one, _ := r.AppendChain(nil, 1)
	two, _ := r.AppendChain(nil, 2)
	if one[0].Hash == two[0].Hash || ChainSeed("ab", "c") == ChainSeed("a", "bc") || ChainSeed("a") == ChainSeed("a", "") {
		t.Error("the seed makes no difference")
	}
}

func TestFirstTurnEndsWithTheFirstUser(t *testing.T) {
	long := strings.Repeat("x", 3*blockBytes)
	for _, tt := range []struct {
		d         Dialect
		body      string
		first, of int
	}{
		{Chat, `{"model":"m","tools":[{"a":1}],"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"}]}`, 3, 5},
		{Chat, `{"model":"m","messages":[{"content":"` + long + `y","role":"\u0075ser"},{"role":"assistant","content":"a"}]}`, 4, 5},
		{Chat, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"assistant","content":"a"}]}`, 2, 2},
		{Messages, `{"model":"m","system":"s","messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`, 2, 3},
		{Responses, `{"model":"m","instructions":"s","input":"u"}`, 2, 2},
		{Responses, `{"model":"m","previous_response_id":"r"}`, 0, 0},
		{Completions, `{"model":"m","prompt":"p","suffix":"s"}`, 1, 2},
		{Other, `{"model":"m","messages":[{"role":"user","content":"u"}]}`, 0, 0},
	} {
		kept := []ChainBlock{{Hash: 7}}
		chain, first := accepted(t, tt.d, tt.body).AppendChain(kept, 0)
		if first != tt.first || len(chain)-1 != tt.of || chain[0] != kept[0] {
			t.Errorf("%s %.80s: %d of %d, want %d of %d", tt.d, tt.body, first, len(chain)-1, tt.first, tt.of)
		}
	}
}

// TestTextsThatDifferLateShareTheirBlocks covers every place in which long texts
// stand.
func TestTextsThatDifferLateShareTheirBlocks(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10*blockBytes/16)
	for _, tt := range []struct {
		d    Dialect
		body string
	}{
		{Chat, `{"model":"m","messages":[{"role":"system","content":"%s"}]}`},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"%s"}]}]}`},
		{Chat, `{"model":"m","messages":[{"role":"tool","tool_call_id":"1","content":"%s"}]}`},
		{Messages, `{"model":"m","system":"%s","messages":[{}]}`},
		{Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"%s"}]}]}`},
		{Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"%s"}]}]}]}`},
		{Responses, `{"model":"m","input":"%s"}`},
		{Responses, `{"model":"m","instructions":"%s","input":"a"}`},
		{Responses, `{"model":"m","input":[{"type":"function_call_output","output":"%s"}]}`},
		{Completions, `{"model":"m","prompt":"%s"}`},
		{Embeddings, `{"model":"m","input":["%s"]}`},
		{Rerank, `{"query":"%s"}`},
		{Score, `{"queries":["%s"]}`},
		{Score, `{"text_1":"%s","text_2":"x"}`},
		{Audio, `{"model":"m","input":"%s"}`},
	} {
		a, b := chainOf(t, tt.d, fmt.Sprintf(tt.body, long+"x")), chainOf(t, tt.d, fmt.Sprintf(tt.body, long+"y"))
		if n := common(a, b); n != 10 || len(a) < 11 || a[9].End != 10*blockBytes || a[9].Message || !a[10].Message {
			t.Errorf("%s %s: %d blocks are shared of %v", tt.d, tt.body, n, a)
		}
	}
	ids := func(last int) string {
		return `{"model":"m","prompt":[` + strings.Repeat("12345, ", 5*blockBytes/idBytes) + fmt.Sprint(last) + `]}`
	}
	if a, b := chainOf(t, Completions, ids(1)), chainOf(t, Completions, ids(2)); common(a, b) != 5 || len(a) != 6 {
		t.Errorf("token ids: %v, %v", a, b)
	}
}

// TestWhatIsNoTextHasNoLength names the end of the last block beside what Parse
// counts.
func TestWhatIsNoTextHasNoLength(t *testing.T) {
	for _, tt := range []struct {
		d    Dialect
		body string
		end  int64
	}{
		{Messages, `{"model":"m","messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}`, 16},
		{Messages, `{"model":"m","messages":[{"content":[{"type":"document","source":{"data":"abc","type":"text"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"de"}]}}]}]}`, 21},
		{Messages, `{"model":"m","messages":[{"content":[{"source":["ab",{"name":"c"}]}]}]}`, 19},
		{Messages, `{"model":"m","messages":[{"content":[{"type":"tool_use","id":"1","name":"f","input":{"k":"v"}}]}]}`, 19},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x"}},{"type":"text","text":"a"}]}]}`, 17},
		{Chat, `{"model":"m","messages":[{}],"cache_salt":"abc"}`, 16},
		{Completions, `{"model":"m","prompt_embeds":"AAAA","prompt":null}`, 16},
	} {
		r := accepted(t, tt.d, tt.body)
		chain, _ := r.AppendChain(nil, 0)
		if got := chain[len(chain)-1].End; got != tt.end || got != r.PromptBytes+messageBytes {
			t.Errorf("%s: %d, want %d; the prompt has %d", tt.body, got, tt.end, r.PromptBytes)
		}
	}
	// An empty tool is one all the same.
	if got := chainOf(t, Chat, `{"model":"m","messages":[{}],"tools":[{}]}`); len(got) != 2 || got[0].End != 1 || got[0].Message {
		t.Errorf("an empty tool: %v", got)
	}
}

func TestChainsEndInTime(t *testing.T) {
	huge := strings.Repeat("0123456789abcdef", (maxBlocks+100)*blockBytes/16)
	for _, tt := range []struct {
		d    Dialect
		body string
	}{
		{Chat, `{"model":"m","messages":[{"role":"user","content":"` + huge + `%s"},{"role":"user","content":"x"}]}`},
		{Chat, `{"model":"m","messages":[{"role":"user","content":"\u0030` + huge + `%s"},{"role":"user","content":"x"}]}`},
		{Chat, `{"model":"m","messages":[{"role":"user","content":"x"}` + strings.Repeat(`,{"role":"user","content":["x",{"text":"y"}]}`, maxBlocks) + `,{"content":"%s"}]}`},
		{Chat, `{"model":"m","tools":[{}` + strings.Repeat(`,{"x":"`+huge[:600]+`"}`, maxBlocks) + `,"%s"],"messages":[{"role":"user","content":"x"}]}`},
		{Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":["` + huge + `%s"]},{"text":"x"}]}]}`},
		{Responses, `{"model":"m","instructions":"` + huge + `%s","input":"x"}`},
		{Completions, `{"model":"m","prompt":[` + strings.Repeat("1,", maxBlocks*blockBytes/idBytes) + `2],"suffix":"%s"}`},
	} {
		a := accepted(t, tt.d, fmt.Sprintf(tt.body, "a"))
		b := accepted(t, tt.d, fmt.Sprintf(tt.body, "b"))
		chain, first := a.AppendChain(make([]ChainBlock, 5), 0)
		chain = chain[5:]
		other, _ := b.AppendChain(nil, 0)
		if len(chain) != maxBlocks || !slices.Equal(chain, other) || first < 1 || first > maxBlocks {
			t.Errorf("%s %.60s: %d blocks, %d up to the first turn", tt.d, tt.body, len(chain), first)
		}
	}
}

func TestDeepContentsAreOneValue(t *testing.T) {
	deep := func(text string) string {
		const levels = 25
		return `{"model":"m","messages":[` + strings.Repeat(`{"content":[`, levels) + text + strings.Repeat(`]}`, levels) + `]}`
	}
	a, b := chainOf(t, Messages, deep(`"a"`)), chainOf(t, Messages, deep(`"b"`))
	if len(a) != 1 || a[0].Hash == b[0].Hash || a[0].End != 1+messageBytes {
		t.Errorf("%v, %v", a, b)
	}
}

func TestReadingAgainAllocatesNothing(t *testing.T) {
	chain, text := make([]ChainBlock, 0, 100), make([]byte, 0, 1<<12)
	for _, r := range []*Request{
		accepted(t, Chat, string(chatOf(8<<10))),
		accepted(t, Chat, `{"model":"m","tools":[{"`+strings.Repeat("l", 100)+`":"`+strings.Repeat(`\u00e9`, 999)+`"}],"messages":[{"role":"user","content":[{"type":"text","text":"`+strings.Repeat(`\u00e9`, 999)+`","`+strings.Repeat("l", 100)+`":"`+strings.Repeat(`\u0061`, 99)+`"}]}]}`),
	} {
		if n := testing.AllocsPerRun(20, func() {
			chain, _ = r.AppendChain(chain[:0], ChainSeed("m", "a"))
			text = r.AppendUserText(text[:0], 1000)
			text = r.AppendSystemText(text[:0], 1000)
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
