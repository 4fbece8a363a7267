// Package state tests state that outlives a gateway or that gateways share: keys, limits,
// budgets, the ledger and reloads of the configuration. It also tests gateways behind a load
// balancer, nginx and HAProxy. It runs the binary in front of simulated engines. Tests kill, suspend
// and restart processes of redis-server and PostgreSQL. It has tests only.
//
// TIERWAY_BIN names the binary; without it the tests build one. TIERWAY_SOAK is the duration of
// the load of one test; from one minute on, tests run all their rounds.
package state
