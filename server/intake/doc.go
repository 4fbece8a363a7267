// Package intake is the first half of the data plane: the table of routes, and the stages of a request
// before it waits for a worker. Package proxy calls these stages in order:
//
//	stage         work                                                          result
//	Authenticate  finds the caller by the key                                   Caller
//	Read          reads the body within its limits, and parses the prompt       Parsed
//	Resolve       finds the tier or pool, by names or by the classifier         Resolution
//	Charge        reserves the estimated usage against the caller's limits      Admission
//	Gather        collects the facts by which the policy selects a worker       routing.Request
//
// An Inbound is the request with its route and connection. Route.Inbound makes it for a request that
// matches an entry of Routes, and Unrouted for any other request; Inbound.Begin must follow. A stage
// that fails returns the error for the client.
//
// A request without a route passes FindPool and ReadPassed instead of Read and Resolve: a pool may cover
// its path. LocateResponse finds the worker that has a stored response.
//
// The caller must end each request with Parsed.CloseBody and Intake.DropPrompt. They release the memory
// of the body, and return the buffers of the prompt to their pool.
//
// Explain uses the same stages without side effects: Identify instead of Authenticate, ResolveOptions
// with read-only chats, and Limits that reserve nothing.
//
// The memory of all bodies is bounded by max_buffered_bytes, and no tenant can use all of it (bodyBudget).
// An Intake is safe for concurrent use; the values of a request belong to its goroutine.
package intake
