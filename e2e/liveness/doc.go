// Package liveness tests that a worker that stops answering does not take its pool with it, and that a
// worker that answers late is not ejected. It runs whole gateways in the test's process, in virtual time, in
// front of engines that step, cache and report as vLLM does and that can stop in several ways. It has tests
// only.
package liveness
