package pairing

import (
	"encoding/json"
	"errors"
	"testing"

	"tierway/openai"
)

func TestRepeatedRequestHasNoStream(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"auto","stream":true,"stream_options":{"include_usage":true},"temperature":0.2,"max_tokens":7}`: `{"max_tokens":7,"model":"auto","temperature":0.2}`,
		`{"messages":[{"role":"user","content":"a < b & \u00e9 é 12345678901234567890"}]}`:                        `{"messages":[{"role":"user","content":"a < b & \u00e9 é 12345678901234567890"}]}`,
		`{}`: `{}`,
	} {
		if got, err := Unstreamed([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", body, got, err)
		}
	}
	if _, err := Unstreamed([]byte(`[]`)); err == nil {
		t.Error("an array is a body")
	}
}

// TestRequestsWithoutOneTextAreNotComparable, nor are requests with a field that may act outside or is unknown.
func TestRequestsWithoutOneTextAreNotComparable(t *testing.T) {
	const turn = `"messages":[{"role":"user","content":"x"}]`
	for dialect, bodies := range map[openai.Dialect]map[string]bool{
		openai.Chat: {
			turn: true,
			turn + `,"n":1,"temperature":0.2,"max_tokens":5,"stream":true,"stream_options":{},"store":false,"user":"u"`: true,
			turn + `,"response_format":{"type":"json_object"},"reasoning_effort":"low","logit_bias":{},"seed":1`:        true,
			turn + `,"tools":null,"web_search_options":null`:                                                            true,
			turn + `,"n":2`:                          false,
			turn + `,"tools":[{"type":"function"}]`:  false,
			turn + `,"web_search_options":{}`:        false,
			turn + `,"modalities":["text","audio"]`:  false,
			turn + `,"audio":{"voice":"alloy"}`:      false,
			turn + `,"web_search_opti\u006fns":{}`:   false,
			turn + `,"a_field_of_an_engine":1`:       false,
			turn + `,"system":"a field of messages"`: false,
			`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"h"}}]}]`: false,
			`"messages":[{"role":"assistant","audio":{"id":"a"}},{"role":"user","content":"x"}]`:    false,
		},
		openai.Completions: {
			`"prompt":"x","max_tokens":3,"suffix":"y"`: true,
			`"prompt":["a","b"]`:                       false,
			`"prompt":"x","best_of":2`:                 false,
			`"prompt":"x","echo":true`:                 false,
		},
		openai.Messages: {
			turn + `,"max_tokens":3,"system":"s","thinking":{"type":"disabled"},"metadata":{"user_id":"u"}`: true,
			turn + `,"mcp_servers":[{"type":"url","url":"http://h","name":"n"}]`:                            false,
			turn + `,"container":"c"`: false,
			`"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]`: false,
		},
		openai.Responses: {
			`"input":"x","store":false,"text":{"format":{"type":"text"}},"reasoning":{}`:             true,
			`"input":[{"role":"user","content":"x"},{"type":"message","role":"user","content":"y"}]`: true,
			`"input":"x","prompt":{"id":"p"}`:                                                        false,
			`"input":"x","include":["reasoning.encrypted_content"]`:                                  false,
			`"input":"x","max_tool_calls":1`:                                                         false,
			`"input":[{"role":"user","content":"x"},{"type":"item_reference","id":"i"}]`:             false,
			`"input":[{"type":"function_call_output","call_id":"c","output":"o"}]`:                   false,
			`"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://h"}]}]`:    false,
		},
	} {
		for fields, want := range bodies {
			r, err := openai.Parse(dialect, []byte(`{"model":"auto",`+fields+`}`))
			if err != nil {
				t.Fatalf("%s: %v", fields, err)
			}
			if got := Comparable(r); got != want {
				t.Errorf("%s %s: %t", dialect, fields, got)
			}
		}
	}
}

