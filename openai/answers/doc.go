// Package answers reads what a cache of answers needs: the part of a request that determines its answer, and the
// content of a complete answer. It writes a kept content again as an answer of its dialect, whole or as a stream.
package answers
