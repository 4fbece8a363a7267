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

// attempts are the statuses of all answers that a client got, retries included.
type attempts struct {
	mu   sync.Mutex
	seen []int
}

func (a *attempts) note(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(r)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen = append(a.seen, resp.StatusCode)
	}
	return resp, err
}

// want fails the test unless exactly these statuses came.
func (a *attempts) want(t *testing.T, statuses ...int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.seen, statuses) {
		t.Errorf("the SDK got the statuses %v, want %v", a.seen, statuses)
	}
}

// goClient returns a client of the gateway and what it saw.
func goClient(p *gateway.Process, options ...option.RequestOption) (openai.Client, *attempts) {
	seen := &attempts{}
	base := []option.RequestOption{option.WithBaseURL(p.BaseURL), option.WithAPIKey(p.APIKey),
		option.WithMiddleware(seen.note)}
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

// last returns the last of what has to have at least n.
func last[T any](t *testing.T, all []T, n int) T {
	t.Helper()
	if len(all) < n {
		t.Fatalf("only %d of at least %d came", len(all), n)
	}
	return all[len(all)-1]
}

// finish returns why a chat stream of several chunks ended: its last chunk has
// to say so.
func finish(t *testing.T, chunks []openai.ChatCompletionChunk) string {
	t.Helper()
	return last(t, last(t, chunks, 3).Choices, 1).FinishReason
}

// refused fails the test unless err is the API's with that status and code.
func refused(t *testing.T, err error, status int, code string) *openai.Error {
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

// must fails the test on an error of what it is called with.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
