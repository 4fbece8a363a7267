package prompttokens

import (
	"context"
	"sync"

	"tierway/openai"
	"tierway/routing/kvindex"
)

// idBuffers are buffers for the ids of prompts that clients have tokenized.
type idBuffers struct{ pool sync.Pool }

func (b *idBuffers) get() *[]uint32 {
	if ids, ok := b.pool.Get().(*[]uint32); ok {
		return ids
	}
	return new([]uint32)
}

// lookupIDs returns the keys of a prompt that is a list of token ids.
func (s *Source) lookupIDs(array []byte, size int, id identity, dst []uint64) Prompt {
	buffer := s.ids.get()
	defer s.ids.pool.Put(buffer)
	ids, ok := appendIDs((*buffer)[:0], array)
	*buffer = ids
	if !ok || len(ids) == 0 {
		return Prompt{Keys: dst}
	}
	root := kvindex.Root("", size)
	return Prompt{Keys: id.appendKeys(dst, root, size, ids[:len(ids)-1], true), Tokens: int64(len(ids))}
}

func unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	raw = raw[1 : len(raw)-1]
	b := make([]byte, len(raw)+4) // Unescape needs room for one more character
	n, _ := openai.Unescape(b, raw, 0, len(raw))
	return b[:n]
}

// Tokens are the known tokens of a prompt.
type Tokens struct {
	IDs   []uint32 // of the prompt, or of its beginning
	Whole bool     // IDs are the whole prompt
	// Repeated is the number of leading tokens that an earlier request had; for a list of token ids it is 0.
	Repeated int
	Form     Form // of the request, for Judge
}

// LookupTokens is Lookup for the tokens themselves, which it appends to dst. Without ask, no engine is asked and
// nothing is counted.
func (s *Source) LookupTokens(ctx context.Context, q *Query, ask bool, dst []uint32) Tokens {
	var f fields
	array, readable := s.read(q, &f)
	t := Tokens{IDs: dst}
	answered := false
	switch {
	case array != nil:
		if ids, ok := appendIDs(dst, array); ok && len(ids) > len(dst) {
			t.IDs, t.Whole = ids, true
		}
	case readable:
		t = s.knownTokens(q, &f, dst)
		t.Repeated = len(t.IDs) - len(dst)
		if ask && !t.Whole && !q.Request.Media && s.await(ctx, q, &f) {
			repeated := t.Repeated
			t, answered = s.knownTokens(q, &f, dst), true
			t.Repeated = repeated
		}
	}
	if ask {
		s.count(answered, t.Whole, len(t.IDs) > len(dst))
	}
	return t
}

// knownTokens appends the tokens that the memo has of the prompt.
func (s *Source) knownTokens(q *Query, f *fields, dst []uint32) Tokens {
	n, whole := s.memo.find(q.Chain, seedOf(q, f))
	t := Tokens{IDs: dst, Whole: whole && n.of != nil, Form: f.form}
	switch {
	case n.of == nil:
	case whole:
		t.IDs = append(append(dst, n.of.tokens[:n.whole]...), n.suffix...)
	default:
		t.IDs = append(dst, n.of.tokens[:n.tokens]...)
	}
	return t
}
