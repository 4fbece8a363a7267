// Package engines simulates inference engines over HTTP, for the demo, the tests and the
// benchmarks. An [Engine] is an [net/http.Handler] that speaks the dialects of real engines:
//
//	e := engines.New(engines.Config{Model: "m", Prefill: 8000, PerToken: 20 * time.Millisecond,
//		Slots: 32, CacheTokens: 100_000})
//	defer e.Close()
//	http.Serve(listener, e)
//
// # What is simulated
//
//   - Slots: a bounded number of requests runs, others wait in order of arrival or by priority.
//   - Prefill: prompts are read one after the other at a speed in tokens per second. Tokens of
//     the prefix cache take no time, and running answers slow prefill down.
//   - Decode: each output token takes a time that grows with the number of running answers. An event
//     of a stream has one token or, with Interval, several.
//   - Prefix cache: blocks of 16 tokens, of which the least recently used is evicted first. With
//     PublishEvents the engine publishes the changes over ZeroMQ as vLLM does.
//   - LMCache: a further cache beside that of an engine, and the HTTP API of its controller, as [LMCache].
//   - Hand-over: engines that share [Peers] compute prompts for each other by the protocols of four
//     connectors. Blocks are kept for a lease, an object is good for one use, and [WrongAnswer] is the
//     answer of an engine that got the wrong blocks.
//   - Endpoints: chat, completions, responses, messages, embeddings, rerank, score, moderations,
//     images, audio, tokenize and render, models, health and metrics under vLLM's names.
//
// # What is exact
//
// Texts are meaningless and depend on the seed and the prompt alone. Counts are exact: the
// reported usage is what the engine read and wrote, cached tokens included. Requests are parsed
// with encoding/json, independently of the gateway's parser, so a fault in one shows in the other.
//
// A [Script] overrides the answer to one request: a fixed text, a length, or a stop in the middle.
// Package chaos adds faults of the connection and of the protocol. [Demo] returns the fleet of
// `tierway demo`.
package engines
