package answers

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"tierway/openai"
)

// replayed returns the whole answer of a replay, and the lines of its stream without those of names.
func replayed(p *Replay) (whole []byte, events []string) {
	isBreak := func(r rune) bool { return r == '\n' || r == '\r' }
	for line := range strings.FieldsFuncSeq(string(p.AppendStream(nil)), isBreak) {
		if !strings.HasPrefix(line, "event: ") {
			events = append(events, line)
		}
	}
	return p.AppendWhole(nil), events
}

// checkReplay fails if a line of a stream is not one event in JSON, or the whole answer is no JSON.
func checkReplay(t *testing.T, p *Replay) {
	t.Helper()
	whole, events := replayed(p)
	if !json.Valid(whole) {
		t.Errorf("%v: %s", p.Dialect, whole)
	}
	for i, line := range events {
		data, ok := strings.CutPrefix(line, "data: ")
		end := i == len(events)-1 && data == "[DONE]"
		if !ok || !end && !json.Valid([]byte(data)) {
			t.Errorf("%v: %q", p.Dialect, line)
		}
	}
}

// FuzzReplaysAreLinesOfJSON: each line of a replayed stream is one event, whatever the request has as metadata and user
// and the engine as text and further members.
func FuzzReplaysAreLinesOfJSON(f *testing.F) {
	f.Add("{\n \"a\" :\r\n [\t1 , \"b\\n\" ]}", "a\nb\r\n\u2028", "{\n\"x\":\r1}")
	f.Add(`"u"`, "\x00\x1f\"\\", "null")
	f.Add(" \n", "", "1")
	f.Fuzz(func(t *testing.T, echoed, text, more string) {
		if echoed != "" && !json.Valid([]byte(echoed)) || !json.Valid([]byte(more)) {
			return
		}
		for _, d := range []openai.Dialect{openai.Chat, openai.Completions, openai.Messages, openai.Responses} {
			p := replayOf(d)
			r := NewRecorder(d)
			r.top["more"] = json.RawMessage(more)
			r.usage["more"] = json.RawMessage(more)
			r.text.WriteString("x" + text)
			r.thought.WriteString(text)
			r.complete, r.content.Finish, r.content.Names = true, p.Content.Finish, p.Content.Names
			c, why := r.Content(1, 2)
			if why != "" {
				return
			}
			p.Content = c
			p.Metadata, p.User = []byte(echoed), []byte(echoed)
			checkReplay(t, p)
		}
	})
}

// TestReplaysEchoTheRequest: a Responses object has the metadata and user of the request, in the defaults without them.
func TestReplaysEchoTheRequest(t *testing.T) {
	for _, c := range []struct{ metadata, user, want string }{
		{"{\n  \"a\": \"b c\"\r\n}", " \"u\" ", `"metadata":{"a":"b c"},"user":"u"`},
		{"", "", `"metadata":{},"user":null`},
		{"null", "{ }", `"metadata":null,"user":{}`},
	} {
		p := replayOf(openai.Responses)
		p.Metadata, p.User = []byte(c.metadata), []byte(c.user)
		checkReplay(t, p)
		if whole := p.AppendWhole(nil); !bytes.Contains(whole, []byte(c.want)) {
			t.Errorf("no %s in %s", c.want, whole)
		}
	}
}
