// Package tenants decides whether a request may pass: by its key, by the permissions of its
// tenant, and by the limits of both.
//
// # Keys
//
// A Directory maps the SHA-256 digests of keys to Callers. Authenticate returns the Caller of a
// key. Keys themselves are stored nowhere: Mint returns a new one once, and keeps its digest and
// a hint. Rights of a key narrow those of its tenant and never widen them.
//
// # Limits
//
// A tenant is a subject with Limits, and so is a key. A request must pass the limits of both, or
// nothing is booked.
//
//   - Rates (rpm, rps, tpm) are leaky buckets. The tokens of a request are reserved at admission
//     and replaced by the real usage at the end.
//   - Concurrent bounds the in-flight requests.
//   - Budgets bound the tokens and the money of a UTC day or month. They are booked at the end,
//     by real usage.
//
// A request goes through a Limiter in two calls: TakeCharge returns an Admission, and SettleCharge
// ends an admitted request. Each admitted request must be settled once. Peek returns the Admission
// that TakeCharge would return.
//
// # Several gateways
//
// With shared counters, Redis decides instead of TakeCharge. The Limiter then keeps a local copy, from
// which the gateway continues when Redis is unavailable. BeginRemote returns the SubjectStates to send;
// CommitRemote or AbortRemote ends the decision; UpdateShared applies the SharedCounters of the
// reply. DirtySubjects returns the states that must be sent again. Package store has the protocol.
// Without shared counters, each of n gateways enforces an n-th of each limit except budgets.
//
// The package has no clock: time is an argument.
package tenants
