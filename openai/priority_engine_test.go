package openai_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tierway/engines"
	"tierway/openai"
)

// QU-08: an engine that parses priorities as loosely as vLLM never reads a value before that of the
// class, in any spelling. An engine without priority scheduling accepts the request without the added
// field.
func TestEngineNeverReadsAPriorityBeforeTheClass(t *testing.T) {
	values := []string{"", "0", "-5", "15", "100", "-0.5e1", "5.0", "15.0", `"-5"`, `" -5 "`, `"\u002d5"`, `"-5.0"`,
		"true", "false", "-9223372036854775808", "1e1"}
	var read engines.Account
	sorted := engines.New(engines.Config{Model: "m", Priority: engines.PriorityFirst,
		Ended: func(_ *http.Request, a engines.Account) { read = a }})
	plain := engines.New(engines.Config{Model: "m", Priority: engines.PriorityRefused})
	send := func(e *engines.Engine, pieces [][]byte) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions",
			bytes.NewReader(bytes.Join(pieces, nil))))
		return w
	}
	for class := range 3 {
		for _, value := range values {
			body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]`
			if value != "" {
				body += `,"priority":` + value
			}
			r, err := openai.Parse(openai.Chat, []byte(body+"}"))
			if err != nil {
				t.Fatal(err)
			}
			var e openai.Edit
			e.Priority, e.SetPriority = openai.EnginePriority(class, r.Priority, r.PriorityGiven)
			if w := send(sorted, r.Splice(e)); w.Code != 200 {
				t.Errorf("class %d, %s: %d %s", class, value, w.Code, w.Body)
			}
			if read.Priority < int64(10*class) || class == 0 && value == "" && read.Prioritized {
				t.Errorf("class %d, %s: the engine reads %d", class, value, read.Priority)
			}
			if len(r.AddedFields(e)) == 0 {
				continue
			}
			if w := send(plain, r.Splice(e)); w.Code != 400 || !strings.Contains(w.Body.String(), r.AddedFields(e)[0]) {
				t.Errorf("class %d, %s: %d %s", class, value, w.Code, w.Body)
			}
			e.SetPriority = false
			if w := send(plain, r.Splice(e)); w.Code != 200 {
				t.Errorf("class %d, %s, sent again: %d %s", class, value, w.Code, w.Body)
			}
		}
	}
}
