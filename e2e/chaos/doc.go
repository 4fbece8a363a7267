// Package chaos tests the gateway end to end under faults: engines that fail in a chosen way,
// clients that send malformed or ambiguous HTTP, drains, restarts and exhausted resources. It
// runs the real program in front of engines of the test process. It has tests only.
//
// TIERWAY_BIN names the program; without it the tests build one. TIERWAY_SOAK is the duration
// of the soak test.
package chaos
