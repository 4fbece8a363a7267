// Package events tests the reader of KV-cache events against libzmq, the library that vLLM
// publishes with.
package events
