// Package gateway runs the binary for the end-to-end tests. It starts the gateway on
// free addresses of the loopback interface and waits until it listens or is ready.
//
// A test package calls [Main] from TestMain, which finds or builds the binary. A test starts a
// [Process] with [Serve] (waits for a worker), [Start] (waits until the gateway listens),
// [Demo] or [StartCommand], and sends requests to its URLs or through its methods. A process
// ends with its test; the test fails unless the gateway stops cleanly on SIGTERM.
package gateway
