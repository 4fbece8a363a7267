// Package queue tests the gateway's queues end to end: priority classes, fair shares of
// tenants, wait limits, clients that disconnect, reloads and drains. It runs the real program
// in front of simulated engines that have as many slots as the gateway may use. It has tests
// only.
//
// TIERWAY_BIN names the program; without it the tests build one. TIERWAY_SOAK is the duration
// of a load.
package queue
