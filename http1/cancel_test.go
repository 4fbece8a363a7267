package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

func TestCancellingEndsTheExchangeAndItsConnection(t *testing.T) {
	verifyNoLeaks(t)
	why := errors.New("the client left")
	check := func(t *testing.T, err error, phase Phase) {
		t.Helper()
		wantPhase(t, err, phase)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("%v does not wrap the cause of the cancellation", err)
		}
	}
	t.Run("connecting", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := New(Config{Host: "engine", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			cancel(why)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		_, err := s.Send(ctx, post("x"))
		check(t, err, PhaseConnect)
		_, err = s.Send(ctx, post("x"))
		check(t, err, PhaseConnect)
	})
	t.Run("writing", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		sent, left := make(chan struct{}), make(chan struct{})
		w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
			_, _ = in.ReadByte()
			cancel(why)
			<-sent // reading earlier would let the write complete
			waitForClose(in)
			close(left)
		})
		_, err := tcpClient(t, w.address).Send(ctx, post(strings.Repeat("x", 16<<20)))
		check(t, err, PhaseWrite)
		close(sent)
		<-left
	})
	for name, begun := range map[string]string{"awaiting": "", "awaiting the rest of a head": ok200 + "Content-Le"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			left := make(chan struct{})
			w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
				_, _ = readRequest(in)
				writeString(c, begun)
				cancel(why)
				waitForClose(in)
				close(left)
			})
			_, err := tcpClient(t, w.address).Send(ctx, post("x"))
			check(t, err, PhaseAwait)
			<-left
		})
	}
	t.Run("awaiting on a kept connection", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
			_, _ = readRequest(in)
			writeString(c, okAnswer)
			_, _ = readRequest(in)
			cancel(why)
			waitForClose(in)
		})
		dials := 0
		s := New(Config{Network: "tcp", Address: w.address, Host: "engine",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials++
				return new(net.Dialer).DialContext(ctx, network, address)
			}})
		defer s.Close()
		mustAnswer(t, s, post("x"), "ok")
		_, err := s.Send(ctx, post("x"))
		check(t, err, PhaseAwait)
		if dials != 1 {
			t.Errorf("a cancelled request was retried")
		}
	})
	for name, answer := range map[string]string{
		"reading a length": ok200 + "Content-Length: 20\r\n\r\npart",
		"reading chunks":   ok200 + "Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
		"reading to close": ok200 + "\r\npart",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			left := make(chan struct{})
			w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
				_, _ = readRequest(in)
				writeString(c, answer)
				waitForClose(in)
				close(left)
			})
			res, err := tcpClient(t, w.address).Send(ctx, post("x"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			cancel(why)
			<-left // without Close: the cancellation ends the connection
			_, err = res.Body.Read(make([]byte, 1))
			check(t, err, PhaseBody)
			if _, again := res.Body.Read(make([]byte, 1)); !errors.Is(again, err) {
				t.Errorf("the second error is %v", again)
			}
			_ = res.Body.Close()
		})
	}
}

func TestCancellingAfterTheEndHasNoEffect(t *testing.T) {
	verifyNoLeaks(t)
	l := listen(t, "tcp", "127.0.0.1:0")
	conns := echoServer(t, l)
	s := tcpClient(t, l.Addr().String())
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		res, err := s.Send(ctx, post("x"))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "x" {
			t.Fatalf("%q, %v", b, err)
		}
		cancel()
		_ = res.Body.Close()
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestClosingEarlyClosesTheConnection(t *testing.T) {
	verifyNoLeaks(t)
	left := make(chan struct{})
	w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
		_, _ = readRequest(in)
		writeString(c, ok200+"Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
		waitForClose(in)
		close(left)
	})
	res, err := tcpClient(t, w.address).Send(t.Context(), post("x"))
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		reading <- err
	}()
	// Close may come before or during the Read; both must return.
	for range 2 {
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	<-left
	if err := <-reading; !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("Read after Close: %v", err)
	}
}

