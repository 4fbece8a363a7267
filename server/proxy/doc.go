// Package proxy is the data plane: it serves the requests of clients and relays the answers of workers.
//
// New builds a Proxy and Proxy.Handler returns its router over the table of package intake. Each
// request is one exchange. It runs the stages of design.md §2 in their order: authenticate, read,
// resolve, charge and gather come from package intake; enterQueue waits for a worker, attempt sends the
// request to it and relays its answer, and end settles the usage and publishes the record.
//
// While nothing of an answer is sent, it is held: forward may try another worker, within the attempts
// and the retry budget. The first content commits the answer to its worker. From then on a failure is
// an error event in a stream, or a cut connection, and never looks like a regular end. Heartbeats can
// open a stream earlier, because they carry no content.
//
// An attempt releases its lease exactly once, with its outcome: success, a fault of the worker, or
// excluded if the worker is not at fault. The outcome of a failure that the request itself may have
// caused stays pending until another worker has answered, so that one client cannot open all breakers.
//
// Explain runs the same stages for a request that is not sent, and changes no state.
//
// One goroutine owns an exchange. Only the answer is shared, with the timer of its heartbeats.
package proxy
