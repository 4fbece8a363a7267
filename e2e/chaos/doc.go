// Package chaos tests the gateway end to end under faults: engines that fail in a chosen way,
// clients that send malformed or ambiguous HTTP, drains, restarts and exhausted resources. It has
// tests only.
//
// The tests run in virtual time, in a bubble of package bubble. With TIERWAY_SOAK, which is the
// duration of the soak test, they run in real time against the binary. TIERWAY_BIN names the binary;
// without it the tests build one. Tests that need the gateway as a separate process run only with
// TIERWAY_BIN.
package chaos
