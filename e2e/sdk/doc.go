// Package sdk drives the real binary with the official SDKs: openai and
// anthropic for Python and Node, openai-go, and openai-go's own test suite.
// What each SDK has to do stands in python/, node/ and the Go tests; what the
// engines behind the gateway do wrong meanwhile is ordered by the Go tests.
package sdk
