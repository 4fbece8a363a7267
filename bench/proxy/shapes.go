package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Clients request the model alias, and the worker receives served. The names differ, so
	// that the gateway rewrites every body, as it does in production.
	alias  = "gpt-4o-mini"
	served = "bench-model"

	smallBytes = 400       // a short question, and a short answer
	largeBytes = 48 * 1024 // a chat with a long history
	events     = 64        // of a stream, without [DONE], if its request names no other number
)

// shape is one kind of request with the check that its answer is complete.
type shape struct {
	name  string
	body  []byte
	floor float64 // minimum ratio of the gateway's requests per second to nginx's
	pace  float64 // share of -rate that -cpu sends
	check func(body []byte) error
	vary  int // index of varyLetters letters in the body that differ in each request; 0: none
}

// varyLetters is the number of letters that make a request unique.
const varyLetters = 16

// shapes returns the measured shapes. The floors are the budget's minimum requirements.
func shapes() []shape {
	small := answer()
	same := func(body []byte) error {
		if !bytes.Equal(body, small) {
			return fmt.Errorf("the answer has %d bytes that are not the worker's %d", len(body), len(small))
		}
		return nil
	}
	return []shape{
		{name: "400 B", body: question(smallBytes, ""), floor: 0.40, pace: 1, check: same},
		{name: "48 KB", body: question(largeBytes, ""), floor: 0.70, pace: 1, check: same},
		{name: "streams", body: question(smallBytes, streamMark), floor: 0.65, check: checkStream(events)},
	}
}

// cpuShapes returns the shapes of -cpu: both chats, and streams that the worker sends as fast as it can or at a pace.
func cpuShapes() []shape {
	return append(shapes()[:2:2],
		streamShape(32, 0, 0.25),
		streamShape(256, 0, 0.1),
		streamShape(32, 10*time.Millisecond, 0.05))
}

// streamShape returns the shape of a stream with that many events, and a gap between two events.
func streamShape(events int, gap time.Duration, pace float64) shape {
	name, fields := fmt.Sprintf("streams of %d", events), fmt.Sprintf("%s%s%d\",", streamMark, eventsMark, events)
	if gap > 0 {
		name += fmt.Sprintf(", one event per %v", gap)
		fields = fmt.Sprintf("%s%s%d %v\",", streamMark, eventsMark, events, gap)
	}
	return shape{name: name, body: question(smallBytes, fields), pace: pace, check: checkStream(events)}
}

// unique returns the shape of -shared: a request of 8 KB with other letters in its middle each time.
func unique() shape {
	body := question(8*1024, "")
	return shape{name: sharedShape, body: body, check: shapes()[0].check, vary: len(body) / 2}
}

// shapeNamed returns the shape of a name.
func shapeNamed(name string) (shape, error) {
	for _, s := range slices.Concat(shapes(), cpuShapes(), []shape{unique()}, cacheShapes()) {
		if s.name == name {
			return s, nil
		}
	}
	return shape{}, fmt.Errorf("no shape is named %q", name)
}

// The marks stand before the messages, where the worker looks for them.
const (
	streamMark = `"stream":true,"stream_options":{"include_usage":true},`
	holdMark   = `"user":"hold",`
	eventsMark = `"user":"events ` // then the number of events, and optionally the gap between two
)

// question returns a chat request of size bytes with the given fields before its messages.
func question(size int, fields string) []byte {
	head := `{"model":"` + alias + `",` + fields + `"messages":[{"role":"user","content":"`
	const tail = `"}]}`
	fill := max(size-len(head)-len(tail), 1)
	words := strings.Repeat("the gateway relays what it is asked ", fill/36+1)
	return []byte(head + words[:fill] + tail)
}

// answer returns the worker's answer to a request that does not stream.
func answer() []byte {
	head := `{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"` + served +
		`","choices":[{"index":0,"message":{"role":"assistant","content":"`
	const tail = `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":90,"completion_tokens":40,"total_tokens":130}}`
	return []byte(head + strings.Repeat("x", smallBytes-len(head)-len(tail)) + tail)
}

// stream returns the events of the worker's streamed answer: content, the finish reason, usage
// and [DONE].
func stream(events int) []string {
	const head = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"` + served +
		`",`
	list := make([]string, 0, events+1)
	for i := range events - 2 {
		list = append(list, head+`"choices":[{"index":0,"delta":{"content":" word`+strconv.Itoa(i)+
			`"},"finish_reason":null}]}`+"\n\n")
	}
	return append(list,
		head+`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n",
		head+`"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":62,"total_tokens":152}}`+"\n\n",
		"data: [DONE]\n\n")
}

// checkStream returns a check of a stream: all events and the end must be there.
func checkStream(events int) func(body []byte) error {
	return func(body []byte) error {
		if n := bytes.Count(body, []byte("data: ")); n != events+1 {
			return fmt.Errorf("the stream has %d events, not %d", n, events+1)
		}
		if !bytes.HasSuffix(body, []byte("data: [DONE]\n\n")) {
			return errors.New("the stream does not end with [DONE]")
		}
		return nil
	}
}

// httpRequest returns the bytes of a request on the wire.
func httpRequest(host, key string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n", host, key, len(body))
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}
