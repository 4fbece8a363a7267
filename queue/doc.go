// Package queue holds the requests of one pool that no worker can take now.
//
// Order and worker are decided together. A pass (Dispatch) offers the waiting requests in their
// order to the pool's policy, under the pool's lock, and books a lease for each request that a
// worker takes. Waiting therefore does not cost cache hits: a request may stay queued for the
// worker that has its prefix while requests behind it are dispatched to other workers.
//
// # Order
//
//   - Between classes: by priority, 0 first. A request that has waited for its class's Age may be
//     promoted, within AgedShare of the tokens.
//   - Between tenants of a class: weighted fair queueing over tokens. Idle tenants do not
//     accumulate credit. A dispatch charges the expected tokens; SettleUsage replaces them by the real ones.
//   - Inside a tenant: first in, first out.
//
// # Bounds
//
// A queue bounds the number of waiting requests per class, the bytes of their bodies and their
// wait. A request that exceeds a bound, or would reach its wait limit, is shed with a ShedError
// that has the reason and a Retry-After. A queue with Displace evicts other requests instead.
//
// # Life of a ticket
//
// A waiting request is a Ticket. Its owner uses the queue in this order:
//
//  1. Enter returns a lease at once, an error, or ErrWaiting.
//  2. After ErrWaiting, the owner waits for onWake, for the time of WaitUntil, or for its client.
//  3. After onWake it calls Claim, which returns the lease, an error, or ErrWaiting again.
//     After WaitUntil it calls Leave with Late; if the client is gone, Leave with Cancelled. While no
//     worker is up, onWake is also an occasion to Leave with Moved.
//  4. After the last attempt it calls SettleUsage. A retry enters the same Ticket again.
//
// The package has no clock, starts no goroutine and never blocks. Time is an argument of each
// call. The owner of the queue calls Dispatch when the pool reports a change.
package queue
