package sdk_test

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"tierway/e2e/gateway"
)

// attempts holds the statuses of all responses to a client, including those before retries.
type attempts struct {
	mu   sync.Mutex
	seen []int
}

func (a *attempts) record(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(r)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen = append(a.seen, resp.StatusCode)
	}
	return resp, err
}

// check fails the test unless the statuses are exactly these.
func (a *attempts) check(t *testing.T, statuses ...int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.seen, statuses) {
		t.Errorf("the SDK got the statuses %v, want %v", a.seen, statuses)
	}
}

// goClient returns a client of the gateway and the statuses of its responses.
func goClient(p *gateway.Process, options ...option.RequestOption) (openai.Client, *attempts) {
	seen := &attempts{}
	base := []option.RequestOption{option.WithBaseURL(p.BaseURL), option.WithAPIKey(p.APIKey),
		option.WithMiddleware(seen.record)}
	return openai.NewClient(append(base, options...)...), seen
}

func chatOf(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// collect reads a stream to its end.
func collect[T any](s *ssestream.Stream[T]) (all []T, err error) {
	for s.Next() {
		all = append(all, s.Current())
	}
	return all, errors.Join(s.Err(), s.Close())
}

// last returns the last element. The test fails unless there are at least n.
func last[T any](t *testing.T, all []T, n int) T {
	t.Helper()
	if len(all) < n {
		t.Fatalf("only %d of at least %d came", len(all), n)
	}
	return all[len(all)-1]
}

// finish returns the finish_reason in the last chunk of a chat stream of several chunks.
func finish(t *testing.T, chunks []openai.ChatCompletionChunk) string {
	t.Helper()
	return last(t, last(t, chunks, 3).Choices, 1).FinishReason
}

// checkAPIError fails the test unless err is an API error with a status and a code.
func checkAPIError(t *testing.T, err error, status int, code string) *openai.Error {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want an API error %d %s", err, err, status, code)
	}
	if e.StatusCode != status || e.Code != code {
		t.Errorf("got an API error %d %q, want %d %q", e.StatusCode, e.Code, status, code)
	}
	return e
}

// must returns a function that returns its value and fails the test on an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
