package chaos

import (
	"encoding/json"
	"strings"
)

// event is one event of a stream as a client sees it.
type event struct{ name, data string }

// events reads a stream; comments and events without data are none.
func events(stream string) (out []event) {
	var e event
	has := false
	for _, line := range strings.Split(strings.ReplaceAll(stream, "\r\n", "\n"), "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if has {
				out = append(out, e)
			}
			e, has = event{}, false
		case field == "event":
			e.name = value
		case field == "data":
			if has {
				value = e.data + "\n" + value
			}
			e.data, has = value, true
		}
	}
	return out
}

// transcript is what a client makes of a stream in any dialect.
type transcript struct {
	text     string
	errors   []wireError
	ends     int  // ends that the dialect proves
	done     int  // [DONE]
	usage    bool // a chunk without choices
	finished bool // a finish_reason
}

// wireError is an error as clients read it, in a body or in a frame.
type wireError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    any    `json:"code"`
}

// heard reads a stream.
func heard(stream string) (t transcript) {
	for _, e := range events(stream) {
		if e.data == "[DONE]" {
			t.done++
			continue
		}
		t.event(e)
	}
	return t
}

func (t *transcript) event(e event) {
	var o struct {
		Type    string     `json:"type"`
		Error   *wireError `json:"error"`
		Choices *[]struct {
			Text   string `json:"text"`
			Finish string `json:"finish_reason"`
			Delta  struct {
				Content string `json:"content"`
			} `json:"delta"`
		} `json:"choices"`
		Delta json.RawMessage `json:"delta"`
	}
	if json.Unmarshal([]byte(e.data), &o) != nil {
		t.errors = append(t.errors, wireError{Message: "not JSON: " + e.data})
		return
	}
	if o.Error != nil {
		t.errors = append(t.errors, *o.Error)
		return
	}
	if o.Choices != nil {
		t.usage = t.usage || len(*o.Choices) == 0
		for _, c := range *o.Choices {
			t.text += c.Text + c.Delta.Content
			t.finished = t.finished || c.Finish != ""
		}
	}
	switch o.Type {
	case "response.completed", "message_stop":
		t.ends++
	case "response.output_text.delta":
		var text string
		if json.Unmarshal(o.Delta, &text) == nil {
			t.text += text
		}
	case "content_block_delta":
		var d struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(o.Delta, &d) == nil {
			t.text += d.Text
		}
	}
}

// bodyError reads the error of a whole answer; ok is false when there is none.
func bodyError(body string) (e wireError, ok bool) {
	var o struct {
		Error *wireError `json:"error"`
	}
	if json.Unmarshal([]byte(body), &o) != nil || o.Error == nil {
		return e, false
	}
	return *o.Error, true
}

// dialect is one way to ask.
type dialect struct{ name, path, body, stream string }

// The dialects. What they ask for may be asked again.
var (
	chat = dialect{"chat", "/v1/chat/completions", `{"model":"sim","messages":[{"role":"user","content":"hello"}]}`,
		`{"model":"sim","stream":true,"messages":[{"role":"user","content":"hello"}]}`}
	completions = dialect{"completions", "/v1/completions", `{"model":"sim","prompt":"hello","max_tokens":256}`,
		`{"model":"sim","prompt":"hello","max_tokens":256,"stream":true}`}
	responses = dialect{"responses", "/v1/responses", `{"model":"sim","input":"hello","store":false}`,
		`{"model":"sim","input":"hello","store":false,"stream":true}`}
	messages = dialect{"messages", "/v1/messages",
		`{"model":"sim","max_tokens":256,"messages":[{"role":"user","content":"hello"}]}`,
		`{"model":"sim","max_tokens":256,"stream":true,"messages":[{"role":"user","content":"hello"}]}`}
)

// ask is the dialect's body, streamed or not.
func (d dialect) ask(stream bool) string {
	if stream {
		return d.stream
	}
	return d.body
}

// proven tells whether a stream has the dialect's proven end, once.
func (d dialect) proven(t transcript) bool {
	if d.name == "chat" || d.name == "completions" {
		return t.done == 1 && t.finished
	}
	return t.ends == 1
}
