package chaos

import (
	"encoding/json"
	"strings"
)

// event is one event of a stream.
type event struct{ name, data string }

// events returns the events of a stream without comments and events without data.
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

// transcript is the content of a stream in any dialect.
type transcript struct {
	text     string
	errors   []wireError
	ends     int  // number of response.completed and message_stop events
	done     int  // number of [DONE] events
	usage    bool // the stream has a chunk without choices
	finished bool // the stream has a finish_reason
}

// wireError is the error in a body or in an error frame.
type wireError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    any    `json:"code"`
}

// transcriptOfStream returns the content of a stream.
func transcriptOfStream(stream string) (t transcript) {
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

// bodyError returns the error in a body; ok is false without one.
func bodyError(body string) (e wireError, ok bool) {
	var o struct {
		Error *wireError `json:"error"`
	}
	if json.Unmarshal([]byte(body), &o) != nil || o.Error == nil {
		return e, false
	}
	return *o.Error, true
}

// dialect is one API dialect with a request, streamed and not.
type dialect struct{ name, path, body, stream string }

// The dialects. The gateway may retry their requests.
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

// requestBody returns the body of the request, streamed or not.
func (d dialect) requestBody(stream bool) string {
	if stream {
		return d.stream
	}
	return d.body
}

// complete reports whether a stream has the proper end of its dialect exactly once.
func (d dialect) complete(t transcript) bool {
	if d.name == "chat" || d.name == "completions" {
		return t.done == 1 && t.finished
	}
	return t.ends == 1
}
