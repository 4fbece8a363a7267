package prompttokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tierway/http1"
	"tierway/openai"
)

// slowEngine answers after a time with one token for each byte of the body.
type slowEngine struct {
	time  time.Duration
	calls atomic.Int64
}

func (e *slowEngine) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	e.calls.Add(1)
	select {
	case <-time.After(e.time):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ids := strings.TrimSuffix(strings.Repeat("1,", len(r.Body[0])), ",")
	body := io.NopCloser(bytes.NewReader([]byte(`{"tokens":[` + ids + `]}`)))
	return &http1.Response{Status: http.StatusOK, Body: body}, nil
}

func textQuery(t testing.TB, text string) *Query {
	return query(t, openai.Completions, object{"model": "m", "prompt": text})
}

// run runs a source inside a bubble; stop ends it.
func run(c Config) (s *Source, stop func()) {
	s = New(c)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.Run(ctx) })
	return s, func() { cancel(); done.Wait() }
}

func TestALookupWaitsForTheTimeoutAndLaterOnesFindTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowEngine{time: 2 * DefaultLookupTimeout}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		q := textQuery(t, long(1, 20))
		began := time.Now()
		if p := s.Lookup(t.Context(), q, nil); p.Tokens != 0 || len(p.Keys) != 0 {
			t.Errorf("%+v before the engine has answered", p)
		}
		if waited := time.Since(began); waited != DefaultLookupTimeout {
			t.Errorf("waited %v", waited)
		}
		time.Sleep(w.time)
		if p := s.Lookup(t.Context(), q, nil); p.Tokens == 0 {
			t.Error("the answer was not kept")
		}
		if c := s.Counts(); c.TimedOut != 1 || c.Known != 1 || w.calls.Load() != 1 {
			t.Errorf("%+v after %d calls", c, w.calls.Load())
		}
	})
}

func TestEqualPromptsAreTokenizedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowEngine{time: time.Millisecond}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		var all sync.WaitGroup
		for range 16 {
			q := textQuery(t, long(1, 20))
			all.Go(func() {
				if p := s.Lookup(t.Context(), q, nil); p.Tokens == 0 {
					t.Error("not known")
				}
			})
		}
		all.Wait()
		if n := w.calls.Load(); n != 1 {
			t.Errorf("%d requests to the engine", n)
		}
	})
}

func TestARequestThatEndsDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowEngine{time: time.Second}
		s, stop := run(Config{Worker: func() Poster { return w }, LookupTimeout: time.Minute})
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if p := s.Lookup(ctx, textQuery(t, "a"), nil); p.Tokens != 0 || time.Since(began) != time.Millisecond {
			t.Errorf("%+v after %v", p, time.Since(began))
		}
	})
}

func TestMorePromptsThanTheLimitDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowEngine{time: time.Second}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		var all sync.WaitGroup
		for i := range concurrency {
			all.Go(func() { s.Lookup(t.Context(), textQuery(t, long(i, 20)), nil) })
		}
		synctest.Wait() // all goroutines are busy
		for i := range maxWaiting + 10 {
			all.Go(func() { s.Lookup(t.Context(), textQuery(t, long(concurrency+i, 20)), nil) })
		}
		all.Wait()
		if c := s.Counts(); c.Busy != 10 || c.TimedOut != concurrency+maxWaiting {
			t.Errorf("%+v", c)
		}
	})
}

func TestAnEndpointThatIsMissingIsAskedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &counting{Poster: &templateEngine{status: http.StatusNotFound}}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		for i := range 10 {
			s.Lookup(t.Context(), textQuery(t, long(i, 20)), nil)
			s.Lookup(t.Context(), query(t, openai.Chat, object{"model": "m", "truncate_prompt_tokens": 9,
				"messages": []object{say("user", long(i, 20))}}), nil)
		}
		if paths, _ := w.taken(); fmt.Sprint(paths) != "[/tokenize /tokenize "+
			"/v1/chat/completions/render /v1/chat/completions/render]" {
			t.Error(paths) // each path gets the prompt and a probe
		}
		time.Sleep(retryUnsupported)
		s.Lookup(t.Context(), textQuery(t, "a"), nil)
		if paths, _ := w.taken(); len(paths) != 2 {
			t.Error(paths)
		}
	})
}

// TestAnEngineThatRefusesAllChatsIsAskedOnceAMinute: its texts are still tokenized.
func TestAnEngineThatRefusesAllChatsIsAskedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		textsOnly := func(*chat, bool) (string, bool) { return "", false }
		w := &counting{Poster: &templateEngine{render: textsOnly, tokens: words}}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		for i := range 3 * refusedInARow {
			messages := []object{say("user", long(i, 20))}
			s.Lookup(t.Context(), query(t, openai.Chat, object{"model": "m", "messages": messages}), nil)
		}
		if paths, _ := w.taken(); len(paths) != refusedInARow+1 { // one is the probe
			t.Errorf("%d requests", len(paths))
		}
		if p := s.Lookup(t.Context(), textQuery(t, "a"), nil); p.Tokens == 0 {
			t.Error("texts are tokenized")
		}
	})
}

