// Package chaos holds the gateway to its promises where things go wrong: it
// runs the real program before engines of this process that misbehave on order,
// and before clients that speak raw TCP. It has tests only.
//
// TIERWAY_BIN names the program; without it the tests build one. TIERWAY_SOAK
// is how long the soak lasts.
package chaos
