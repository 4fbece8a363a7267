// Package rig runs a gateway before simulated engines of the test's own process.
//
// A [Rig] starts the engines and the gateway, sends requests with ids of their own
// and checks when its test ends that nothing is left in flight. Tests of queue,
// state, watch, traces and chaos add what only they need.
package rig
