package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Socket is a ZeroMQ socket type.
type Socket string

// The socket types of this package.
const (
	Sub    Socket = "SUB"    // reads the messages of a PUB or XPUB
	Dealer Socket = "DEALER" // sends requests to a ROUTER and reads its replies
	Pub    Socket = "PUB"    // sends messages to SUBs, for simulated engines
	Router Socket = "ROUTER" // answers requests, for simulated engines
)

// peers returns the socket types that a socket may be connected to.
func (s Socket) peers() [2]string {
	switch s {
	case Sub:
		return [2]string{"PUB", "XPUB"}
	case Pub:
		return [2]string{"SUB", "XSUB"}
	case Router:
		return [2]string{"DEALER", "REQ"}
	}
	return [2]string{"ROUTER", "REP"}
}

// Bounds of liveness. Together they are less than the 5 s in which a lost stream is reported.
const (
	Heartbeat = time.Second     // silence after which the connection sends a PING
	Patience  = 3 * time.Second // further silence after which the connection counts as lost
)

// Errors of a connection. Each may be wrapped; use [errors.Is].
var (
	ErrProtocol = errors.New("zmtp: protocol violation")
	ErrLimit    = errors.New("zmtp: message over the limit")
	ErrSilent   = errors.New("zmtp: the peer does not answer")
)

// Limits bound one message of a peer. The zero value means the defaults.
type Limits struct {
	Parts int // parts of a message; default 8
	Bytes int // bytes of all parts of a message; default 4 MiB
	First int // bytes of the first part; default Bytes
}

func (l Limits) withDefaults() Limits {
	if l.Parts == 0 {
		l.Parts = 8
	}
	if l.Bytes == 0 {
		l.Bytes = 4 << 20
	}
	if l.First == 0 {
		l.First = l.Bytes
	}
	return l
}

// Conn is one connection with a finished handshake. One goroutine may receive while others send,
// and Close may be called at any time.
type Conn struct {
	conn   net.Conn
	in     *bufio.Reader
	limits Limits
	body   []byte // body of the command being read

	sending sync.Mutex
	out     []byte // frames of the message being sent

	heartbeats heartbeats
	pingedAt   time.Time // time of the PING of Subscribe; zero without
	pinged     bool      // a PING was sent since the last byte was received
}

// heartbeats is the state of the peer's answers to PING.
type heartbeats int

const (
	heartbeatsUntried  heartbeats = iota
	heartbeatsAnswered            // a PONG has arrived: silence means that the peer is gone
	heartbeatsIgnored             // no PONG has arrived: no more PINGs, TCP keep-alive decides
)

// Handshake exchanges greeting and READY on a new connection. The connection then belongs to the Conn; on an
// error Handshake closes it. The context bounds the handshake, which takes at most [Patience].
func Handshake(ctx context.Context, nc net.Conn, socket Socket, limits Limits) (*Conn, error) {
	deadline := time.Now().Add(Patience)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c := &Conn{conn: nc, in: newReader(nc), limits: limits.withDefaults()}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	err := nc.SetDeadline(deadline)
	if err == nil {
		err = c.greet(socket)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

func newReader(nc net.Conn) *bufio.Reader { return bufio.NewReaderSize(nc, 16<<10) }

// Close ends the connection. A Receive that waits returns an error.
func (c *Conn) Close() error { return c.conn.Close() }

// Subscribe subscribes to the messages with a first part that begins with a topic; "" means all messages.
// The first call also sends a PING: its answer decides whether PINGs or TCP keep-alive detect a loss of the
// peer. Subscribe must not run concurrently with Receive.
func (c *Conn) Subscribe(topic string) error {
	if err := c.Send(append([]byte{1}, topic...)); err != nil || !c.pingedAt.IsZero() {
		return err
	}
	c.pingedAt = time.Now()
	return c.sendPing()
}

// Send writes one message.
func (c *Conn) Send(parts ...[]byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.out = appendMessage(c.out[:0], parts...)
	return c.writeLocked()
}

func (c *Conn) sendCommand(name string, data []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.out = appendCommand(c.out[:0], name, data)
	return c.writeLocked()
}

func (c *Conn) writeLocked() error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	_, err := c.conn.Write(c.out)
	return err
}

// Frame flags.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// header reads the flags and the size of the next frame, and checks the peer's liveness.
func (c *Conn) header() (flags byte, size uint64, err error) {
	head, err := c.peek(2)
	if err != nil {
		return 0, 0, err
	}
	flags, size = head[0], uint64(head[1])
	n := 2
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, 0, fmt.Errorf("%w: frame flags %#x", ErrProtocol, flags)
	}
	if flags&flagLong != 0 {
		if head, err = c.peek(9); err != nil {
			return 0, 0, err
		}
		size, n = binary.BigEndian.Uint64(head[1:]), 9
	}
	_, err = c.in.Discard(n)
	return flags, size, err
}

// peek waits until n bytes have arrived. While nothing arrives it sends a PING after Heartbeat,
// and detects a lost peer as described in the package documentation.
func (c *Conn) peek(n int) ([]byte, error) {
	if c.in.Buffered() >= n {
		return c.in.Peek(n)
	}
	for {
		before := c.in.Buffered()
		c.conn.SetReadDeadline(c.readDeadline()) // fails with the connection, as Peek then does
		b, err := c.in.Peek(n)
		if c.in.Buffered() > before {
			c.pinged = false
		}
		switch {
		case err == nil:
			return b, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			if len(b) > 0 {
				err = unexpectedEnd(err)
			}
			return nil, err
		case c.in.Buffered() > before: // part of the n bytes arrived
		case !c.pinged && c.ignoresPings():
			c.heartbeats = heartbeatsIgnored
		case !c.pinged:
			c.pinged = true
			if err := c.sendPing(); err != nil {
				return nil, err
			}
		case c.heartbeats == heartbeatsAnswered:
			return nil, fmt.Errorf("%w for %v", ErrSilent, Heartbeat+Patience)
		default:
			c.heartbeats = heartbeatsIgnored
		}
	}
}

// ignoresPings reports whether the peer has not answered the PING of Subscribe within Patience. A PING to
// such a peer would delay TCP's keep-alive, which alone detects its loss.
func (c *Conn) ignoresPings() bool {
	return c.heartbeats == heartbeatsUntried && !c.pingedAt.IsZero() && time.Since(c.pingedAt) > Patience
}

// readDeadline is the time at which silence leads to a PING or to ErrSilent; zero if it leads to neither.
// While a PING is not acknowledged, TCP sends no keep-alive probes. A peer that ignores PINGs must
// therefore receive none.
func (c *Conn) readDeadline() time.Time {
	switch {
	case c.heartbeats == heartbeatsIgnored:
		return time.Time{}
	case c.pinged:
		return time.Now().Add(Patience)
	}
	return time.Now().Add(Heartbeat)
}

// unexpectedEnd returns io.ErrUnexpectedEOF for an io.EOF inside a message.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
