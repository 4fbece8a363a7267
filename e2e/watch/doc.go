// Package watch tests the telemetry of the binary: metrics, logs, exported spans, decision records and
// the admin plane. Its tests check that all of them agree with the requests that were sent. They also
// check that no client can add series or log lines without bound, and that no prompt, answer or secret
// appears in them. It has tests only.
//
// TIERWAY_SOAK is the duration of the load in TestTelemetryAddsUp; without it, a few seconds.
package watch