// TestRefusedChatsOfOneClientDoNotAffectOthers: an engine may refuse any number of wrong chats.
func TestRefusedChatsOfOneClientDoNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onlyUsers := func(c *chat, begin bool) (string, bool) {
			text, _ := marked(c, begin)
			return text, c.Messages[0].Role == "user"
		}
		w := &templateEngine{render: onlyUsers, tokens: words}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		for i := range 3 * refusedInARow {
			messages := []object{say("critic", long(i, 20))}
			s.Lookup(t.Context(), query(t, openai.Chat, object{"model": "m", "messages": messages}), nil)
		}
		messages := []object{say("user", long(0, 20))}
		if p := s.Lookup(t.Context(), query(t, openai.Chat, object{"model": "m", "messages": messages}), nil); p.Tokens == 0 {
			t.Error("a right chat is not tokenized")
		}
	})
}

func TestWithoutAWorkerNothingIsKnown(t *testing.T) {
	s, stop := run(Config{LookupTimeout: time.Minute})
	defer goleak.VerifyNone(t)
	defer stop()
	if p := s.Lookup(t.Context(), textQuery(t, "a"), nil); p.Tokens != 0 || s.Counts().Failed != 1 {
		t.Errorf("%+v, %+v", p, s.Counts())
	}
}

// TestImagesAndOtherDialectsAreNotTokenized: a request with an image gets the keys of the messages before it,
// if they are known.
func TestImagesAndOtherDialectsAreNotTokenized(t *testing.T) {
	w := &counting{Poster: &templateEngine{render: marked, tokens: words}}
	s := source(w)
	beginning := []object{say("system", long(1, 200)), say("user", "hello"), say("assistant", "yes?")}
	first := query(t, openai.Chat, object{"model": "m", "messages": beginning[:2]})
	tokens := tokenize(t, w.Poster, first)
	lookup(t, s, first)
	w.taken()
	image := object{"role": "user", "content": []object{{"type": "image_url", "image_url": object{"url": "data:,"}}}}
	q := query(t, openai.Chat, object{"model": "m", "messages": append(beginning, image)})
	p := lookup(t, s, q)
	if p.Tokens != 0 || len(p.Keys) < len(tokens)/blockSize-1 {
		t.Errorf("%d tokens and %d keys", p.Tokens, len(p.Keys))
	}
	check(t, first, Prompt{Keys: p.Keys}, tokens)
	for _, q := range []*Query{
		query(t, openai.Embeddings, object{"model": "m", "input": "hello"}),
		query(t, openai.Completions, object{"model": "m", "prompt": []string{"a", "b"}}),
		query(t, openai.Completions, object{"model": "m", "prompt": [][]int{{1}, {2}}}),
	} {
		if p := lookup(t, s, q); p.Tokens != 0 || len(p.Keys) != 0 {
			t.Errorf("%v: %+v", q.Request.Dialect, p)
		}
	}
	if paths, _ := w.taken(); len(paths) > 0 {
		t.Error(paths)
	}
}

// failing is a Poster that fails all requests.
type failing struct{}

func (failing) Send(context.Context, *http1.Request) (*http1.Response, error) {
	return nil, errors.New("connection refused")
}

func TestAFailedAnswerIsAskedAgain(t *testing.T) {
	var w Poster = failing{}
	s := New(Config{LookupTimeout: time.Minute, Worker: func() Poster { return w }})
	q := query(t, openai.Chat, object{"model": "m", "messages": []object{say("user", long(1, 50))}})
	if p := lookup(t, s, q); p.Tokens != 0 || s.Counts().Failed != 1 {
		t.Errorf("%+v, %+v", p, s.Counts())
	}
	w = &templateEngine{render: marked, tokens: words}
	if p := lookup(t, s, q); p.Tokens == 0 {
		t.Errorf("%+v", s.Counts())
	}
}

// TestALookupWaitsLongerWhileAllWorkersAreBusy: the request would wait for one anyway.
func TestALookupWaitsLongerWhileAllWorkersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowEngine{time: BusyLookupTimeout - time.Millisecond}
		s, stop := run(Config{Worker: func() Poster { return w }, Busy: func() bool { return true }})
		defer stop()
		if p := s.Lookup(t.Context(), textQuery(t, long(1, 20)), nil); p.Tokens == 0 || s.Counts().TimedOut > 0 {
			t.Errorf("%+v, %+v", p, s.Counts())
		}
	})
}

// TestNoLookupWaitsForAnswersThatComeTooLate: they are measured and kept all the same, and a configured time applies.
func TestNoLookupWaitsForAnswersThatComeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowEngine{time: 2 * DefaultLookupTimeout}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		waited := func(number int) time.Duration {
			began := time.Now()
			s.Lookup(t.Context(), textQuery(t, long(number, 20)), nil)
			waited := time.Since(began)
			time.Sleep(time.Second)
			return waited
		}
		for i := range paceLeast {
			if n := waited(i); n != DefaultLookupTimeout {
				t.Fatalf("look-up %d waits %v", i, n)
			}
		}
		if n := waited(paceLeast); n != 0 || s.Counts().TimedOut != paceLeast+1 {
			t.Errorf("after %d late answers a look-up waits %v; %+v", paceLeast, n, s.Counts())
		}
		if p := s.Lookup(t.Context(), textQuery(t, long(paceLeast, 20)), nil); p.Tokens == 0 {
			t.Error("the answer for which no look-up waited was not kept")
		}
		w.time = time.Millisecond
		for i := range paceMemory {
			waited(100 + i)
		}
		if n := waited(200); n != time.Millisecond {
			t.Errorf("after %d answers in time a look-up waits %v", paceMemory, n)
		}
	})
}
