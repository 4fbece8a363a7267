package prompttokens

import (
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

// unquote returns the text of a JSON string.
func unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	raw = raw[1 : len(raw)-1]
	b := make([]byte, len(raw)+4) // Unescape needs room for one more character
	n, _ := openai.Unescape(b, raw, 0, len(raw))
	return b[:n]
}
