// Package queue tests the gateway's queues end to end: priority classes, fair shares of
// tenants, wait limits, clients that disconnect, reloads and drains. Its simulated engines have as
// many slots as the gateway may use. It has tests only.
//
// The tests run in virtual time, in a bubble of package bubble. With TIERWAY_SOAK, which is the
// duration of a load, they run in real time against the binary. TIERWAY_BIN names the binary; without it
// the tests build one. Shares and waits depend on the machine then, and are logged only.
package queue
