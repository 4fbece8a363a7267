// Package prompttokens finds the tokens of a request's prompt, and the keys of its blocks in package
// kvindex, which has the workers with these blocks in their KV caches.
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
// If the tokens of the prompt are known or arrive within the lookup timeout, the keys of the whole prompt.
// Otherwise the keys of its longest known beginning: earlier turns of the chat, or a system message that
// other chats share. If no part is known, no keys. Answers after the timeout are kept for later look-ups,
// such as the next turn.
//
// Only chats and completions have keys. A prompt of token ids needs no engine. Messages before an image
// have keys, messages behind it none.
//
// # Where tokens come from
//
// POST /tokenize renders and tokenizes a chat as the engine itself does. A request that uses a field
// that /tokenize does not have, such as reasoning_effort, needs vLLM's render endpoints, which vLLM has
// with --enable-scale-out.
//
// The memory of a source maps the blocks of the gateway's own chain (package prompt) to tokens. Two
// prompts with the same block have the same beginning, so the tokens of one are valid for the other:
//
//   - up to the end of a message: exactly;
//   - up to a block inside a message: the common tokens of two prompts that share this block and not the
//     next one, less a margin for text that they share by chance.
//
// # Messages in parts
//
// Of a chat that grows, only the messages behind the known ones are sent, after a short message that stands
// for those. The result is correct only if the template renders messages independently, and no token
// crosses the end of a message. A source tests both first. It renders probe messages with different ends,
// each alone and with the beginning of an answer, which must add the same tokens to all of them. It also
// compares the first prompts in parts, and each 64th later one, with the whole prompt. After a difference
// it discards all known tokens, and tokenizes prompts as a whole for an hour. If the template begins a chat
// in a new way, such as with another date, it discards them and tests the template again.
//
// # Cost
//
// A look-up of a known prompt of 27,000 tokens takes 3 µs and does not allocate (BenchmarkLookup).
// At most 8 prompts are tokenized at a time, and 64 more wait. The memory is bounded by
// [Config].Budget: about 5 bytes for each token.
package prompttokens
