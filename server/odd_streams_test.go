package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/breaker"
)

// TestOddEventsAreMadeReadable: what SDKs cannot read is dropped or completed, and the rest of the stream
// arrives unchanged.
func TestOddEventsAreMadeReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		message := strings.Replace(streamedHello, "{", `{"max_tokens":5,`, 1)
		response := `{"model":"small","input":"Hi","stream":true}`
		chat := textChunk + finishChunk
		unnamed := func(events string) (s string) {
			for line := range strings.Lines(events) {
				if !strings.HasPrefix(line, "event:") {
					s += line
				}
			}
			return s
		}
		ended := func(kind, status string) string {
			data := fmt.Sprintf(`{"type":%q,"response":{"id":"resp_s1","status":%q}}`, kind, status)
			return "event: " + kind + "\ndata: " + data + "\n\n"
		}
		one := func(events string) string { return strings.ReplaceAll(events, "\n\n", "\n") }
		for name, c := range map[string]struct{ path, body, stream, want string }{
			"usage with choices null":         {"/v1/chat/completions", streamedHello, chat + `data: {"choices":null,"usage":{"prompt_tokens":3,"completion_tokens":1}}` + "\n\n" + doneChunk, chat + doneChunk},
			"usage without choices":           {"/v1/chat/completions", streamedHello, chat + `data: {"usage":{"prompt_tokens":3,"completion_tokens":1}}` + "\n\n" + doneChunk, chat + doneChunk},
			"usage with a null choice":        {"/v1/chat/completions", streamedHello, chat + strings.Replace(usageChunk, `[]`, "[null]", 1) + doneChunk, chat + doneChunk},
			"requested usage, empty choice":   {"/v1/chat/completions", strings.Replace(streamedHello, "{", `{"stream_options":{"include_usage":true},`, 1), chat + strings.Replace(usageChunk, `[]`, "[{}]", 1) + doneChunk, chat + usageChunk + doneChunk},
			"blanks around [DONE]":            {"/v1/chat/completions", streamedHello, chat + "data:   [DONE] \r\n\r\n", chat + doneChunk},
			"one line end between events":     {"/v1/chat/completions", streamedHello, one(chat + doneChunk), chat + doneChunk},
			"one CRLF between events":         {"/v1/chat/completions", streamedHello, strings.ReplaceAll(one(chat+doneChunk), "\n", "\r\n"), strings.ReplaceAll(chat+doneChunk, "\n\n", "\r\n\n")},
			"a first blank line is missing":   {"/v1/chat/completions", streamedHello, one(textChunk) + finishChunk + doneChunk, chat + doneChunk},
			"no line end after the end":       {"/v1/chat/completions", streamedHello, strings.TrimSpace(one(chat + doneChunk)), chat + doneChunk},
			"one line end and usage":          {"/v1/chat/completions", streamedHello, one(chat + usageChunk + doneChunk), chat + doneChunk},
			"messages of one line end":        {"/v1/messages", message, one(startEvent + textEvent + stopEvents), startEvent + textEvent + stopEvents},
			"unnamed messages of one":         {"/v1/messages", message, one(unnamed(startEvent + textEvent + stopEvents)), startEvent + textEvent + stopEvents},
			"responses of one line end":       {"/v1/responses", response, one(createdEvent + completedEvent), createdEvent + completedEvent},
			"[done]":                          {"/v1/chat/completions", streamedHello, chat + "data: [done]\n\n", chat + doneChunk},
			"[Done] with blanks":              {"/v1/chat/completions", streamedHello, chat + "data:[ Done ] \n\n", chat + doneChunk},
			"DONE":                            {"/v1/chat/completions", streamedHello, chat + "data: DONE\n\n", chat + doneChunk},
			"a quoted end":                    {"/v1/chat/completions", streamedHello, chat + "data: \"[DONE]\"\n\n", chat + doneChunk},
			"a named end":                     {"/v1/chat/completions", streamedHello, chat + "event: done\ndata: [DONE]\n\n", chat + "event: done\n" + doneChunk},
			"blanks around an unneeded end":   {"/v1/responses", response, createdEvent + completedEvent + "data:  [DONE]\n\n", createdEvent + completedEvent + doneChunk},
			"usage of nothing":                {"/v1/chat/completions", streamedHello, chat + `data: {"choices":[],"usage":{}}` + "\n\n" + doneChunk, chat + doneChunk},
			"requested usage without choices": {"/v1/chat/completions", strings.Replace(streamedHello, "{", `{"stream_options":{"include_usage":true},`, 1), chat + strings.Replace(usageChunk, `[]`, "null", 1) + doneChunk, chat + usageChunk + doneChunk},
			"requested usage":                 {"/v1/chat/completions", strings.Replace(streamedHello, "{", `{"stream_options":{"include_usage":true},`, 1), chat + usageChunk + doneChunk, chat + usageChunk + doneChunk},
			"usage of a completion":           {"/v1/completions", `{"model":"small","prompt":"Hi","stream":true}`, `data: {"choices":[{"index":0,"text":"x","finish_reason":"stop"}]}` + "\n\n" + `data: {"choices":null,"usage":{"prompt_tokens":3,"completion_tokens":1}}` + "\n\n" + doneChunk, `data: {"choices":[{"index":0,"text":"x","finish_reason":"stop"}]}` + "\n\n" + doneChunk},
			"null":                            {"/v1/chat/completions", streamedHello, "data: null\n\n" + textChunk + "data: null\n\ndata: 1\n\ndata: []\n\ndata: {}\n\ndata: \"x\"\n\n" + finishChunk + doneChunk, chat + doneChunk},
			"blocks without data":             {"/v1/chat/completions", streamedHello, "event: start\n\nid: 1\n\n" + textChunk + "data:\n\nevent: x\ndata:\n\nretry: 5\n\n\n\n" + finishChunk + doneChunk, chat + doneChunk},
			"null in messages":                {"/v1/messages", message, startEvent + "data: null\n\n" + textEvent + "event: ping\n\n" + stopEvents, startEvent + textEvent + stopEvents},
			"null in responses":               {"/v1/responses", response, createdEvent + "data: null\n\n" + completedEvent, createdEvent + completedEvent},
			"messages without names":          {"/v1/messages", message, unnamed(startEvent + textEvent + stopEvents), startEvent + textEvent + stopEvents},
			"messages of default names":       {"/v1/messages", message, strings.ReplaceAll(unnamed(startEvent+textEvent+stopEvents), "data: ", "event: message\ndata: "), startEvent + textEvent + stopEvents},
			"response.done":                   {"/v1/responses", response, createdEvent + strings.ReplaceAll(completedEvent, "response.completed", "response.done"), createdEvent + completedEvent},
			"response.done without names":     {"/v1/responses", response, createdEvent + strings.ReplaceAll(unnamed(completedEvent), "response.completed", "response.done"), createdEvent + unnamed(completedEvent)},
			"response.done, incomplete":       {"/v1/responses", response, createdEvent + ended("response.done", "incomplete"), createdEvent + ended("response.incomplete", "incomplete")},
			"response.done, failed":           {"/v1/responses", response, createdEvent + ended("response.done", "failed"), createdEvent + ended("response.failed", "failed")},
			"response.done, no status":        {"/v1/responses", response, createdEvent + strings.ReplaceAll(ended("response.done", "x"), `"status":"x"`, `"object":"response"`), createdEvent + strings.ReplaceAll(ended("response.completed", "x"), `"status":"x"`, `"object":"response"`)},
		} {
			r := newRig(t, plain, constantAnswer("text/event-stream", c.stream))
			if a := r.post(c.path, c.body); a.status != 200 || a.err != nil || a.body != c.want {
				t.Errorf("%s: %d %v\ngot  %q\nwant %q", name, a.status, a.err, a.body, c.want)
			}
			if m := r.scrape(); !strings.Contains(m, `tierway_attempts_total{result="ok",tier="small",worker="w0"} 1`) {
				t.Errorf("%s: the attempt has failed", name)
			}
		}
	})
}

