// Package tokenizer tokenizes text as a model does, from the tokenizer.json that comes with it.
//
//	t, err := tokenizer.Load("/models/qwen/tokenizer.json")
//	ids := t.EncodePrompt(nil, []byte("Hello, world"), true)
//
// # What is supported
//
// Byte-level BPE, which GPT-2, Llama 3, Qwen 2 to 3.5 and DeepSeek use. Everything in a file that
// changes tokens is either implemented or refused by [Load], with an error that names it. So a
// Tokenizer never guesses:
//
//   - normalizer: none, or NFC
//   - pre_tokenizer: ByteLevel, or Split steps and then ByteLevel; the patterns are compared as texts
//   - model: BPE with a token for each byte, with or without ignore_merges
//   - added_tokens: without single_word, lstrip and rstrip
//   - post_processor: none, ByteLevel, or a template with special tokens around the text
//
// Chat templates are no part of a tokenizer.json. Chats are rendered by engines.
//
// # Cost
//
// Text takes 0.4 µs a token on a busy core (BenchmarkEncode). A piece of text without a word's end takes
// time that grows little faster than the piece. A vocabulary of 100,000 tokens takes some tens of
// megabytes.
package tokenizer
