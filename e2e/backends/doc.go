// Package backends runs the real servers that tests need: redis-server,
// PostgreSQL, and a small TCP balancer. Each listens on a port of the loopback
// interface that is its own, keeps its files in a temporary folder, and ends
// with the test that started it, or with the test program if that dies first.
//
// A server that is not installed fails the test; `make deps` installs it.
package backends
