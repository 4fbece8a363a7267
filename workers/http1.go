package workers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// plainConnectTimeout is timeouts.connect's default: inside a cluster a
	// connection takes a millisecond, so 2 s leave room for one lost SYN.
	plainConnectTimeout = 2 * time.Second
	// plainMaxIdle is as many requests as a busy engine batches: a burst of
	// them finds its connections again.
	plainMaxIdle = 256
	// plainIdleTimeout lies under the minute after which proxies and most
	// servers close silently, and gives descriptors back after a burst. A
	// server that closes earlier (uvicorn does after 5 s) is noticed by the
	// look that each kept connection gets before it is used again.
	plainIdleTimeout = 30 * time.Second
	// plainLastWord is how long a worker that stopped reading the request may
	// take to say why. A 413 is on the wire before the reset that broke the
	// write, so that a second is ample.
	plainLastWord = time.Second
)

// plainConfig says where a plain HTTP/1.1 worker listens.
type plainConfig struct {
	Network        string                                                               // "tcp" or "unix"
	Address        string                                                               // host:port, or the socket's path
	Host           string                                                               // the Host header
	ConnectTimeout time.Duration                                                        // for a new connection; 0 is 2 s
	MaxIdle        int                                                                  // kept connections without an exchange; 0 is 256, less than 0 none
	IdleTimeout    time.Duration                                                        // how long one is kept; 0 is 30 s
	Dial           func(ctx context.Context, network, address string) (net.Conn, error) // nil is net.Dialer's
}

// plain is the Sender for http:// and unix:// workers: HTTP/1.1 without TLS,
// one exchange at a time on each connection, nothing in an answer believed
// that is not exactly HTTP/1.1.
type plain struct {
	config plainConfig
	idle   idleConns
	heads  sync.Pool // *[]byte: request heads being written
}

var _ Sender = (*plain)(nil)

// newPlain makes a Sender for the worker at c. It connects when first used.
func newPlain(c plainConfig) Sender {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = plainConnectTimeout
	}
	if c.MaxIdle == 0 {
		c.MaxIdle = plainMaxIdle
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = plainIdleTimeout
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	p := &plain{config: c}
	p.idle.max, p.idle.timeout = c.MaxIdle, c.IdleTimeout
	p.heads.New = func() any { return new([]byte) }
	return p
}

// Close drops the idle connections; see Sender.
func (p *plain) Close() { p.idle.close() }

// Send carries one exchange; see Sender. The request is written before the
// answer is read, so a worker that answers early is heard when it has read the
// request or has stopped reading by closing.
//
// A kept connection may have been closed by the worker just as the request
// left. When one breaks before the first byte of an answer, the request is
// sent once more on a new connection, unless r.Fresh, which never uses a kept
// one.
func (p *plain) Send(ctx context.Context, r *Request) (*Response, error) {
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
		if c := p.idle.get(); c != nil {
			x, fail := p.exchange(ctx, c, r, *head)
			if fail == nil {
				return &x.Response, nil
			}
			if c.heard || ctx.Err() != nil {
				return nil, fail
			}
			first = fail
		}
	}
	c, err := p.connect(ctx)
	if err != nil {
		if first != nil {
			// The worker may have seen the first attempt, so the phase stays.
			return nil, &SendError{Phase: first.Phase, Err: fmt.Errorf("the kept connection broke: %w; a new one: %w", first.Err, err)}
		}
		return nil, &SendError{Phase: PhaseConnect, Err: err}
	}
	x, fail := p.exchange(ctx, c, r, *head)
	if fail != nil {
		return nil, fail
	}
	return &x.Response, nil
}

// connect opens a new connection within ConnectTimeout.
func (p *plain) connect(ctx context.Context) (*plainConn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, p.config.ConnectTimeout)
	defer cancel()
	conn, err := p.config.Dial(dialCtx, p.config.Network, p.config.Address)
	switch {
	case err == nil:
		return newPlainConn(conn), nil
	case ctx.Err() != nil:
		return nil, cancelled(ctx)
	case dialCtx.Err() != nil:
		return nil, fmt.Errorf("no connection within %v (timeouts.connect): %w", p.config.ConnectTimeout, err)
	}
	return nil, err
}

// exchange writes the request on c and reads the answer's head. It owns c: when
// it fails c is closed, else the exchange's body gives c back.
func (p *plain) exchange(ctx context.Context, c *plainConn, r *Request, head []byte) (*plainExchange, *SendError) {
	x := &plainExchange{c: c, idle: &p.idle}
	if ctx.Done() != nil {
		x.stop = context.AfterFunc(ctx, func() { x.cancel(cancelled(ctx)) })
	}
	c.heard = false
	phase := PhaseAwait
	writeErr := c.write(head, r.Body)
	if writeErr == nil && r.Upload != nil {
		writeErr = c.upload(r.Upload, r.UploadLength)
	}
	if _, broken := errors.AsType[uploadError](writeErr); broken {
		x.release(false)
		if ctx.Err() != nil {
			writeErr = cancelled(ctx)
		}
		return nil, &SendError{Phase: PhaseWrite, Err: writeErr}
	}
	if writeErr != nil {
		phase = PhaseWrite
		// Fails only on a connection that is closed, which the read then finds.
		_ = c.conn.SetReadDeadline(time.Now().Add(plainLastWord))
	}
	err := x.readAnswer(r.Method)
	if err == nil {
		if writeErr != nil {
			x.keep = false
			_ = c.conn.SetReadDeadline(time.Time{})
		}
		x.begin()
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

// cancelled is the reason why ctx ended: errors.Is finds both ctx.Err and the
// cause that was given to the cancel function.
func cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
