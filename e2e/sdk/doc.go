// Package sdk drives the real binary with the official SDKs: openai and
// anthropic for Python and Node, openai-go, and openai-go's own test suite.
// What Python's and Node's have to do stands in e2e/python and e2e/node; what
// the engines behind the gateway do wrong meanwhile is ordered here.
package sdk
