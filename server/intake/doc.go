// Package intake is the first half of the data plane: the table of routes, and the stages that a request
// passes before it waits for a worker. Package proxy calls them in this order:
//
//   - Authenticate finds the caller of a request by its key.
//   - Read reads the body, within the limits of size, rate and memory, and parses the prompt.
//   - Resolve finds the tier or pool, by the names in the request or by the classifier.
//   - Charge reserves the estimated usage against the limits of the caller.
//   - Gather returns the facts by which the routing policy selects a worker.
//
// A request that matches no route passes FindPool and ReadPassed instead of Read and Resolve. Locate
// finds the worker that has a stored response.
//
// An Inbound is the request with its route and connection; each stage returns its result (Caller, Parsed,
// Resolution, Admission) and an error that the client receives. The caller of Read must call CloseBody
// and DropPrompt at the end, which release the memory of the body and the buffers of the prompt.
//
// Explain runs the same stages without side effects: Identify instead of Authenticate, a View with
// read-only chats, and Limits that reserve nothing.
//
// The memory of all bodies is bounded by max_buffered_bytes and shared fairly between tenants. An Intake
// is safe for concurrent use; the values of one request belong to its goroutine.
package intake
