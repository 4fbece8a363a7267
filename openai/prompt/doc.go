// Package prompt reads the prompt of a parsed request. It reads the body on demand and stores
// nothing, so any number of goroutines may read one request.
//
// # Prefixes
//
// [AppendChain] cuts a prompt into blocks of about 128 tokens and returns one [Block] for each. A
// block's hash covers the prompt from its beginning. Two prompts therefore share a prefix up to the
// last block with equal hashes, and a chat that grows keeps its blocks. Routing compares chains to
// find the worker whose engine has most of a prompt in its cache.
//
// # Texts
//
// [AppendUserText] returns what a person wrote last and [AppendSystemText] the application's
// instructions. The classifier reads both. Long texts keep only their beginning and end.
//
// # Token counts
//
// [CountTokens] counts exactly, with a vocabulary of package tokens, in up to 1 µs per byte.
// [tierway/openai.Request.PromptTokens] estimates from the sizes that Parse has counted, at no cost.
package prompt