// TestUnrequestedUsageOfEveryEngineIsRemoved: llama.cpp is asked for none, and some servers send it anyway.
func TestUnrequestedUsageOfEveryEngineIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: llamacpp", 1),
			constantAnswer("text/event-stream", textChunk+finishChunk+usageChunk+doneChunk))
		if a := r.post("/v1/chat/completions", streamedHello); a.body != textChunk+finishChunk+doneChunk {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestAnEngineWithoutAFinishReasonIsNamed: its streams end in an error that names the missing field. They
// are no evidence against the worker, as long as no stream of the worker has had one.
func TestAnEngineWithoutAFinishReasonIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		message := `{"model":"small","max_tokens":5,"stream":true,"messages":[{"role":"user","content":%q}]}`
		for name, c := range map[string]struct{ path, body, stream, want string }{
			"chat": {"/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":%q}]}`,
				textChunk + doneChunk, "finish_reason"},
			"chat without an end": {"/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":%q}]}`,
				textChunk, "finish_reason"},
			"messages": {"/v1/messages", message, startEvent + textEvent, "stop_reason"},
			"responses": {"/v1/responses", `{"model":"small","stream":true,"store":false,"input":%q}`,
				createdEvent + fmt.Sprintf(deltaEvent, 1), "response.completed"},
			"messages with [DONE]": {"/v1/messages", message, startEvent + textEvent + doneChunk, "stop_reason"},
			"responses with [DONE]": {"/v1/responses", `{"model":"small","stream":true,"store":false,"input":%q}`,
				createdEvent + fmt.Sprintf(deltaEvent, 1) + doneChunk, "response.completed"},
		} {
			r := newRig(t, plain, constantAnswer("text/event-stream", c.stream))
			for i := range 20 {
				a := r.post(c.path, fmt.Sprintf(c.body, fmt.Sprint("Hi ", i)))
				if a.status != http.StatusOK || !strings.Contains(a.body, c.want) ||
					strings.Contains(a.body, "closed the connection") ||
					!strings.Contains(a.body, "error") || strings.Contains(a.body, "[DONE]") {
					t.Fatalf("%s: %d %s", name, a.status, a.body)
				}
			}
			if st := r.stateOf("w0"); st != breaker.Closed {
				t.Errorf("%s: the breaker is %v", name, st)
			}
		}
	})
}

// TestACutStreamOfAnEngineWithFinishReasonsIsItsFault: the worker sends them otherwise.
func TestACutStreamOfAnEngineWithFinishReasonsIsItsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := false
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if cut {
				writeNow(t, w, textChunk)
				return
			}
			writeNow(t, w, textChunk+finishChunk+doneChunk)
		}))
		r.post("/v1/chat/completions", streamedHello)
		cut = true
		for i := range 5 {
			r.post("/v1/chat/completions", chatBody("small", fmt.Sprint("Hi ", i), `,"stream":true`))
		}
		if st := r.stateOf("w0"); st == breaker.Closed {
			t.Error("the breaker is closed after five cut streams")
		}
	})
}