func TestTextIsTheFirstChoiceOrAllPartsOfText(t *testing.T) {
	for name, c := range map[string]struct {
		dialect    openai.Dialect
		body, want string
		none       bool
	}{
		"chat":              {openai.Chat, `{"choices":[{"message":{"role":"assistant","content":"42"}},{"message":{"content":"43"}}]}`, "42", false},
		"chat, empty":       {openai.Chat, `{"choices":[{"message":{"content":""}}]}`, "", false},
		"chat, refusal":     {openai.Chat, `{"choices":[{"message":{"content":null,"refusal":"No."}}]}`, "No.", false},
		"chat, a call":      {openai.Chat, `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"x"}]}}]}`, "", true},
		"chat, no choice":   {openai.Chat, `{"choices":[]}`, "", true},
		"completions":       {openai.Completions, `{"choices":[{"text":" 42"}]}`, " 42", false},
		"messages":          {openai.Messages, `{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"4"},{"type":"text","text":"2"}]}`, "42", false},
		"messages, a call":  {openai.Messages, `{"content":[{"type":"tool_use","id":"x"}]}`, "", true},
		"responses":         {openai.Responses, `{"output":[{"type":"reasoning","content":[{"type":"text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"42"}]}]}`, "42", false},
		"responses, refuse": {openai.Responses, `{"output":[{"type":"message","content":[{"type":"refusal","refusal":"No."}]}]}`, "No.", false},
		"responses, empty":  {openai.Responses, `{"output":[]}`, "", true},
		"no JSON":           {openai.Chat, `<html>`, "", true},
	} {
		text, ok := Text(c.dialect, []byte(c.body))
		if text != c.want || ok == c.none {
			t.Errorf("%s: %q %t", name, text, ok)
		}
	}
}

func TestVerdictOfACommandIsOneObject(t *testing.T) {
	names := [2]string{"small", "large"}
	for output, want := range map[string]Verdict{
		`{"small": true, "large": false}`:       {true, false},
		" {\"large\":true,\n\"small\":false}\n": {false, true},
	} {
		if got, err := ReadVerdict([]byte(output), names); got != want || err != nil {
			t.Errorf("%s: %v %v", output, got, err)
		}
	}
	for _, output := range []string{
		``, `true`, `[]`, `{}`, `{"small":true}`, `{"small":true,"large":1}`, `{"small":true,"large":"true"}`,
		`{"small":true,"large":null}`, `{"small":true,"large":false,"medium":true}`, `{"small":true,"small":true}`,
		`{"small":true,"large":false,"large":true}`, `{"small":true,"large":false`, `{"small":true,"large":{}}`,
		`{"small":true,"large":false} {}`, `{"small":true,"large":false} x`, `right: {"small":true,"large":false}`,
	} {
		if got, err := ReadVerdict([]byte(output), names); !errors.Is(err, ErrVerdict) {
			t.Errorf("%s: %v %v", output, got, err)
		}
	}
}

func TestVerdictOfAModelIsItsLastObject(t *testing.T) {
	for text, want := range map[string]Verdict{
		`{"A": true, "B": false}`:                                       {true, false},
		"The first is right.\n```json\n{\"A\":true,\"B\":false}```":     {true, false},
		`{"A": true, "B": false} because {"A": false}`:                  {true, false},
		`\boxed{391}. {"A":true,"B":false}`:                             {true, false},
		`<think>f(x){ return {"A": 1} }</think>{"A":true,"B":false}`:    {true, false},
		`At first {"A":false,"B":true}, but then {"A":true,"B":false}.`: {true, false},
		`{A} {"A":true,"B":false}`:                                      {true, false},
	} {
		if got, err := ReadJudgement(text, false); got != want || err != nil {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if got, err := ReadJudgement(text, true); got != (Verdict{want[1], want[0]}) || err != nil {
			t.Errorf("%s, swapped: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "A is right", `{A}`, `{{{`, `{"A":true}`, `{"a":true,"b":true}`} {
		if got, err := ReadJudgement(text, false); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestModelThatJudgesSeesTheAnswersInTheDrawnOrder(t *testing.T) {
	request := `{"model":"auto","messages":[{"role":"user","content":"6*7?"}]}`
	for swapped, want := range map[bool]string{
		false: `{"request":` + request + `,"A":"42","B":"<b>"}`,
		true:  `{"request":` + request + `,"A":"<b>","B":"42"}`,
	} {
		body, err := JudgeRequest("judge", []byte(request), [2]string{"42", "<b>"}, swapped)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openai.Parse(openai.Chat, body); err != nil {
			t.Error(err)
		}
		var got struct {
			Model       string
			Messages    []message
			Temperature *float64 // absent
			MaxTokens   int      `json:"max_tokens"`
		}
		if err := json.Unmarshal(body, &got); err != nil || got.Model != "judge" || got.Temperature != nil ||
			got.MaxTokens != maxVerdict || len(got.Messages) != 2 || got.Messages[0].Content != rubric ||
			got.Messages[1].Content != want {
			t.Errorf("%s %v", body, err)
		}
	}
}

func TestCommandReadsTheAnswersByTheirTiers(t *testing.T) {
	got, err := CommandInput([]byte(`{"model":"auto"}`), [2]string{"small", "large"}, [2]string{"4", "2"})
	if want := `{"request":{"model":"auto"},"answers":{"large":"2","small":"4"}}`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}
