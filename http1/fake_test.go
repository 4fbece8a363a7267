package http1

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// verifyNoLeaks fails the test if goroutines that it started outlive it.
func verifyNoLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// listen listens on a socket of the kernel: the client looks into it for the end of a kept connection.
func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rawWorker accepts connections and calls serve with each of them and its number.
type rawWorker struct {
	address string
	conns   atomic.Int64
}

func newRawWorker(t *testing.T, serve func(i int, c net.Conn, in *bufio.Reader)) *rawWorker {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	w := &rawWorker{address: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			i := int(w.conns.Add(1)) - 1
			all.Go(func() {
				defer c.Close()
				serve(i, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return w
}

// readRequest reads one whole request and returns its body.
func readRequest(in *bufio.Reader) (string, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// waitForClose waits until the client has closed the connection.
func waitForClose(in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) }

func writeString(c net.Conn, s string) { _, _ = io.WriteString(c, s) }

func tcpClient(t *testing.T, address string) *Client {
	t.Helper()
	p := New(Config{Network: "tcp", Address: address, Host: "engine"})
	t.Cleanup(p.Close)
	return p
}

func post(body string) *Request {
	return &Request{
		Method: "POST", Path: "/v1/chat/completions",
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   [][]byte{[]byte(body)},
	}
}

// sendAndRead sends r and reads the answer to its end.
func sendAndRead(t *testing.T, s *Client, r *Request) (status int, body string, err error) {
	t.Helper()
	res, err := s.Send(t.Context(), r)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(res.Body)
	if cerr := res.Body.Close(); cerr != nil {
		t.Error(cerr)
	}
	return res.Status, string(b), err
}

func mustAnswer(t *testing.T, s *Client, r *Request, want string) {
	t.Helper()
	status, body, err := sendAndRead(t, s, r)
	if err != nil || status != 200 || body != want {
		t.Fatalf("got %d %q, %v; want 200 %q", status, body, err, want)
	}
}

func wantPhase(t *testing.T, err error, phase Phase) {
	t.Helper()
	var e *SendError
	if !errors.As(err, &e) || e.Phase != phase {
		t.Fatalf("got %v; want a SendError of phase %d", err, phase)
	}
}

// recordedConn is a connection with recorded input. Each Read returns at most step() bytes; then
// the input ends: the first Read returns fault, and later ones io.EOF, as after a reset of a socket.
type recordedConn struct {
	in     string
	fault  error
	step   func() int // nil: no limit
	sent   []byte
	closed bool
}

func (c *recordedConn) Read(p []byte) (int, error) {
	if c.in == "" {
		fault := c.fault
		c.fault = nil
		return 0, cmp.Or(fault, io.EOF)
	}
	n := len(c.in)
	if c.step != nil {
		n = min(n, c.step())
	}
	n = copy(p, c.in[:n])
	c.in = c.in[n:]
	return n, nil
}

func (c *recordedConn) Write(p []byte) (int, error) {
	c.sent = append(c.sent, p...)
	return len(p), nil
}
func (c *recordedConn) Close() error                     { c.closed = true; return nil }
func (c *recordedConn) LocalAddr() net.Addr              { return nil }
func (c *recordedConn) RemoteAddr() net.Addr             { return nil }
func (c *recordedConn) SetDeadline(time.Time) error      { return nil }
func (c *recordedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *recordedConn) SetWriteDeadline(time.Time) error { return nil }

// received is one answer as its caller received it.
type received struct {
	status int
	header http.Header
	length int64
	body   string
	err    error
	kept   bool // the connection is idle, without a buffer
}

// waitingReader waits before each read.
type waitingReader struct{ body io.Reader }

func (r waitingReader) Read(p []byte) (int, error) {
	r.body.(interface{ Wait() }).Wait()
	return r.body.Read(p)
}

// replayAnswer sends a request with the method over a recordedConn and returns the answer.
func replayAnswer(method, answer string, step func() int) received {
	c := &recordedConn{in: answer, step: step}
	p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return c, nil }})
	defer p.Close()
	res, err := p.Send(context.Background(), &Request{Method: method, Path: "/"})
	if err != nil {
		return received{err: err}
	}
	body, err := io.ReadAll(waitingReader{res.Body})
	_ = res.Body.Close()
	return received{
		status: res.Status, header: res.Header, length: res.ContentLength,
		body: string(body), err: err, kept: len(p.idle.conns) == 1 && p.idle.conns[0].buf == nil && !c.closed,
	}
}
