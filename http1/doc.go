// Package http1 is an HTTP/1.1 client for servers on trusted connections without TLS, and a server of usual requests.
//
// A [Client] keeps connections to one server, each of which carries one exchange at a time. The
// gateway uses it instead of net/http's client on the request path. An exchange costs 8
// allocations instead of 48, and with a body of 48 KB half of the time (BenchmarkClient and
// BenchmarkTransport).
//
// # Exchanges
//
// [Client.Send] writes a [Request] and returns when the head of the answer has arrived. The
// caller reads [Response].Body while it arrives and must close it. Cancelling the context, or
// closing the body early, ends the exchange and closes its connection at once, so that an engine
// detects the disconnect. After a complete answer the connection is kept for up to 30 s.
//
// A request is written before its answer is read. If a kept connection breaks before the first
// byte of an answer, the request is sent once more on a new connection. Set Request.Fresh for a
// request that must not be sent twice, or Request.Once if it may fail instead. A streamed body
// ([Request].Upload) always has a connection of its own.
//
// # Server
//
// A [Server] reads the usual shape of a request itself, with one goroutine for a connection, and leaves every other
// connection to its Fallback, which is net/http's server, before anything is answered. It accepts nothing that net/http
// refuses or understands otherwise (FuzzRequestsMeanTheSameToNetHTTP). On Linux, one epoll instance notices clients
// that leave; net/http needs a goroutine in a read for each request. The context of a request ends when the client
// leaves, a read of the body fails or the connection ends, but not when the handler returns. A handler can pass the
// rest of its work to ContinueAfterHandler of its writer and return, so that a long wait needs a small stack only.
//
// A connection on a plain socket of Linux has no buffer while it waits for input. It takes a page from a pool when
// bytes have arrived. Other connections keep their page.
//
// # Errors
//
// Every error of an exchange is a [SendError]. Its [Phase] states how far the exchange had come,
// and with that whether the server can have seen the request:
//
//	phase          what happened                        request seen
//	PhasePrepare   the request is not valid HTTP        no
//	PhaseConnect   no connection that took a byte       no
//	PhaseWrite     the request was sent in part         possibly
//	PhaseAwait     sent, no head of an answer           possibly
//	PhaseBody      the answer broke off                 yes
//
// # Strictness
//
// A request that could be read as two is rejected before it is sent. An answer that is not
// exactly HTTP/1.1 is an error; the client never guesses where an answer ends. Heads, chunk
// extensions, trailers and interim answers are bounded.
package http1
