package openai

import "testing"

func TestEveryPromptOfAListCounts(t *testing.T) {
	for body, want := range map[string]int64{
		`{"model":"m","prompt":"one"}`:                      1,
		`{"model":"m","prompt":["one"]}`:                    1,
		`{"prompt": ["one", "two" ,"three"],"model":"m"}`:   3,
		`{"model":"m","prompt":[1,2,3]}`:                    1,
		`{"model":"m","prompt":[[1,2],[3]],"max_tokens":5}`: 2,
	} {
		r, err := Parse(Completions, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got := r.Prompts(); got != want {
			t.Errorf("%s has %d prompts, want %d", body, got, want)
		}
	}
	if r, err := Parse(Chat,
		[]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"prompt":["a","b"]}`)); err != nil ||
		r.Prompts() != 1 {
		t.Errorf("a chat has %d prompts, %v", r.Prompts(), err)
	}
}

// AU-13: extra_key, the other field for a salt, is rejected on every endpoint with every value except
// null.
func TestExtraKeyIsRejected(t *testing.T) {
	for _, d := range []Dialect{Chat, Completions, Responses, Messages, Embeddings, Rerank, Score, Tokenize, Moderations,
		Other} {
		for _, value := range []string{`"x"`, `["x"]`, `""`, `{}`} {
			body := `{"model":"m","messages":[{"role":"user","content":"hi"}],"prompt":"p","input":"i","extra_key":` + value +
				`}`
			if _, err := Parse(d, []byte(body)); err == nil || err.Error() == "" {
				t.Errorf("%v accepts extra_key %s", d, value)
			}
		}
		if _, err := Parse(d,
			[]byte(
				`{"model":"m","messages":[{"role":"user","content":"hi"}],"prompt":"p","input":"i","extra_key":null}`)); err !=
			nil {
			t.Errorf("%v rejects null: %v", d, err)
		}
	}
}
