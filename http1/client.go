package http1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// connectTimeout is the default of timeouts.connect. Inside a cluster a connection takes a
	// millisecond; 2 s allow for one lost SYN.
	connectTimeout = 2 * time.Second
	// maxIdle is the batch size of a busy engine: a burst of that size reuses its connections.
	maxIdle = 256
	// idleTimeout is below the minute after which proxies and most servers close silently, and
	// frees descriptors after a burst. Some servers close earlier (uvicorn after 5 s); get detects
	// that before it returns a connection.
	idleTimeout = 30 * time.Second
	// maxAge is the age at which a connection is not kept. If the name of a server gets new addresses, they receive
	// requests within this time, and a new connection per five minutes costs nothing.
	maxAge = 5 * time.Minute
	// onceIdle is the idle time from which a request with Once uses a new connection. A server that closes kept
	// connections does so after a longer time, so that it does not close one just as the request is sent.
	onceIdle = time.Second
	// refusalWait is the time to wait for the answer of a server that stopped reading the request.
	// Such a server sends its 413 before the reset that breaks the write, so a second is ample.
	refusalWait = time.Second
)

// Config configures a Client: the server and its connections.
type Config struct {
	Network        string                                                               // "tcp" or "unix"
	Address        string                                                               // host:port, or the socket's path
	Host           string                                                               // the Host header
	ConnectTimeout time.Duration                                                        // for a new connection; 0 is 2 s
	Dial           func(ctx context.Context, network, address string) (net.Conn, error) // nil is net.Dialer's
}

// Client performs exchanges with one server. It is safe for concurrent use.
type Client struct {
	config Config
	idle   idleConns
	heads  sync.Pool  // *[]byte: buffers for request heads
	pages  *sync.Pool // *page: buffers of the connections for input
}

// New returns a client. It connects at the first use.
func New(c Config) *Client {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	p := &Client{config: c, pages: newPages(), idle: idleConns{max: maxIdle, timeout: idleTimeout}}
	p.heads.New = func() any { return new([]byte) }
	return p
}

// Close closes the idle connections. Exchanges in flight continue to their end; their connections
// are then closed.
func (p *Client) Close() { p.idle.close() }

// Send writes the request and returns when the answer's head has arrived. Cancelling ctx before
// Response.Body is closed ends the exchange and closes its connection at once. An error is a
// *SendError.
//
// The request is written before the answer is read. An early answer is therefore read when the
// server has taken the request or has stopped reading by closing.
//
// The server may close a kept connection just as the request is sent. If one breaks before the
// first byte of an answer, the request is sent once more on a new connection. With Once, this happens
// only if no byte of the request was sent. A request with Fresh or Upload never uses a kept
// connection.
func (p *Client) Send(ctx context.Context, r *Request) (*Response, error) {
	head := p.heads.Get().(*[]byte)
	defer p.heads.Put(head)
	var err error
	if *head, err = appendHead((*head)[:0], p.config.Host, r); err != nil {
		return nil, &SendError{Phase: PhasePrepare, Err: err}
	}
	if ctx.Err() != nil {
		return nil, &SendError{Phase: PhaseConnect, Err: cancelled(ctx)}
	}
	var first *SendError
	if !r.Fresh && r.Upload == nil {
		within := p.idle.timeout
		if r.Once {
			within = onceIdle
		}
		if c := p.idle.get(within); c != nil {
			x, fail := p.roundTrip(ctx, c, r, *head)
			if fail == nil {
				return &x.Response, nil
			}
			if c.received || r.Once && fail.Phase > PhaseConnect || ctx.Err() != nil {
				fail.Kept = !c.received && time.Since(c.since) < 2*onceIdle
				return nil, fail
			}
			first = fail
		}
	}
	c, err := p.connect(ctx)
	if err != nil {
		if first != nil {
			// The server may have seen the first attempt, so the phase stays.
			return nil,
				&SendError{Phase: first.Phase, Err: fmt.Errorf("the kept connection broke: %w; a new one: %w", first.Err, err)}
		}
		return nil, &SendError{Phase: PhaseConnect, Err: err}
	}
	x, fail := p.roundTrip(ctx, c, r, *head)
	if fail != nil {
		return nil, fail
	}
	return &x.Response, nil
}

// connect opens a new connection within ConnectTimeout.
func (p *Client) connect(ctx context.Context) (*conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, p.config.ConnectTimeout)
	defer cancel()
	socket, err := p.config.Dial(dialCtx, p.config.Network, p.config.Address)
	switch {
	case err == nil:
		return newConn(socket, p.pages), nil
	case ctx.Err() != nil:
		return nil, cancelled(ctx)
	case dialCtx.Err() != nil:
		return nil, fmt.Errorf("no connection within %v (timeouts.connect): %w", p.config.ConnectTimeout, err)
	}
	return nil, err
}

// roundTrip writes the request on c and reads the answer's head. It owns c: if it fails, it closes
// c; otherwise the body of the answer releases c.
func (p *Client) roundTrip(ctx context.Context, c *conn, r *Request, head []byte) (*openAnswer, *SendError) {
	x := &openAnswer{c: c, idle: &p.idle}
	if ctx.Done() != nil {
		x.stop = context.AfterFunc(ctx, func() { x.cancel(cancelled(ctx)) })
	}
	c.received = false
	phase := PhaseAwait
	begun, writeErr := c.write(head, r.Body)
	if writeErr == nil && r.Upload != nil {
		writeErr = c.writeUpload(r.Upload, r.UploadLength)
	}
	if _, broken := errors.AsType[uploadError](writeErr); broken {
		x.release(false)
		if ctx.Err() != nil {
			writeErr = cancelled(ctx)
		}
		return nil, &SendError{Phase: PhaseWrite, Err: writeErr}
	}
	switch {
	case writeErr == nil:
	case !begun && !c.since.IsZero(): // kept: what can be read is no answer to the request
		x.release(false)
		return nil, &SendError{Phase: PhaseConnect, Err: writeErr}
	default:
		if phase = PhaseWrite; !begun {
			phase = PhaseConnect
		}
		// This fails only on a closed connection, which the next read detects.
		_ = c.socket.SetReadDeadline(time.Now().Add(refusalWait))
	}
	err := x.readAnswer(r.Method)
	if err == nil {
		if writeErr != nil {
			x.keep = false
			_ = c.socket.SetReadDeadline(time.Time{})
		}
		x.endIfNoBody()
		return x, nil
	}
	x.release(false)
	switch {
	case ctx.Err() != nil:
		err = cancelled(ctx)
	case writeErr != nil:
		err = writeErr
	}
	return nil, &SendError{Phase: phase, Err: err}
}

// cancelled returns the reason why ctx ended: errors.Is finds both ctx.Err and the cause given to
// the cancel function.
func cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
