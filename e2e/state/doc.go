// Package state holds gateways to their promises about what outlives them or is
// shared between them: keys, limits, budgets, the ledger, and the configuration
// while it changes. It runs the real program before simulated engines, with real
// redis-server and PostgreSQL processes that are killed, hung and brought back.
// It has tests only.
//
// TIERWAY_BIN names the program; without it the tests build one. TIERWAY_SOAK is
// how long the load of one test lasts; from a minute on, tests that count rounds
// do all of them.
package state
