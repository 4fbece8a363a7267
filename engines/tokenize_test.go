package engines

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

func TestRenderedTokensAreThoseThatAreComputed(t *testing.T) {
	e := New(Config{Model: "m"})
	defer e.Close()
	const messages = `"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello, you"}]`
	chat := ask(t, e, "/v1/chat/completions/render", `{"model":"m","reasoning_effort":"low",`+messages+`}`)
	whole := ask(t, e, "/tokenize", `{"model":"m",`+messages+`}`)
	if !reflect.DeepEqual(chat["token_ids"], whole["tokens"]) || number(t, whole, "count") == 0 {
		t.Errorf("%v rendered, %v tokenized", chat, whole)
	}
	all := whole["tokens"].([]any)
	closed := ask(t, e, "/tokenize", `{"model":"m","add_generation_prompt":false,`+messages+`}`)["tokens"].([]any)
	if len(closed) >= len(all) || !reflect.DeepEqual(closed, all[:len(closed)]) {
		t.Errorf("%v without the beginning of an answer, %v with it", closed, all)
	}
	usage := ask(t, e, "/v1/chat/completions", `{"model":"m","max_tokens":1,`+messages+`}`)["usage"].(map[string]any)
	if fmt.Sprint(usage["prompt_tokens"]) != fmt.Sprint(len(all)) {
		t.Errorf("%d tokens, usage %v", len(all), usage)
	}
}

func TestEachPromptOfACompletionIsRendered(t *testing.T) {
	e := New(Config{Model: "m"})
	defer e.Close()
	var prompts []struct {
		TokenIDs []uint32 `json:"token_ids"`
	}
	_, body := call(t, e, "POST", "/v1/completions/render", `{"model":"m","prompt":["hello, you","and you"]}`)
	if err := json.Unmarshal([]byte(body), &prompts); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if len(prompts) != 2 || len(prompts[0].TokenIDs) != 3 || len(prompts[1].TokenIDs) != 2 {
		t.Errorf("%s", body)
	}
}
