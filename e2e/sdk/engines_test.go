package sdk_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"tierway/engines"
)

const heldAnswer = "One two three four five six seven."

// engineClient returns a client that is connected directly to a simulated engine. The engine's
// answers pause after four tokens until goOn is called.
func engineClient(t *testing.T) (c openai.Client, goOn func()) {
	t.Helper()
	release := make(chan struct{})
	e := engines.New(engines.Config{Model: "m", Script: func(string, []byte) engines.Script {
		return engines.Script{Text: heldAnswer, HoldAfter: 4, Release: release}
	}})
	t.Cleanup(e.Close)
	return openai.NewClient(option.WithBaseURL(startEngine(t, e)+"/v1"), option.WithAPIKey("unused")),
		func() { close(release) }
}

func backgroundParams() responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "m", Background: param.NewOpt(true),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(hello)}}
}

// TestSimulatedEnginesResumeResponses disconnects in the middle of a background stream, polls it,
// resumes it and compares both parts with the whole.
func TestSimulatedEnginesResumeResponses(t *testing.T) {
	t.Parallel()
	c, goOn := engineClient(t)
	stream := c.Responses.NewStreaming(t.Context(), backgroundParams())
	var seen []responses.ResponseStreamEventUnion
	for said(seen) != "One two three fo" && stream.Next() { // four tokens
		seen = append(seen, stream.Current())
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	id, after := seen[0].Response.ID, seen[len(seen)-1].SequenceNumber
	polled := must[*responses.Response](t)(c.Responses.Get(t.Context(), id, responses.ResponseGetParams{}))
	if begun := seen[0].Response.Status; begun != responses.ResponseStatusQueued ||
		polled.Status != responses.ResponseStatusInProgress {
		t.Errorf("it begins %s and goes on %s", begun, polled.Status)
	}
	rest := c.Responses.GetStreaming(t.Context(), id, responses.ResponseGetParams{StartingAfter: openai.Int(after)},
		option.WithQuery("stream", "true")) // openai-go asks for the stream in a body, where a GET has none
	goOn()
	all := append(seen, must[[]responses.ResponseStreamEventUnion](t)(collect(rest))...)
	for i, event := range all {
		if event.SequenceNumber != int64(i) {
			t.Fatalf("event %d is %s", i, event.RawJSON())
		}
	}
	if end := last(t, all, 2); end.Type != "response.completed" || end.Response.OutputText() != said(all) ||
		said(all) != heldAnswer {
		t.Errorf("both parts say %q, the end is %s", said(all), end.RawJSON())
	}
}

// said returns the text of a stream's events.
func said(events []responses.ResponseStreamEventUnion) string {
	var b strings.Builder
	for _, event := range events {
		if event.Type == "response.output_text.delta" {
			b.WriteString(event.Delta)
		}
	}
	return b.String()
}

// TestSimulatedEnginesCancelResponses cancels a background stream that is being read.
func TestSimulatedEnginesCancelResponses(t *testing.T) {
	t.Parallel()
	c, _ := engineClient(t)
	stream := c.Responses.NewStreaming(t.Context(), backgroundParams())
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	id := stream.Current().Response.ID
	got := must[*responses.Response](t)(c.Responses.Cancel(t.Context(), id))
	events := must[[]responses.ResponseStreamEventUnion](t)(collect(stream))
	if end := last(t, events, 2); got.Status != responses.ResponseStatusCancelled || end.Type != "response.failed" ||
		end.Response.Status != responses.ResponseStatusCancelled {
		t.Errorf("cancelled as %s, the stream ends with %s", got.Status, end.RawJSON())
	}
	_, err := c.Responses.Cancel(t.Context(), "resp_unknown")
	checkAPIError(t, err, http.StatusNotFound, "404")
}
