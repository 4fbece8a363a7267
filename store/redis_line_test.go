package store

import (
	"cmp"
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"tierway/memnet"
)

// line is a Redis in memory, and the network to it, for tests in virtual time. It is the place of faults: no
// connection, lost answers, late answers.
type line struct {
	*miniredis.Miniredis
	network *memnet.Network

	listener  net.Listener // nil: killed; used by the test's goroutine
	accepting sync.WaitGroup
	served    []net.Conn // used by the goroutine that accepts, then by the test's

	mu       sync.Mutex
	hung     chan struct{} // closed when a hang ends; nil: no hang
	delay    time.Duration // of each nth answer
	nth      int
	requests int
}

const lineAddress = "127.0.0.1:6379"

// newLine returns the line to an empty Redis.
func newLine(t testing.TB) *line {
	t.Helper()
	l := &line{Miniredis: miniredis.NewMiniRedis(), network: memnet.New()}
	c, err := l.Dial() // this starts it without a listener of its own
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	l.restart()
	t.Cleanup(func() {
		l.kill()
		l.Close()
	})
	return l
}

// newMini returns a line whose clock only the test moves.
func newMini(t testing.TB) *line {
	t.Helper()
	l := newLine(t)
	l.SetTime(noon())
	return l
}

// open returns the Redis of a new gateway at the end of the line. It is called gw if c has no name.
func (l *line) open(t testing.TB, c RedisConfig) *watched {
	t.Helper()
	c.URL, c.Dial, c.Gateway = "redis://"+lineAddress, l.dial, cmp.Or(c.Gateway, "gw")
	return openRedis(t, c)
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	inner, err := l.network.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lineConn{Conn: inner, line: l, closed: make(chan struct{})}, nil
}

// kill ends the Redis: its data is lost, its connections end and new ones are refused.
func (l *line) kill() {
	if l.listener == nil {
		return
	}
	_ = l.listener.Close()
	l.accepting.Wait() // no connection is accepted later
	l.listener = nil
	for _, c := range l.served {
		_ = c.Close()
	}
	l.served = nil
	l.FlushAll()
}

// restart starts the Redis again after kill.
func (l *line) restart() {
	listener, err := l.network.Listen("tcp", lineAddress)
	if err != nil {
		panic(err) // it was not killed
	}
	l.listener = listener
	l.accepting.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.served = append(l.served, c)
			l.Server().ServeConn(c)
		}
	})
}

// hang makes Redis answer nothing. It still executes what it receives, as a stopped process does later.
func (l *line) hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = make(chan struct{})
}

// resume ends a hang.
func (l *line) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.hung)
	l.hung = nil
}

// slow delays each answer.
func (l *line) slow(d time.Duration) { l.slowEach(1, d) }

// slowEach delays each nth answer.
func (l *line) slowEach(n int, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nth, l.delay, l.requests = n, d, 0
}

// nextDelay returns the delay of the answer to the next request.
func (l *line) nextDelay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests++; l.nth > 0 && l.requests%l.nth == 0 {
		return l.delay
	}
	return 0
}

// hangs returns the channel that is closed when the present hang ends, or nil.
func (l *line) hangs() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hung
}

// lineConn is a gateway's end of a connection.
type lineConn struct {
	net.Conn
	line   *line
	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex
	deadline time.Time // of reads
	ready    time.Time // of the answer
}

// Write sends a request.
func (c *lineConn) Write(p []byte) (int, error) {
	ready := time.Now().Add(c.line.nextDelay())
	c.mu.Lock()
	c.ready = ready
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Read returns bytes of an answer when it is ready. An answer of several reads is late once. If the deadline is
// earlier, the bytes are lost: the client closes the connection then.
func (c *lineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	c.mu.Lock()
	ready, deadline := c.ready, c.deadline
	c.mu.Unlock()
	end, delay := c.line.hangs(), time.Until(ready)
	if end == nil && delay <= 0 {
		return n, nil
	}
	var expired, arrived <-chan time.Time
	if !deadline.IsZero() {
		expired = time.After(time.Until(deadline))
	}
	if end == nil {
		arrived = time.After(delay)
	}
	select {
	case <-end:
		return n, nil
	case <-arrived:
		return n, nil
	case <-expired:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *lineConn) SetDeadline(t time.Time) error {
	c.setDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *lineConn) SetReadDeadline(t time.Time) error {
	c.setDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *lineConn) setDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
}

func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
