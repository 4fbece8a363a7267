package http1

import (
	"bufio"
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

// verifyNoLeaks fails the test when goroutines that it started outlive it.
func verifyNoLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// rawWorker accepts connections and hands each, with its number, to serve.
type rawWorker struct {
	address string
	conns   atomic.Int64
}

func newRawWorker(t *testing.T, serve func(i int, c net.Conn, in *bufio.Reader)) *rawWorker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// gone waits until the client has closed the connection.
func gone(in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) }

func say(c net.Conn, s string) { _, _ = io.WriteString(c, s) }

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

// ask sends r and reads the answer to its end.
func ask(t *testing.T, s *Client, r *Request) (status int, body string, err error) {
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

func mustAsk(t *testing.T, s *Client, r *Request, want string) {
	t.Helper()
	status, body, err := ask(t, s, r)
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

// tape is a connection on which the worker's side is recorded: each Read gives
// at most what step says, then comes the end.
type tape struct {
	in     string
	step   func() int // nil: all that fits
	sent   []byte
	closed bool
}

func (c *tape) Read(p []byte) (int, error) {
	if c.in == "" {
		return 0, io.EOF
	}
	n := len(c.in)
	if c.step != nil {
		n = min(n, c.step())
	}
	n = copy(p, c.in[:n])
	c.in = c.in[n:]
	return n, nil
}

func (c *tape) Write(p []byte) (int, error)      { c.sent = append(c.sent, p...); return len(p), nil }
func (c *tape) Close() error                     { c.closed = true; return nil }
func (c *tape) LocalAddr() net.Addr              { return nil }
func (c *tape) RemoteAddr() net.Addr             { return nil }
func (c *tape) SetDeadline(time.Time) error      { return nil }
func (c *tape) SetReadDeadline(time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(time.Time) error { return nil }

// received is what a caller got from one answer.
type received struct {
	status int
	header http.Header
	length int64
	body   string
	err    error
	kept   bool // the connection went back to the idle ones, no bigger than it was
}

// receive plays a recorded answer to a request with the method.
func receive(method, answer string, step func() int) received {
	c := &tape{in: answer, step: step}
	p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return c, nil }})
	defer p.Close()
	res, err := p.Send(context.Background(), &Request{Method: method, Path: "/"})
	if err != nil {
		return received{err: err}
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return received{
		status: res.Status, header: res.Header, length: res.ContentLength,
		body: string(body), err: err, kept: len(p.idle.conns) == 1 && len(p.idle.conns[0].buf) == bufferSize && !c.closed,
	}
}
