// Package chaos tests the gateway end to end under faults: engines that fail in a chosen way,
// clients that send malformed or ambiguous HTTP, drains, restarts and exhausted resources. It has
// tests only.
//
// The tests run in virtual time, in a bubble of package bubble. With TIERWAY_SOAK, which is the
// duration of the soak test, they run in real time against the program that TIERWAY_BIN names or
// that they build. Tests that need a process of its own run only with TIERWAY_BIN.
package chaos
