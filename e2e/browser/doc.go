// Package browser tests the admin UI of the binary in Chromium. The test cases are the files
// tests/*.spec.ts, which Playwright runs; support.ts has their helpers. This package starts a
// gateway for each file, in front of simulated engines, and has tests only.
//
// A test case controls its gateway and its engines through a control address of this package: it
// can stop and start them, inject faults and hold answers in flight.
//
// `make deps` fetches Playwright and Chromium. One file runs with
// `go test -tags nomsgpack -count=1 -v -run TestBrowser/smoke ./e2e/browser`.
package browser
