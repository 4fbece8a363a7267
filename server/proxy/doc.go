// Package proxy is the data plane: it sends the requests of clients to workers and relays the answers.
//
// New builds a Proxy, Configure applies a configuration, and Handler returns the router. Each request is
// one exchange, which one goroutine owns. It passes these stages in order; the first error is its answer:
//
//	authenticate  finds the caller by the key                       package intake
//	Read          reads the body and parses the prompt              package intake
//	Resolve       selects the tier or pool                          package intake
//	charge        reserves the estimated usage against the limits   package intake
//	gather        collects the facts for the routing policy         package intake
//	forward       repeats enterQueue and attempt until an answer    forward.go
//	enterQueue    waits until a worker is booked for the request    queue.go
//	attempt       sends the request to that worker, and relays      attempt.go, send.go, relay.go
//	end           publishes the record, settles the usage           exchange.go, record.go, settle.go
//
// The results of stages are values in the exchange. What uses the client's connection, or changes the state of a
// request or of an attempt, is a method of exchange or attempt. All other functions get the values that they need, and
// never an exchange or an attempt.
//
// Four rules explain most of the code:
//
//   - An answer is held until its first byte is sent. While the client has no content, forward may try
//     another worker, within retry.attempts and the retry budget. After content, a failure is an error
//     event or a cut connection, never a regular end. See answerState.
//   - An attempt releases its lease exactly once, with its outcome: success, a fault of the worker, or
//     excluded. A failure that the request may have caused stays pending until another worker has
//     answered, so that one client cannot open the breakers of all workers.
//   - end runs for every request, also after a panic, and releases what the request holds.
//   - An ended request leaves one record in a ring. Metrics, logs, spans and the ledger are written from it, behind the
//     request. See records.
//
// A request without a route passes through a pool that covers its path (passThrough). A request about a
// stored response goes to the worker that has it (serveStored). Explain runs the stages for a request
// that is not sent, and changes no state.
//
// A Proxy is safe for concurrent use. Of an exchange, only the answer is shared, with the timer of its
// heartbeats.
package proxy
