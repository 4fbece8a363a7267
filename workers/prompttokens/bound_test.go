package prompttokens

import (
	"bytes"
	"context"
	"errors"

	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"tierway/http1"
)

// endless is an engine whose answers do not end. It counts the bytes that are read.
type endless struct{ read atomic.Int64 }

func (e *endless) Send(context.Context, *http1.Request) (*http1.Response, error) {
	head := strings.NewReader(`{"tokens":[1`)
	body := io.TeeReader(io.MultiReader(head, ids{}), readCounter{e})
	return &http1.Response{Status: http.StatusOK, Body: io.NopCloser(body)}, nil
}

type ids struct{}

func (ids) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(",1"), len(p)/2+1)), nil }

type readCounter struct{ *endless }

func (c readCounter) Write(p []byte) (int, error) { c.read.Add(int64(len(p))); return len(p), nil }

// TestAnswerIsBoundedByThePrompt: an engine cannot fill the gateway's memory with the tokens of short prompts.
func TestAnswerIsBoundedByThePrompt(t *testing.T) {
	for _, length := range []int{0, 100, 1 << 20, 2 << 20} {
		e := &endless{}
		s := New(Config{Worker: func() Poster { return e }})
		ids, err := s.requestTokens(t.Context(), tokenizePath, bytes.Repeat([]byte{' '}, length))
		most := min(256<<10+16*int64(length), 16<<20)
		if got := e.read.Load(); !errors.Is(err, errTooLong) || len(ids) > 0 || got > most+1 || got < most {
			t.Errorf("a body of %d bytes: %d bytes of the answer were read, of at most %d (%v)", length, got, most, err)
		}
	}
}

// TestWaitingPromptsHaveABoundInBytes: more than maxWaitingBytes of them do not wait, except one alone.
func TestWaitingPromptsHaveABoundInBytes(t *testing.T) {
	s := New(Config{})
	queued := 0
	for i := range 40 {
		q := textQuery(t, fmt.Sprint(i, strings.Repeat("word ", 400_000)))
		var f fields
		if _, more := s.find(q, &f, nil); !more {
			t.Fatal("the prompt is too long for this test")
		}
		if s.joinJob(q, &f) != nil {
			queued++
		}
	}
	if most := maxWaitingBytes / 2_000_000; queued == 0 || queued > most || s.Counts().Busy != int64(40-queued) {
		t.Errorf("%d prompts of 2 MB wait, at most %d may; %+v", queued, most, s.Counts())
	}
	for len(s.jobs) > 0 {
		s.finish(<-s.jobs)
	}
	if s.waitingBytes != 0 {
		t.Errorf("%d bytes wait after all prompts", s.waitingBytes)
	}
}
