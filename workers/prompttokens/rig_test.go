package prompttokens

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"tierway/engines"
	"tierway/http1"
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
)

const blockSize = 16

// engine returns the address of a simulated engine.
func engine(t testing.TB, context int) (address string) {
	t.Helper()
	e := engines.New(engines.Config{Model: "m", Context: context})
	s, err := engines.Start(e, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); e.Close() }) // the test is over
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// counting is a Poster that records the paths and sizes of requests.
type counting struct {
	Poster
	mu    sync.Mutex
	paths []string
	bytes int
}

func (c *counting) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	c.mu.Lock()
	c.paths = append(c.paths, r.Path)
	for _, piece := range r.Body {
		c.bytes += len(piece)
	}
	c.mu.Unlock()
	return c.Poster.Send(ctx, r)
}

// taken returns the paths since the last call, and the bytes of their bodies.
func (c *counting) taken() (paths []string, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	paths, bytes = c.paths, c.bytes
	c.paths, c.bytes = nil, 0
	return paths, bytes
}

// recording is a Poster that keeps the first body.
type recording struct {
	Poster
	first []byte
}

func (r *recording) Send(ctx context.Context, q *http1.Request) (*http1.Response, error) {
	if r.first == nil {
		r.first = slices.Concat(q.Body...)
	}
	return r.Poster.Send(ctx, q)
}

func client(t testing.TB, address string) *counting {
	c := http1.New(http1.Config{Network: "tcp", Address: address, Host: address,
		Dial: new(net.Dialer).DialContext})
	t.Cleanup(c.Close)
	return &counting{Poster: c}
}

// source returns a source without Run: the test runs its jobs.
func source(w Poster) *Source {
	return New(Config{LookupTimeout: time.Minute, Worker: func() Poster { return w }}) // no look-up gives up
}

// lookup looks a prompt up. If the prompt must be tokenized, its job has ended before lookup returns.
func lookup(t testing.TB, s *Source, q *Query) Prompt {
	t.Helper()
	result := make(chan Prompt, 1)
	go func() { result <- s.Lookup(t.Context(), q, nil) }()
	select {
	case p := <-result:
		return p
	case j := <-s.jobs:
		s.resolve(t.Context(), j)
		s.finish(j)
		return <-result
	}
}

// remembered returns the part of a prompt that a source has in its memory.
func remembered(s *Source, q *Query) Prompt {
	f := readFields(q.Request)
	id := identity{kvevents.ExtraKey(q.Adapter, q.Salt), kvevents.ExtraKey(q.Adapter)}
	return s.known(q, &f, id, nil)
}

// tokenize returns the tokens of a request from an engine, independently of a source.
func tokenize(t testing.TB, w Poster, q *Query) []uint32 {
	t.Helper()
	path := map[openai.Dialect]string{openai.Chat: "/v1/chat/completions/render",
		openai.Completions: "/v1/completions/render"}[q.Request.Dialect]
	resp, err := w.Send(t.Context(), &http1.Request{Method: "POST", Path: path, Body: [][]byte{q.Request.Body},
		Header: http.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it was only read
	var many []struct {
		TokenIDs []uint32 `json:"token_ids"`
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer[0] == '{' {
		answer = slices.Concat([]byte("["), answer, []byte("]"))
	}
	if err := json.Unmarshal(answer, &many); err != nil || resp.Status != http.StatusOK {
		t.Fatalf("%d %v: %s", resp.Status, err, answer)
	}
	return many[0].TokenIDs
}

// query is a Query of a body.
func query(t testing.TB, d openai.Dialect, body any) *Query {
	t.Helper()
	raw, ok := body.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	r, err := openai.Parse(d, raw)
	if err != nil {
		t.Fatal(err)
	}
	q := &Query{Request: r, BlockSize: blockSize, Salt: r.CacheSalt}
	q.Chain, _ = prompt.AppendChain(nil, r, xxhash.Sum64String(q.Salt))
	return q
}

// failer is a test or a case of a property.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// keysOf returns the keys of a prompt's tokens, from the definition.
func keysOf(q *Query, tokens []uint32) []uint64 {
	return kvindex.AppendKeys(nil, kvindex.Root("", q.BlockSize), q.BlockSize, tokens[:len(tokens)-1],
		[]uint64{kvevents.ExtraKey(q.Adapter, q.Salt)}, kvevents.ExtraKey(q.Adapter))
}

// check checks that a result is the prompt with these tokens, or the beginning of it.
func check(t failer, q *Query, got Prompt, tokens []uint32) {
	t.Helper()
	want := keysOf(q, tokens)
	switch {
	case got.Tokens > 0 && (got.Tokens != int64(len(tokens)) || !slices.Equal(got.Keys, want)):
		t.Fatalf("%d tokens and %d keys, not %d and %d", got.Tokens, len(got.Keys), len(tokens), len(want))
	case len(got.Keys) > len(want) || !slices.Equal(got.Keys, want[:len(got.Keys)]):
		t.Fatalf("%d keys are not the first of %d", len(got.Keys), len(want))
	}
}
