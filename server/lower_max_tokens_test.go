package server

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
	"tierway/engines/chaos"
)

// TestMaxTokensIsLoweredToTheContext in each dialect and field, if the tier says so. The engine rejects what does not
// fit.
func TestMaxTokensIsLoweredToTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newTier := func(key string) (*rig, *chaos.Recorder) {
			recorder := chaos.Record(engines.New(engines.Config{Name: "small", Model: "fake-7b", Context: 4096, Seed: 1}))
			yaml := strings.Replace(plain, "    model: fake-7b\n", "    model: fake-7b\n    context: 4096\n"+key, 1)
			return newRig(t, yaml, recorder), recorder
		}
		lowering, recorder := newTier("    lower_max_tokens: true\n")
		strict, _ := newTier("")
		long := strings.Repeat("word ", 1000) // about 1,250 tokens by the estimate
		messages := `"model":"small","messages":[{"role":"user","content":"` + long + `"}]`
		for _, c := range []struct{ path, body, field string }{
			{"/v1/chat/completions", messages, "max_tokens"}, {"/v1/chat/completions", messages, "max_completion_tokens"},
			{"/v1/messages",
				messages, "max_tokens"}, {"/v1/completions", `"model":"small","prompt":"` + long + `"`, "max_tokens"},
			{"/v1/responses", `"model":"small","input":"` + long + `"`, "max_output_tokens"},
		} {
			body := func(n int) string { return fmt.Sprintf(`{%s,"%s":%d,"stop":["."]}`, c.body, c.field, n) }
			if c.field == "max_output_tokens" {
				body = func(n int) string { return fmt.Sprintf(`{%s,"%s":%d}`, c.body, c.field, n) }
			}
			if got := strict.post(c.path, body(32000)); got.status != http.StatusBadRequest ||
				got.header.Get("X-Max-Tokens-Lowered") != "" {
				t.Errorf("%s without the key: %d %v", c.path, got.status, got.header)
			}
			before := len(recorder.Requests())
			got := lowering.post(c.path, body(32000))
			sent := recorder.Requests()[before:]
			if got.status != http.StatusOK || len(sent) != 1 {
				t.Errorf("%s with %s: %d %s", c.path, c.field, got.status, got.body)
				continue
			}
			number := regexp.MustCompile(`"` + c.field + `":(\d+)`).FindSubmatch(sent[0].Body)
			n, err := strconv.Atoi(string(number[1]))
			reason := fmt.Sprintf("%d; 32000 does not fit into the context of 4096", n)
			if err != nil || n < 1400 || n > 2846 || got.header.Get("X-Max-Tokens-Lowered") != reason {
				t.Errorf("%s: the engine gets %s, the client %q", c.path, number[0], got.header.Get("X-Max-Tokens-Lowered"))
			}
			got = lowering.post(c.path, body(20))
			if last := recorder.Requests(); got.header.Get("X-Max-Tokens-Lowered") != "" ||
				!strings.Contains(string(last[len(last)-1].Body), `"`+c.field+`":20`) {
				t.Errorf("%s: 20 tokens fit, and the client gets %v", c.path, got.header)
			}
		}
		got := lowering.post("/v1/messages",
			"{"+messages+`,"max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":31999}}`)
		sent := recorder.Requests()
		numbers := regexp.MustCompile(`"max_tokens":(\d+),.*"budget_tokens":(\d+)`).FindSubmatch(sent[len(sent)-1].Body)
		limit, _ := strconv.Atoi(string(numbers[1]))
		if budget, _ := strconv.Atoi(string(numbers[2])); got.status != http.StatusOK || budget != limit-1 {
			t.Errorf("thinking: %d, the engine gets %d of %d tokens", got.status, budget, limit)
		}
		full := `{"model":"small","max_tokens":32000,"messages":[{"role":"user","content":"` + strings.Repeat(long, 4) + `"}]}`
		if got := lowering.post("/v1/chat/completions", full); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, "context_length_exceeded") || strings.Contains(got.body, "32000") {
			t.Errorf("a prompt that fills the context: %d %s", got.status, got.body)
		}
		if e := lowering.explained("/v1/chat/completions", "{"+messages+`,"max_tokens":32000}`); !strings.Contains(
			strings.Join(e.Notes, "\n"), "max_tokens is lowered from 32000") {
			t.Errorf("the notes of the explanation are %q", e.Notes)
		}
	})
}

// TestUnlimitedMaxTokensIsNoLimit: -1 is llama.cpp's word, and other engines reject it.
func TestUnlimitedMaxTokensIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := chaos.Record(fakeEngine())
		r := newRig(t, plain, recorder)
		messages := `"model":"small","messages":[{"role":"user","content":"hi"}]`
		for _, c := range []struct {
			path, body string
			status     int
		}{
			{"/v1/chat/completions",
				messages + `,"max_tokens":-1`, 200}, {"/v1/chat/completions", messages + `,"max_tokens": -1 `, 200},
			{"/v1/chat/completions", messages + `,"max_completion_tokens":-1`, 200},
			{"/v1/completions", `"model":"small","prompt":"hi","max_tokens":-1`, 200},
			{"/v1/responses", `"model":"small","input":"hi","max_output_tokens":-1`, 200},
			{"/v1/messages", messages + `,"max_tokens":-1`, 400}, {"/v1/chat/completions", messages + `,"max_tokens":-2`, 400},
			{"/v1/chat/completions",
				messages + `,"max_tokens":-1.0`, 400}, {"/v1/chat/completions", messages + `,"max_tokens":"-1"`, 400},
		} {
			before := len(recorder.Requests())
			got := r.post(c.path, "{"+c.body+"}")
			sent := recorder.Requests()[before:]
			if got.status != c.status || c.status == 200 && (len(sent) != 1 || !strings.Contains(strings.ReplaceAll(
				string(sent[0].Body), " ", ""), `_tokens":null`)) || c.status != 200 && len(sent) != 0 {
				t.Errorf("%s: %d %.200s, the engine gets %d requests", c.body, got.status, got.body, len(sent))
			}
		}
	})
}
