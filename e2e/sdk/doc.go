// Package sdk tests the binary with the official SDKs: openai and anthropic for Python and Node,
// openai-go, and openai-go's own test suite. The test cases for Python and Node are in e2e/python and
// e2e/node; this package starts the gateways and injects faults into their engines. It has tests
// only.
package sdk
