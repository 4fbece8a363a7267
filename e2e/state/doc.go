// Package state tests state that outlives a gateway or that gateways share: keys, limits,
// budgets, the ledger and reloads of the configuration; and gateways behind a load balancer. It
// runs the real program in front of simulated engines, with real redis-server and PostgreSQL
// processes that tests kill, suspend and restart, and with nginx and HAProxy. It has tests only.
//
// TIERWAY_BIN names the program; without it the tests build one. TIERWAY_SOAK is the duration of
// the load of one test; from one minute on, tests run all their rounds.
package state
