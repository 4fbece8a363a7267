// Package kvaware tests the policy kv_aware end to end. Recorded requests are sent over HTTP through the binary to
// simulated engines, which publish their KV-cache events over ZeroMQ. For comparison, the same requests are sent
// through the binary with other policies. They are also sent through a router of the test, which reads the real state
// of each engine. It has tests only.
//
// TIERWAY_BIN names the binary; without it the tests build one. With TIERWAY_SOAK of a minute or more
// the comparisons have their full size. TIERWAY_TRACE names a file in Mooncake's format for them, such
// as its conversation trace; without it they use generated conversations.
//
// The engines compute prompts one after the other, and answers at the same time (package engines). Their
// times are divided by the speed of the replay, and measured times are multiplied by it: all printed
// times are those of the engines at speed 1.
package kvaware
