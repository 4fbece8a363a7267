// Package queue holds the gateway to what it promises those who wait: the urgent
// go first, tenants share, whoever waits is served, refused in time or forgotten,
// and nothing is left over. It runs the real program before simulated engines
// whose slots are as many as the gateway may use. It has tests only.
//
// TIERWAY_BIN names the program; without it the tests build one. TIERWAY_SOAK is
// how long a load lasts.
package queue
