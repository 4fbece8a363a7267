package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The ends of a chat stream and of a stream of the Messages dialect.
const (
	finishChunk = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	stopEvents  = "event: message_delta\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}` +
		"\n\nevent: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
)

// slowStream sends each part of a stream after a pause.
func slowStream(t *testing.T, pause time.Duration, parts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, part := range parts {
			<-time.After(pause)
			writeNow(t, w, part)
		}
	})
}

// withIDs adds an id line to each event, as servers of event streams that can be resumed do.
func withIDs(parts ...string) (all []string) {
	for i, part := range parts {
		all = append(all, fmt.Sprintf("id: %d\n%s", i, part))
	}
	return all
}

// emptyEvents counts the events without data in the reading of the strictest decoders: each blank line
// ends an event, whatever precedes it.
func emptyEvents(body string) (n int) {
	data := false
	for line := range strings.Lines(body) {
		switch {
		case strings.HasPrefix(line, "data:"):
			data = true
		case line == "\n":
			if !data {
				n++
			}
			data = false
		}
	}
	return n
}

// TestHeartbeatsAreNoEvents: openai-go read a comment with a blank line as an event without data, and
// openai-python does so after an id line. Both then fail. A heartbeat is therefore one line.
func TestHeartbeatsAreNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 70 * time.Millisecond // three heartbeats
		serves := strings.Replace(strings.Replace(shortIdleYAML, "idle: 50ms", "idle: 5s", 1), "responses,",
			"responses, completions, messages,", 1)
		stream := `,"stream":true`
		for _, c := range []struct {
			path, body string
			parts      []string
		}{
			{"/v1/chat/completions", chatBody("small", "Hi", stream), []string{textChunk, finishChunk, doneChunk}},
			{"/v1/completions", `{"model":"small","prompt":"Hi","stream":true}`,
				[]string{`data: {"choices":[{"index":0,"text":"x","finish_reason":"stop"}]}` + "\n\n", doneChunk}},
			{"/v1/responses", `{"model":"small","input":"Hi","stream":true}`,
				[]string{createdEvent, fmt.Sprintf(deltaEvent, 1), completedEvent}},
			{"/v1/messages", chatBody("small", "Hi", `,"max_tokens":5`+stream),
				[]string{startEvent, textEvent, stopEvents}},
		} {
			for name, parts := range map[string][]string{"": c.parts, " with id lines": withIDs(c.parts...)} {
				r := newRig(t, serves, slowStream(t, pause, parts...))
				a := r.post(c.path, c.body)
				const beat = ": keep-alive\n"
				if a.status != 200 || a.err != nil || !strings.HasPrefix(a.body, beat) ||
					strings.Count(a.body, beat) < 3*len(parts) {
					t.Errorf("%s%s: %d, %v: %q", c.path, name, a.status, a.err, a.body)
				}
				if n := emptyEvents(a.body); n > 0 {
					t.Errorf("%s%s: %d events without data: %q", c.path, name, n, a.body)
				}
				if got := strings.ReplaceAll(a.body, beat, ""); got != strings.Join(parts, "") {
					t.Errorf("%s%s: %q", c.path, name, got)
				}
			}
		}
	})
}
