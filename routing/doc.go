// Package routing selects a worker for a request and books the request on it.
//
// A Pool holds the workers of one tier. Its Policy compares the eligible workers and picks
// one. Selection and booking are one step under one short mutex per pool: a bound is exact
// under any concurrency, and a policy is single-threaded code. Nothing in this package does
// I/O, reads the clock or draws random numbers; time and randomness come with the Request.
//
// # One request
//
//	lease, err := pool.Acquire(&request) // or DispatchRound.Offer and Lease.Admit
//	lease.Answered(now, nil)             // the first event of the answer arrived
//	lease.Release(routing.Result{...})   // the answer ended; owed exactly once
//
// Acquire books the request's uncached prompt tokens, its expected output tokens and one
// place. Answered gives back the prompt tokens, Release everything else. The pool learns
// from both. An error names the reason: ErrNoWorker, ErrFull, ErrBestWorkerFull,
// *BackoffError or *OpenError.
//
// # Which workers a policy is shown
//
// A worker is eligible if it is up, has weight, serves the model, was not tried before, is
// neither in backoff nor ejected, and is neither full nor saturated. Workers of a higher
// group are eligible only if no worker of a lower group is usable, workers of a farther region
// only if no worker of a nearer one is free. During slow start a
// worker is shown only its share of the requests. A Planner is shown full workers too, if
// the request can wait. Policies divide requests by effective weights: by the rule of
// SetHealthWeight, a worker that fails requests has less than its weight. The Pool takes these
// states from its callers:
//
//   - Observe: health and engine metrics
//   - SetBackoff: the pause after 429 or an overload of the engine
//   - Eject, Restore: the transitions of the circuit breaker. The ejection cap keeps at
//     least half of the workers in rotation, and the last usable one.
//   - SetOpen: a server that accepts no connection
//
// # What a pool learns
//
//   - for each worker: prefill rate, time per output token, and the concurrency limit
//     beyond which its engine only queues
//   - for the pool: the output tokens of an answer (mean and 90th percentile), the
//     residence time of a request, and a correction of prompt estimates
//   - prefixHistory: which workers prefilled the prefix of a prompt within the last minutes
//   - inflightPrefixes: which prefixes are in flight on which worker
//
// # Records
//
// If Request.Record is set, a pick fills it with everything that the policy saw. Redecide
// makes the same pick again from the record alone. Preview returns where a request would go
// now, or under a Draft of another configuration, and changes nothing.
//
// Package prefix has the key by which the policy chwbl places a prompt.
package routing