func TestClosingKeepsAConnectionIfTheRestIsBuffered(t *testing.T) {
	for name, c := range map[string]struct {
		rest string
		kept bool
	}{
		"length":              {"Content-Length: 8\r\n\r\npartrest", true},
		"chunks":              {"Transfer-Encoding: chunked\r\n\r\n8\r\npartrest\r\n0\r\n\r\n", true},
		"chunks, end to come": {"Transfer-Encoding: chunked\r\n\r\n8\r\npartrest\r\n", false},
		"and more":            {"Content-Length: 8\r\n\r\npartrest!", false},
		"to close":            {"\r\npartrest", false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &recordedConn{in: ok200 + c.rest}
			p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
			defer p.Close()
			res, err := p.Send(t.Context(), post("x"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if _, err := res.Body.Read(make([]byte, 1)); err == nil {
				t.Error("reads after Close")
			}
			if kept := len(p.idle.conns) == 1; kept != c.kept || conn.closed == c.kept {
				t.Errorf("kept %v, closed %v", kept, conn.closed)
			}
		})
	}
}

// The answer may be complete before the context ends, but the cancellation closes the connection.
func TestCancelledConnectionIsNeverKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &recordedConn{in: okAnswer}
		p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
		defer p.Close()
		ctx, cancel := context.WithCancel(t.Context())
		res, err := p.Send(ctx, post("x"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "ok" {
			t.Errorf("got %q, %v", b, err)
		}
		if len(p.idle.conns) != 0 || !conn.closed {
			t.Error("a cancelled connection was kept")
		}
	})
}

// gatedConn is a recordedConn with a Read that first waits for the gate.
type gatedConn struct {
	*recordedConn
	gate chan struct{}
}

func (c gatedConn) Read(p []byte) (int, error) {
	<-c.gate
	return c.recordedConn.Read(p)
}

// Close takes effect at once, even if the Read then finds the proper end of the answer.
func TestClosingDuringAReadClosesTheConnection(t *testing.T) {
	for _, rest := range []string{"o", "ok"} {
		synctest.Test(t, func(t *testing.T) {
			conn := gatedConn{&recordedConn{in: ok200 + "Content-Length: 2\r\n\r\n"}, make(chan struct{})}
			p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
			defer p.Close()
			go func() { conn.gate <- struct{}{} }()
			res, err := p.Send(t.Context(), post("x"))
			if err != nil {
				t.Fatal(err)
			}
			conn.in = rest
			var n int
			go func() { n, err = res.Body.Read(make([]byte, 100)) }()
			synctest.Wait()
			if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, errTwoReaders) {
				t.Errorf("a second Read returned %v", err)
			}
			_ = res.Body.Close()
			if !conn.closed {
				t.Error("Close waits for the Read")
			}
			if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("a Read after Close, during the first Read, returned %v", err)
			}
			close(conn.gate)
			synctest.Wait()
			if n != len(rest) || err != nil {
				t.Errorf("Read returned %d bytes, %v", n, err)
			}
			if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("then %v", err)
			}
			if len(p.idle.conns) != 0 {
				t.Error("a closed connection was kept")
			}
		})
	}
}

// panickingConn is a connection with a Read that panics.
type panickingConn struct {
	recordedConn
	gone chan struct{}
}

func (*panickingConn) Read([]byte) (int, error) { panic("the reader has a bug") }

func (c *panickingConn) Close() error {
	close(c.gone)
	return nil
}

// When the context of the exchange ends, the connection is closed, although other code has recovered.
func TestPanicInReadClosesTheConnection(t *testing.T) {
	verifyNoLeaks(t)
	broken := &panickingConn{gone: make(chan struct{})}
	p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return broken, nil }})
	defer p.Close()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("reading did not panic")
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, _ = p.Send(ctx, post("{}"))
	}()
	<-broken.gone
	if len(p.idle.conns) != 0 {
		t.Errorf("%d connections are kept", len(p.idle.conns))
	}
}
