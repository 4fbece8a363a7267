// Package gateway runs the real binary for the end-to-end tests: it finds or
// builds it, starts it on random ports of the loopback interface, waits until it
// serves, and proves at the end of every test that it stops when asked to.
//
// A test package hands its run to [Main]; its tests call [Demo], [Serve] or
// [Start]. Nothing started here outlives the test that started it.
package gateway
