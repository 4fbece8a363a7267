// Package breaker is the circuit breaker of one worker: it keeps requests from a worker
// that fails, and tries the worker with a few requests before all of them return.
//
// A Breaker has three states:
//
//   - Closed: requests pass. Consecutive failures, or a share of failures within a rolling
//     window, open it; so does an outcome TooSlow.
//   - Open: Allow returns an error for Config.OpenFor, which is spread by a tenth.
//   - HalfOpen: Config.Probes requests at once pass. If that many in a row succeed, the
//     breaker closes; the first failure opens it again.
//
// The counts, the window, the open timeout and the half-open state are those of
// github.com/sony/gobreaker/v2. This package adds:
//
//   - a deadline for each probe;
//   - consecutive failures that are older than the window, because a request may time out
//     after more than one window;
//   - ReportCut, a second outcome for a stream that breaks off after a good start;
//   - Healthy, which ends an open state early after a good health check;
//   - SetHung, which opens the breaker of a worker when its engine returns nothing;
//   - Suspect, which opens it when another gateway has found the worker failing.
//
// The usual sequence of one request is
//
//	ticket, err := b.Allow(expected)
//	// send the request if err is nil
//	b.Report(ticket, outcome)
//
// The owner classifies outcomes in Options.Outcome and calls Poll once a second.
// Package routing limits how many workers of a pool are ejected at the same time.
package breaker
