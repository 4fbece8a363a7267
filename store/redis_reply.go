package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Bounds of one reply of Redis. The client allocates the length that a reply announces before the reply has come, and
// calls itself for each level of it. The largest real replies are the loads of other gateways, 64 bytes for each of
// their workers, and the slots of a cluster.
const (
	maxReplyLine     = 64 << 10 // bytes of a line, and of an error, which is logged
	maxReplyString   = 8 << 20  // bytes of a string
	maxReplyBytes    = 64 << 20
	maxReplyElements = 1 << 19 // of all lists and maps
	maxReplyDepth    = 16
)

// errReply is the error of a connection with a reply over the bounds, or with one that is no reply.
var errReply = errors.New("Redis sent a reply over the bounds of this client")

// dialFunc opens a connection.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// boundReplies returns the dialer of a client: dial, or without one the client's own. Its connections end at the
// first reply over the bounds, before the client reads that reply's length.
func boundReplies(o *redis.UniversalOptions, dial dialFunc) dialFunc {
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		bounded := &boundedConn{Conn: c}
		if raw, ok := c.(syscall.Conn); ok { // by which the client finds that an idle connection has ended
			return &boundedSocket{bounded, raw}, nil
		}
		return bounded, nil
	}
}

// boundedConn is a connection to Redis that checks what it reads.
type boundedConn struct {
	net.Conn
	replies replyChecker
}

// boundedSocket is a boundedConn of a socket.
type boundedSocket struct {
	*boundedConn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c *boundedSocket) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// Read implements net.Conn. After an error of the bounds, nothing more is read.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.replies.err != nil {
		return 0, c.replies.err
	}
	n, err := c.Conn.Read(p)
	if faulty := c.replies.check(p[:n]); faulty != nil {
		return 0, faulty
	}
	return n, err
}

// replyChecker follows the replies of one connection, in any split into reads. The zero value is at the start of a
// reply.
type replyChecker struct {
	err      error // first error of the connection
	kind     byte  // of the value in the current line; 0 at its start
	line     int   // bytes of the current line
	number   int64 // its length or count
	negative bool
	digits   int
	rest     int64 // bytes of a string that follow, with its line end

	open     []openReply // lists and maps that are not complete, the outermost first
	bytes    int64       // of the strings of the reply
	elements int64
}

// openReply is a list or map in a reply.
type openReply struct {
	left      int64 // elements that follow
	attribute bool  // it precedes the value that it describes, and is no value itself
}

// check follows the next bytes. It returns an error from the end of the line on that exceeds a bound.
func (r *replyChecker) check(b []byte) error {
	for len(b) > 0 && r.err == nil {
		if r.rest > 0 {
			n := min(r.rest, int64(len(b)))
			b = b[n:]
			if r.rest -= n; r.rest == 0 {
				r.endValue()
			}
			continue
		}
		r.err = r.addToLine(b[0])
		b = b[1:]
	}
	return r.err
}

// addToLine follows one byte of a line.
func (r *replyChecker) addToLine(c byte) error {
	if r.line++; r.line > maxReplyLine {
		return fmt.Errorf("%w: a line of more than %d bytes", errReply, maxReplyLine)
	}
	switch {
	case c == '\n':
		return r.endLine()
	case r.kind == 0:
		r.kind = c
	case !r.hasLength() || c == '\r':
	case c == '-' && r.line == 2:
		r.negative = true
	case c < '0' || c > '9':
		return fmt.Errorf("%w: a length that is no number", errReply)
	default:
		if r.digits++; r.digits > 18 {
			return fmt.Errorf("%w: a length of more than 18 digits", errReply)
		}
		r.number = 10*r.number + int64(c-'0')
	}
	return nil
}

// hasLength reports whether the line has the length of a string, or the number of elements of a list or map.
func (r *replyChecker) hasLength() bool { return r.isString() || r.isList() }

func (r *replyChecker) isString() bool { return r.kind == '$' || r.kind == '!' || r.kind == '=' }

func (r *replyChecker) isList() bool {
	return r.kind == '*' || r.kind == '~' || r.kind == '>' || r.kind == '%' || r.kind == '|'
}

// endLine follows the end of a line.
func (r *replyChecker) endLine() error {
	kind, n := r.kind, r.number
	isString, isList := r.isString(), r.isList()
	if r.negative {
		n = -1 // no value
	}
	r.kind, r.line, r.number, r.negative, r.digits = 0, 0, 0, false, 0
	switch {
	case isString && n >= 0:
		if r.bytes += n; n > maxReplyString || kind == '!' && n > maxReplyLine || r.bytes > maxReplyBytes {
			return fmt.Errorf("%w: a string of %d bytes, after %d of the same reply", errReply, n, r.bytes-n)
		}
		r.rest = n + int64(len("\r\n"))
		return nil
	case isList && n > 0:
		if r.elements += n; r.elements > maxReplyElements {
			return fmt.Errorf("%w: a list of %d elements, after %d of the same reply", errReply, n, r.elements-n)
		}
		if len(r.open) == maxReplyDepth {
			return fmt.Errorf("%w: more than %d lists in each other", errReply, maxReplyDepth)
		}
		if kind == '%' || kind == '|' {
			n *= 2
		}
		r.open = append(r.open, openReply{left: n, attribute: kind == '|'})
		return nil
	case kind == '|':
		return nil
	}
	r.endValue()
	return nil
}

// endValue follows the end of a value, which also ends each list that has no further elements.
func (r *replyChecker) endValue() {
	for last := len(r.open) - 1; last >= 0; last-- {
		list := &r.open[last]
		if list.left--; list.left > 0 {
			return
		}
		attribute := list.attribute
		if r.open = r.open[:last]; attribute {
			return
		}
	}
	r.bytes, r.elements = 0, 0
}
