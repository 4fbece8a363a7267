package prompttokens

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/workers/kvevents"
)

const (
	// DefaultLookupTimeout is the time that a request waits for the tokens of its prompt if a worker is idle. An idle
	// engine returns 10,000 tokens in it.
	DefaultLookupTimeout = 20 * time.Millisecond
	// BusyLookupTimeout is that time if all workers are busy or requests wait in the queue. The wait costs nothing then:
	// the request waits for a step of an engine or for a slot anyway. A tenth of the answers of a busy vLLM take longer.
	BusyLookupTimeout = 100 * time.Millisecond
	// DefaultBudget is enough for 14 million prompt tokens: the caches of 16 workers with 0.9 million tokens
	// each.
	DefaultBudget = 64 << 20

	// concurrency is the number of prompts that are tokenized at a time. A vLLM API server tokenizes
	// with a few threads beside its other work.
	concurrency = 8
	// maxWaiting is the number of further prompts that wait.
	maxWaiting = 64
	// maxWaitingBytes bounds the requests for the prompts that wait or are tokenized. A prompt may wait after
	// its own request has ended.
	maxWaitingBytes = 32 << 20
	// maxChain is the length at which package prompt cuts a chain: prompts with the same cut chain may
	// differ behind it.
	maxChain = 4096
)

// Config configures a Source.
type Config struct {
	LookupTimeout time.Duration // how long Lookup waits; 0 is one of the defaults
	Budget        int64         // bytes of memory for known prompts; 0 is DefaultBudget

	// Worker returns a worker of the pool that is up and has a live event stream, nil if there is
	// none. It is called once for each request to an engine.
	Worker func() Poster
	// Busy reports whether all workers are busy, or requests wait for one; nil: it is not known.
	Busy func() bool
	// Tokenizer tokenizes the prompts of completions in the gateway; nil: engines do.
	Tokenizer Encoder
	Log       *slog.Logger // nil discards
	// Recover runs a step that reads an engine's answer, and turns a panic into an error; nil: a panic ends
	// the process.
	Recover func(work string, step func() error) error
}

// Encoder tokenizes text. A *tokenizer.Tokenizer is one.
type Encoder interface {
	// EncodePrompt appends the token ids of a text to dst. special adds the tokens with which the
	// model's prompts begin or end.
	EncodePrompt(dst []uint32, text []byte, special bool) []uint32
}

// Query is the prompt of one request.
type Query struct {
	Request   *openai.Request
	Chain     []prompt.Block // of the request, as prompt.AppendChain makes it; the seed covers Salt
	Model     string         // the name that the worker receives; "" is the request's own
	Adapter   string         // the LoRA adapter that Model names; "" is none
	Salt      string         // the cache_salt that the worker receives; "" is none
	BlockSize int            // tokens of a block in the engines' caches
}

// Prompt has the keys of a prompt's known blocks.
type Prompt struct {
	// Keys are the keys of package kvindex for the blocks that an engine may have cached. The block of the
	// last token is not among them: engines always compute it.
	Keys []uint64
	// Tokens is the exact length of the prompt. It is 0 if only its beginning is known: then Keys are
	// those of the beginning.
	Tokens int64
	Form   Form // of the request, for Judge
}

// Source finds and keeps the tokens of prompts. It is safe for concurrent use.
type Source struct {
	c      Config
	memo   *memo
	ends   messageEnds
	counts counts
	ids    idBuffers
	jobs   chan *job

	// wholeUntil is the time, in Unix nanoseconds, until which messages are rendered together. It is set when
	// a prompt contradicts an earlier one.
	wholeUntil atomic.Int64
	inParts    atomic.Int64 // prompts that were rendered in parts since then

	gates [kindCount]gate
	forms forms
	pace  pace

	mu           sync.Mutex
	flights      map[uint64]*job // by the key of the last block
	waitingBytes int             // of their requests
}

// New returns a Source. It sends requests to engines while Run runs.
func New(c Config) *Source {
	if c.Budget <= 0 {
		c.Budget = DefaultBudget
	}
	if c.Worker == nil {
		c.Worker = func() Poster { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Recover == nil {
		c.Recover = func(_ string, step func() error) error { return step() }
	}
	return &Source{c: c, memo: newMemo(c.Budget), ends: messageEnds{known: make(map[messageEndKey]messageEnd)},
		jobs: make(chan *job, maxWaiting), flights: make(map[uint64]*job)}
}

// Run tokenizes prompts until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var running sync.WaitGroup
	for range concurrency {
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case j := <-s.jobs:
					// An error is a panic that Recover has logged.
					_ = s.c.Recover("tokenizing a prompt", func() error { s.resolve(ctx, j); return nil })
					s.finish(j)
				}
			}
		})
	}
	running.Wait()
}

