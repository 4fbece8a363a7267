// Package bubble runs tests that use package rig in virtual time.
//
// [Test] and [Run] run a test in a bubble of testing/synctest: the gateway is built in the test's process, and
// workers, gateway and clients meet on an in-memory network. Nothing in such a test depends on the speed of the
// machine. With TIERWAY_SOAK, the same tests run in real time against the binary.
//
// [Serve] serves a gateway to tests that have a bubble and a network of their own.
package bubble
