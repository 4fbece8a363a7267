// Package prompttokens knows the tokens of a request's prompt, and with them the keys by which
// package kvindex finds the workers that have its blocks in their KV caches.
//
// A [Source] serves one pool. Its tokens come from the engines of the pool:
//
//	s := prompttokens.New(prompttokens.Config{Worker: pick})
//	go s.Run(ctx)
//	…
//	p := s.Lookup(ctx, &prompttokens.Query{Request: r, Chain: chain, BlockSize: 16}, keys[:0])
//	index.Overlap(p.Keys, &matches)
//
// # What a look-up returns
//
// The keys of the whole prompt, if its tokens are known or arrive within the lookup timeout. The
// keys of its longest known beginning otherwise: earlier turns of the chat, or a system message that
// other chats share. Nothing, if no part is known. An answer after the timeout serves later
// look-ups, such as the next turn.
//
// Chats and completions have tokens, all other dialects none. A prompt of token ids needs no engine.
// Messages before an image have keys, messages behind it none.
//
// # Where tokens come from
//
// POST /tokenize renders and tokenizes a chat as the engine itself does. A request that uses a field
// that /tokenize does not have, such as reasoning_effort, needs vLLM's render endpoints, which exist
// with --enable-scale-out.
//
// The memory of a source maps the blocks of the gateway's own chain (package prompt) to tokens. Two
// prompts with the same block begin alike, so what is known of one holds for the other:
//
//   - up to the end of a message: exactly;
//   - up to a block inside a message: as far as two prompts that share this block and not the next
//     one have the same tokens, less a margin for what they share by chance.
//
// # Messages in parts
//
// Of a chat that grows, only the messages behind the known ones are sent, after a short message in
// place of those. This is right only if the template renders messages independently, and if no
// token crosses the seam between them. A source proves both before it relies on them: it renders
// probe messages with different ends alone and with the beginning of an answer, which must add the
// same tokens to each. It also compares the first prompts in parts, and each 64th later one, with
// the whole prompt. After a difference it forgets everything, and tokenizes prompts as a whole for an
// hour. If the template begins a chat in a new way, such as with another date, it forgets everything
// and learns again.
//
// # Cost
//
// A look-up of a known prompt of 27,000 tokens takes 3 µs and does not allocate (BenchmarkLookup).
// At most 8 prompts are tokenized at a time, and 64 more wait. The memory is bounded by
// [Config].Budget: about 5 bytes for each token.
package prompttokens