// Lookup appends the keys of a prompt's blocks to dst. It returns at once if the tokens are known.
// Otherwise it waits for them until the lookup timeout or ctx ends; a later look-up finds them. The
// result has no keys if no part of the prompt is known.
func (s *Source) Lookup(ctx context.Context, q *Query, dst []uint64) Prompt {
	var f fields
	p, more := s.find(q, &f, dst)
	answered := more && p.Tokens == 0 && !q.Request.Media && s.await(ctx, q, &f)
	if answered {
		p = s.known(q, &f, identityOf(q), dst)
	}
	s.count(answered, p.Tokens > 0, len(p.Keys) > len(dst))
	return p
}

// count counts a look-up: whether an engine was asked and answered, and what is known of the prompt.
func (s *Source) count(answered, whole, beginning bool) {
	switch {
	case whole && answered:
		s.counts.answered.Add(1)
	case whole:
		s.counts.known.Add(1)
	case beginning:
		s.counts.beginning.Add(1)
	default:
		s.counts.unknown.Add(1)
	}
}

// Remembered is Lookup without a request to an engine and without a wait. It counts nothing.
func (s *Source) Remembered(q *Query, dst []uint64) Prompt {
	var f fields
	p, _ := s.find(q, &f, dst)
	return p
}

// find returns the known part of a prompt, and reads the request's fields into f. more reports whether an
// engine may tokenize the rest.
func (s *Source) find(q *Query, f *fields, dst []uint64) (p Prompt, more bool) {
	if q.BlockSize <= 0 {
		return Prompt{Keys: dst}, false
	}
	id := identityOf(q)
	switch ids, readable := s.read(q, f); {
	case !readable:
		return Prompt{Keys: dst}, false
	case ids != nil:
		return s.lookupIDs(ids, q.BlockSize, id, dst), false
	}
	return s.known(q, f, id, dst), true
}

// read reads the request's fields into f. readable is false for a prompt of which no tokens can be known. ids is the
// array of a prompt that is a list of token ids, nil for others.
func (s *Source) read(q *Query, f *fields) (ids []byte, readable bool) {
	r := q.Request
	if len(q.Chain) == 0 || len(q.Chain) >= maxChain {
		return nil, false
	}
	switch r.Dialect {
	case openai.Chat, openai.Completions, openai.Messages, openai.Responses:
	default:
		return nil, false
	}
	if *f = readFields(r); f.stored || s.forms.suspended(f.form) {
		return nil, false
	}
	if r.Dialect == openai.Completions {
		kind, value := promptOf(f.raw[text])
		switch kind {
		case promptIDs:
			return value, true
		case promptOther:
			return nil, false
		}
		f.raw[text] = value
	}
	return nil, true
}

// identityOf returns the identity of the request's blocks besides their tokens.
func identityOf(q *Query) identity {
	return identity{first: kvevents.ExtraKey(q.Adapter, q.Salt), each: kvevents.ExtraKey(q.Adapter)}
}

// known returns the part of the prompt that the memo has.
func (s *Source) known(q *Query, f *fields, id identity, dst []uint64) Prompt {
	n, whole := s.memo.find(q.Chain, seedOf(q, f))
	if n.of == nil {
		return Prompt{Keys: dst}
	}
	p := Prompt{Keys: n.appendKeys(dst, q.BlockSize, id, whole), Form: f.form}
	if whole {
		p.Tokens = int64(n.whole + len(n.suffix))
	}
	return p
}

// Counts are numbers since the start.
type Counts struct {
	Known     int64 // look-ups that found the whole prompt at once
	Answered  int64 // look-ups that waited and got the whole prompt
	Beginning int64 // look-ups that found the beginning of the prompt only
	Unknown   int64 // look-ups that found no part of the prompt

	TimedOut int64 // look-ups that waited until the lookup timeout, or did not because answers take longer
	Busy     int64 // look-ups that did not wait, because too many prompts were waiting

	Asked      int64 // requests to engines
	Parts      int64 // prompts of which only the new messages were sent
	Failed     int64 // prompts without an answer
	Mismatched int64 // prompts that contradict an earlier one
	Miscounted int64 // prompts of which the engine counted another number of tokens

	Bytes int64 // memory of known prompts
}

type counts struct {
	known, answered, beginning, unknown, timedOut, busy, asked, parts, failed, mismatched,
	miscounted atomic.Int64
}

// Counts returns the numbers for metrics.
func (s *Source) Counts() Counts {
	c := &s.counts
	return Counts{Known: c.known.Load(), Answered: c.answered.Load(), Beginning: c.beginning.Load(),
		Unknown: c.unknown.Load(), TimedOut: c.timedOut.Load(), Busy: c.busy.Load(), Asked: c.asked.Load(),
		Parts: c.parts.Load(), Failed: c.failed.Load(), Mismatched: c.mismatched.Load(), Miscounted: c.miscounted.Load(),
		Bytes: s.memo.size()}
}
