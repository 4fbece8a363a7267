package answers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"tierway/openai"
)

// replaying answers every request of a client with a kept content.
type replaying struct{ *Replay }

func (r replaying) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	kind, answer := "application/json", r.AppendWhole(nil)
	if bytes.Contains(body, []byte(`"stream":true`)) {
		kind, answer = "text/event-stream", r.AppendStream(nil)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}},
		Body: io.NopCloser(bytes.NewReader(answer)), Request: req}, nil
}

// replayOf returns a replay with a reasoning.
func replayOf(d openai.Dialect) *Replay {
	finish := map[openai.Dialect]string{openai.Messages: "end_turn", openai.Responses: "completed"}[d]
	if finish == "" {
		finish = "stop"
	}
	c := &Content{Model: "m", Text: "a \"b\"\n ä", Reasoning: "why", Signature: "sig", Finish: finish,
		Usage: usageOf(d, 9, 4)}
	if d == openai.Chat {
		c.Names = "reasoning_content"
	}
	return &Replay{Dialect: d, Content: c, ID: "00000000000000000000000000000001", Created: time.Unix(5, 0), Usage: true}
}

// TestOfficialClientsReadReplays: openai-go reads kept answers of its three dialects, whole and as streams (C3).
func TestOfficialClientsReadReplays(t *testing.T) {
	const text = "a \"b\"\n ä"
	ctx := context.Background()
	client := func(d openai.Dialect) openaigo.Client {
		return openaigo.NewClient(option.WithAPIKey("k"), option.WithBaseURL("http://gateway/v1"),
			option.WithHTTPClient(&http.Client{Transport: replaying{replayOf(d)}}))
	}
	chat := openaigo.ChatCompletionNewParams{Model: "m", Messages: []openaigo.ChatCompletionMessageParamUnion{
		openaigo.UserMessage("hi")}}
	c := client(openai.Chat)
	whole, err := c.Chat.Completions.New(ctx, chat)
	if err != nil || whole.Choices[0].Message.Content != text || whole.Choices[0].FinishReason != "stop" ||
		whole.Usage.TotalTokens != 13 || whole.Created != 5 {
		t.Errorf("chat: %v %+v", err, whole)
	}
	var sum openaigo.ChatCompletionAccumulator
	stream := c.Chat.Completions.NewStreaming(ctx, chat)
	for stream.Next() {
		sum.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil || sum.Choices[0].Message.Content != text ||
		sum.Choices[0].FinishReason != "stop" || sum.Usage.TotalTokens != 13 {
		t.Errorf("chat stream: %v %+v", err, sum)
	}

	prompt := openaigo.CompletionNewParams{Model: "m", Prompt: openaigo.CompletionNewParamsPromptUnion{
		OfString: openaigo.String("hi")}}
	c = client(openai.Completions)
	got, err := c.Completions.New(ctx, prompt)
	if err != nil || got.Choices[0].Text != text || got.Usage.TotalTokens != 13 {
		t.Errorf("completions: %v %+v", err, got)
	}
	written := ""
	parts := c.Completions.NewStreaming(ctx, prompt)
	for parts.Next() {
		for _, choice := range parts.Current().Choices {
			written += choice.Text
		}
	}
	if parts.Err() != nil || written != text {
		t.Errorf("completions stream: %v %q", parts.Err(), written)
	}

	input := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{
		OfString: openaigo.String("hi")}}
	c = client(openai.Responses)
	if got, err := c.Responses.New(ctx, input); err != nil || got.OutputText() != text || got.Status != "completed" ||
		got.Usage.TotalTokens != 13 {
		t.Errorf("responses: %v %+v", err, got)
	}
	written, ended := "", ""
	events := c.Responses.NewStreaming(ctx, input)
	for events.Next() {
		switch ev := events.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			written += ev.Delta
		case responses.ResponseCompletedEvent:
			ended = ev.Response.OutputText()
		}
	}
	if events.Err() != nil || written != text || ended != text {
		t.Errorf("responses stream: %v %q %q", events.Err(), written, ended)
	}
}
