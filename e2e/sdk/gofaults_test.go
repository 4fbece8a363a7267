package sdk_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"tierway/engines"
)

// goOnFaults sends requests to each faulty model with openai-go.
func goOnFaults(t *testing.T) tally {
	f := startFaulty(t)
	all := map[string]func(*testing.T, *faulty){
		"Retry-After is obeyed":                  goObeysRetryAfter,
		"x-should-retry false means one attempt": goTriesOnce,
		"errors have their status":               goStatuses,
		"broken streams are errors":              goBrokenStreams,
		"odd streams arrive whole":               goOddStreams,
		"heartbeats do not disturb":              goHeartbeats,
		"a background response is cancelled":     goCancels,
		"embeddings are the same as straight":    goEmbeddings,
	}
	for name, do := range all {
		t.Run(name, func(t *testing.T) { do(t, f) })
	}
	return tally{ran: len(all)}
}

func goObeysRetryAfter(t *testing.T, f *faulty) {
	for model, first := range map[string]int{"later": http.StatusTooManyRequests, "busy": http.StatusServiceUnavailable} {
		c, seen := goClient(f.Process)
		must[*openai.ChatCompletion](t)(c.Chat.Completions.New(t.Context(), chatOf(model, hello)))
		seen.check(t, first, http.StatusOK)
		// Had the SDK come early, the resting worker would not have been asked.
		if n := f.chaos[model].Stats().Requests; n != 2 {
			t.Errorf("%s: the worker was asked %d times, want 2", model, n)
		}
	}
}

func goTriesOnce(t *testing.T, f *faulty) {
	c, seen := goClient(f.Process)
	_, err := c.Chat.Completions.New(t.Context(), chatOf("never", hello))
	e := checkAPIError(t, err, http.StatusBadGateway, "worker_auth_failed")
	if got := e.Response.Header.Get("X-Should-Retry"); got != "false" {
		t.Errorf("x-should-retry is %q", got)
	}
	seen.check(t, http.StatusBadGateway)
}

func goStatuses(t *testing.T, f *faulty) {
	c, _ := goClient(f.Process, option.WithMaxRetries(0))
	for model, want := range map[string]struct {
		status int
		code   string
	}{
		"limited": {http.StatusTooManyRequests, "rate_limit_exceeded"},
		"broken":  {http.StatusBadGateway, "worker_error"},
		"empty":   {http.StatusBadGateway, "worker_protocol"},
		"html":    {http.StatusBadGateway, "worker_protocol"},
		"cut":     {http.StatusBadGateway, "worker_error"},
	} {
		_, err := c.Chat.Completions.New(t.Context(), chatOf(model, hello))
		checkAPIError(t, err, want.status, want.code)
	}
	_, err := c.Chat.Completions.New(t.Context(), chatOf("json-error", hello))
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode < 400 {
		t.Errorf("an error with status 200 gives %v", err)
	}
	_, err = collect(c.Chat.Completions.NewStreaming(t.Context(), chatOf("error-first", hello)))
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != http.StatusBadRequest {
		t.Errorf("an error as a stream's first event gives %v", err)
	}
}

func goBrokenStreams(t *testing.T, f *faulty) {
	c, _ := goClient(f.Process)
	for _, model := range []string{"error-midway", "cut", "reset", "truncated"} {
		chunks, err := collect(c.Chat.Completions.NewStreaming(t.Context(), chatOf(model, hello)))
		if e := (*ssestream.StreamError)(nil); len(chunks) == 0 || !errors.As(err, &e) {
			t.Errorf("%s: %d chunks, then %v (%T), want a StreamError", model, len(chunks), err, err)
		}
	}
	if _, err := collect(c.Chat.Completions.NewStreaming(t.Context(), chatOf("slow-error", hello))); err == nil {
		t.Error("an error after heartbeats ended the stream as if it were whole")
	}
	events, err := collect(c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
		Model: "truncated", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(hello)}}))
	if err == nil {
		t.Errorf("a truncated responses stream gave no error after %d events", len(events))
	}
}

func goOddStreams(t *testing.T, f *faulty) {
	c, _ := goClient(f.Process)
	for _, model := range []string{"good", "crlf", "bytewise", "batched", "commented", "null-error", "no-done"} {
		chunks, err := collect(c.Chat.Completions.NewStreaming(t.Context(), chatOf(model, hello)))
		if err != nil {
			t.Errorf("%s: %v after %d chunks", model, err, len(chunks))
		} else if got := finish(t, chunks); got != "stop" {
			t.Errorf("%s: the finish reason is %q", model, got)
		}
	}
}

func goHeartbeats(t *testing.T, f *faulty) {
	c, _ := goClient(f.Process)
	for _, model := range []string{"slow", "identified"} {
		chunks := must[[]openai.ChatCompletionChunk](t)(collect(c.Chat.Completions.NewStreaming(t.Context(),
			chatOf(model, hello))))
		if got := finish(t, chunks); got != "stop" || len(chunks[0].Choices) == 0 {
			t.Errorf("%s: the finish reason is %q, the first chunk %s", model, got, chunks[0].RawJSON())
		}
	}
	must[*openai.ChatCompletion](t)(c.Chat.Completions.New(t.Context(), chatOf("slow", hello)))
}

func goCancels(t *testing.T, f *faulty) {
	c, _ := goClient(f.Process)
	made := must[*responses.Response](t)(c.Responses.New(t.Context(),
		responses.ResponseNewParams{Model: "held", Background: openai.Bool(true),
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(hello)}}))
	must[*responses.Response](t)(c.Responses.Cancel(t.Context(), made.ID))
	if got := must[*responses.Response](t)(c.Responses.Get(t.Context(), made.ID,
		responses.ResponseGetParams{})); got.Status != "cancelled" {
		t.Errorf("the status after cancelling is %s", got.Status)
	}
}

func goEmbeddings(t *testing.T, f *faulty) {
	c, _ := goClient(f.Process)
	params := openai.EmbeddingNewParams{Model: "good"}
	params.Input.OfString = openai.String(hello)
	through := last(t, must[*openai.CreateEmbeddingResponse](t)(c.Embeddings.New(t.Context(), params)).Data, 1).Embedding
	direct, err := engines.Start(f.chaos["good"], "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Kill()
	straight := openai.NewClient(option.WithBaseURL(direct.URL+"/v1"), option.WithAPIKey("unused"))
	want := last(t, must[*openai.CreateEmbeddingResponse](t)(straight.Embeddings.New(t.Context(), params)).Data,
		1).Embedding
	if !slices.Equal(through, want) {
		t.Error("a vector through the gateway is another than straight from its worker")
	}
}
