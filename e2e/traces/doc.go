// Package traces tests the traces that the binary exports. A receiver in the test collects the
// spans of the gateway and of the engines behind it, and returns whole traces. It has tests only.
package traces
