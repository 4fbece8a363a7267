package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// echo answers with the request's body, at once or, with ?stream, in flushed pieces.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !r.URL.Query().Has("stream") {
		_, _ = w.Write(body)
		return
	}
	for len(body) > 0 {
		n := min(len(body), 100)
		_, _ = w.Write(body[:n])
		w.(http.Flusher).Flush()
		body = body[n:]
	}
}

// echoServer serves echo on l and counts its connections.
func echoServer(t testing.TB, l net.Listener) *atomic.Int64 {
	t.Helper()
	var conns atomic.Int64
	s := &http.Server{Handler: http.HandlerFunc(echo), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-served })
	return &conns
}

func TestKeptConnectionCarriesTheNextExchange(t *testing.T) {
	verifyNoLeaks(t)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "engine.sock")
			}
			l := listen(t, network, address)
			conns := echoServer(t, l)
			s := New(Config{Network: network, Address: l.Addr().String(), Host: "engine"})
			defer s.Close()
			for i := range 10 {
				r := post(strings.Repeat("x", i*1000) + fmt.Sprint(i))
				r.Body = append(r.Body, nil, []byte("tail"))
				if i%2 == 1 {
					r.Path += "?stream"
				}
				mustAnswer(t, s, r, string(r.Body[0])+"tail")
			}
			if n := conns.Load(); n != 1 {
				t.Errorf("10 exchanges took %d connections", n)
			}
		})
	}
}

func TestFreshRequestNeverUsesAKeptConnection(t *testing.T) {
	verifyNoLeaks(t)
	l := listen(t, "tcp", "127.0.0.1:0")
	conns := echoServer(t, l)
	s := tcpClient(t, l.Addr().String())
	for range 4 {
		r := post("x")
		r.Fresh = true
		mustAnswer(t, s, r, "x")
	}
	if n := conns.Load(); n != 4 {
		t.Errorf("4 fresh exchanges took %d connections", n)
	}
}

// okAnswer is a complete answer after which the connection may be kept.
const okAnswer = ok200 + "Content-Length: 2\r\n\r\nok"

// breakingWorker serves one answer on the first connection. It breaks that connection at the second
// request after the bytes last. On all other connections it calls then.
func breakingWorker(t *testing.T, last string,
	then func(c net.Conn, in *bufio.Reader)) (w *rawWorker, requests *atomic.Int64) {
	requests = new(atomic.Int64)
	return newRawWorker(t, func(i int, c net.Conn, in *bufio.Reader) {
		if i > 0 {
			if body, err := readRequest(in); err == nil {
				if body != "b" {
					t.Errorf("the retry sent %q", body)
				}
				requests.Add(1)
				then(c, in)
			}
			return
		}
		for _, answer := range []string{okAnswer, last} {
			if _, err := readRequest(in); err != nil {
				return
			}
			requests.Add(1)
			writeString(c, answer)
		}
	}), requests
}

func TestStaleConnectionIsRetriedExactlyOnce(t *testing.T) {
	verifyNoLeaks(t)
	t.Run("retry answered", func(t *testing.T) {
		w, requests := breakingWorker(t, "", func(c net.Conn, in *bufio.Reader) {
			writeString(c, okAnswer)
			waitForClose(in)
		})
		s := tcpClient(t, w.address)
		mustAnswer(t, s, post("a"), "ok")
		mustAnswer(t, s, post("b"), "ok")
		if requests.Load() != 3 || w.conns.Load() != 2 {
			t.Errorf("%d requests on %d connections; want 3 on 2", requests.Load(), w.conns.Load())
		}
	})
	t.Run("retry broken too", func(t *testing.T) {
		w, requests := breakingWorker(t, "", func(net.Conn, *bufio.Reader) {})
		s := tcpClient(t, w.address)
		mustAnswer(t, s, post("a"), "ok")
		_, _, err := sendAndRead(t, s, post("b"))
		wantPhase(t, err, PhaseAwait)
		if requests.Load() != 3 || w.conns.Load() != 2 {
			t.Errorf("%d requests on %d connections; want 3 on 2", requests.Load(), w.conns.Load())
		}
	})
	t.Run("no retry after the first byte of an answer", func(t *testing.T) {
		w, requests := breakingWorker(t, "H", func(c net.Conn, _ *bufio.Reader) { writeString(c, okAnswer) })
		s := tcpClient(t, w.address)
		mustAnswer(t, s, post("a"), "ok")
		_, _, err := sendAndRead(t, s, post("b"))
		wantPhase(t, err, PhaseAwait)
		if requests.Load() != 2 {
			t.Errorf("%d requests; want 2", requests.Load())
		}
	})
	t.Run("no retry on a new connection", func(t *testing.T) {
		w := newRawWorker(t, func(_ int, _ net.Conn, in *bufio.Reader) { _, _ = readRequest(in) })
		_, _, err := sendAndRead(t, tcpClient(t, w.address), post("a"))
		wantPhase(t, err, PhaseAwait)
		if !errors.Is(err, io.ErrUnexpectedEOF) || w.conns.Load() != 1 {
			t.Errorf("%v on %d connections", err, w.conns.Load())
		}
	})
}

func TestOnceUsesAKeptConnectionAndIsNotRepeated(t *testing.T) {
	verifyNoLeaks(t)
	w, requests := breakingWorker(t, "", func(c net.Conn, _ *bufio.Reader) { writeString(c, okAnswer) })
	s := tcpClient(t, w.address)
	mustAnswer(t, s, post("a"), "ok")
	once := post("b")
	once.Once = true
	_, _, err := sendAndRead(t, s, once)
	wantPhase(t, err, PhaseAwait)
	if requests.Load() != 2 || w.conns.Load() != 1 {
		t.Errorf("%d requests on %d connections; want 2 on 1", requests.Load(), w.conns.Load())
	}
	if e, _ := errors.AsType[*SendError](err); !e.Kept {
		t.Error("the error does not say that the connection was kept")
	}
}

// TestOnceUsesNoConnectionThatWasIdleForASecond: its server may close it just as the request is sent. Other requests
// use it.
func TestOnceUsesNoConnectionThatWasIdleForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) {
			dials++
			here, there := net.Pipe()
			go func() {
				for in := bufio.NewReader(there); ; {
					if _, err := readRequest(in); err != nil {
						return
					}
					writeString(there, okAnswer)
				}
			}()
			return here, nil
		}})
		defer s.Close()
		once := post("b")
		once.Once = true
		mustAnswer(t, s, once, "ok")
		time.Sleep(onceIdle - 1)
		mustAnswer(t, s, once, "ok")
		if dials != 1 {
			t.Errorf("%d connections", dials)
		}
		time.Sleep(onceIdle)
		mustAnswer(t, s, once, "ok")
		if dials != 2 || len(s.idle.conns) != 2 {
			t.Errorf("%d connections, %d of them idle", dials, len(s.idle.conns))
		}
		time.Sleep(onceIdle)
		mustAnswer(t, s, post("a"), "ok")
		if dials != 2 {
			t.Errorf("%d connections", dials)
		}
	})
}

// breaksLater is a connection on which each write after the first fails and sends nothing.
type breaksLater struct {
	net.Conn
	writes int
}

func (c *breaksLater) Write(p []byte) (int, error) {
	if c.writes++; c.writes > 2 { // a pipe takes the head and the body one after the other
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// TestARequestOfWhichNothingWasSentGetsANewConnection, even with Once.
func TestARequestOfWhichNothingWasSentGetsANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				for in := bufio.NewReader(there); ; {
					if _, err := readRequest(in); err != nil {
						return
					}
					writeString(there, okAnswer)
				}
			}()
			return &breaksLater{Conn: here}, nil
		}})
		defer s.Close()
		once := post("b")
		once.Once = true
		start := time.Now()
		for range 3 {
			mustAnswer(t, s, once, "ok")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("answered after %v", took)
		}
	})
}

func TestFailedRetryKeepsThePhaseOfTheFirstAttempt(t *testing.T) {
	verifyNoLeaks(t)
	dials := 0
	w, _ := breakingWorker(t, "", func(net.Conn, *bufio.Reader) {})
	s := New(Config{Network: "tcp", Address: w.address, Host: "engine",
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, errors.New("refused")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
	defer s.Close()
	mustAnswer(t, s, post("a"), "ok")
	_, _, err := sendAndRead(t, s, post("b"))
	wantPhase(t, err, PhaseAwait)
	if !strings.Contains(err.Error(), "refused") {
		t.Errorf("the cause of the retry is missing: %v", err)
	}
}

// The client detects the state of an idle connection before it sends a request on it.
func TestDeadIdleConnectionIsNotUsed(t *testing.T) {
	verifyNoLeaks(t)
	for name, last := range map[string]string{"closed": "", "unasked bytes": "HTTP/1.1 200 OK\r\n"} {
		t.Run(name, func(t *testing.T) {
			var answered atomic.Int64
			speak := make(chan struct{})
			w := newRawWorker(t, func(i int, c net.Conn, in *bufio.Reader) {
				if _, err := readRequest(in); err != nil {
					return
				}
				answered.Add(1)
				writeString(c, okAnswer)
				if i == 0 {
					<-speak
					writeString(c, last)
					if last == "" {
						return
					}
				}
				if _, err := readRequest(in); err == nil {
					t.Error("a dead connection carried a second request")
				}
			})
			s := tcpClient(t, w.address)
			mustAnswer(t, s, post("a"), "ok")
			kept := s.idle.conns[0]
			close(speak)
			for kept.quiet() {
				runtime.Gosched()
			}
			if last != "" {
				// The first check has read a byte; the next check must detect the rest.
				for kept.quiet() {
					runtime.Gosched()
				}
			}
			mustAnswer(t, s, post("b"), "ok")
			if answered.Load() != 2 || w.conns.Load() != 2 {
				t.Errorf("%d answers on %d connections; want 2 on 2", answered.Load(), w.conns.Load())
			}
			s.Close()
		})
	}
}

// A worker that answers 413 and closes without reading the rest breaks the write. Its answer is
// returned.
func TestEarlyRejectionIsRead(t *testing.T) {
	verifyNoLeaks(t)
	w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
		_, _ = in.ReadString('\n')
		writeString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
	})
	s := tcpClient(t, w.address)
	status, body, err := sendAndRead(t, s, post(strings.Repeat("x", 16<<20)))
	if err != nil || status != 413 || body != "big" {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	if len(s.idle.conns) != 0 {
		t.Error("a connection with an incomplete request was kept")
	}
}

// brokenPipe is a connection on which writes fail.
type brokenPipe struct{ net.Conn }

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenWriteWaitsOneSecondForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) {
			return brokenPipe{here}, nil
		}})
		start := time.Now()
		_, err := s.Send(t.Context(), post("x"))
		wantPhase(t, err, PhaseConnect)
		if !errors.Is(err, io.ErrClosedPipe) || time.Since(start) != refusalWait {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestConnectingEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Host: "engine", ConnectTimeout: 3 * time.Second,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
		start := time.Now()
		_, err := s.Send(t.Context(), post("x"))
		wantPhase(t, err, PhaseConnect)
		if !strings.Contains(err.Error(), "timeouts.connect") || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestIdleConnectionsAreLimitedAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			open.Add(1)
			go func() {
				defer open.Add(-1)
				in := bufio.NewReader(there)
				for {
					if _, err := readRequest(in); err != nil {
						return
					}
					writeString(there, ok200+"Content-Length: 2\r\n\r\n")
					writeString(there, "ok")
				}
			}()
			return here, nil
		}})
		s.idle.max, s.idle.timeout = 2, 10*time.Second
		var held []*Response
		for range 3 {
			res, err := s.Send(t.Context(), post("x"))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, res)
		}
		count := func(want int64) {
			t.Helper()
			synctest.Wait()
			if n := open.Load(); n != want {
				t.Fatalf("%d connections are open; want %d", n, want)
			}
		}
		count(3)
		for _, res := range held {
			if _, err := io.ReadAll(res.Body); err != nil {
				t.Fatal(err)
			}
		}
		count(2) // the maximum of idle connections
		time.Sleep(6 * time.Second)
		mustAnswer(t, s, post("x"), "ok")
		time.Sleep(4 * time.Second)
		count(1) // the connection without use for 10 s is closed
		time.Sleep(6 * time.Second)
		count(0)
		mustAnswer(t, s, post("x"), "ok")
		count(1)
		s.Close()
		count(0)
		mustAnswer(t, s, post("x"), "ok")
		count(0) // after Close no connection is kept
	})
}

func TestConcurrentExchangesGetTheirOwnAnswers(t *testing.T) {
	verifyNoLeaks(t)
	l := listen(t, "tcp", "127.0.0.1:0")
	echoServer(t, l)
	s := tcpClient(t, l.Addr().String())
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			for i := range 20 {
				want := strings.Repeat(fmt.Sprintf("%d.%d ", g, i), 1+i*i*3)
				r := post(want)
				r.Fresh = i%7 == 3
				if i%2 == 0 {
					r.Path += "?stream"
				}
				ctx, cancel := context.WithCancel(t.Context())
				res, err := s.Send(ctx, r)
				if err != nil {
					t.Error(err)
					cancel()
					continue
				}
				switch i % 5 {
				case 3:
					go cancel()
				case 4:
					go res.Body.Close()
				}
				got, err := io.ReadAll(res.Body)
				if !strings.HasPrefix(want, string(got)) || (err == nil && len(got) != len(want)) || (err != nil && i%5 < 3) {
					t.Errorf("%d.%d: got %d bytes of %d, %v", g, i, len(got), len(want), err)
				}
				_ = res.Body.Close()
				cancel()
			}
		})
	}
	all.Wait()
}

func TestStreamsArriveAsTheyAreSent(t *testing.T) {
	verifyNoLeaks(t)
	read := make(chan string)
	w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
		_, _ = readRequest(in)
		// An incomplete chunk is returned before it ends, and complete ones at once.
		for _, step := range []struct{ send, want string }{
			{ok200 + "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n", "one"},
			{"3\r\ntwo\r\n5\r\nthree\r\n", "twothree"},
			{"9\r\nfo", "fo"},
			{"ur", "ur"},
			{"-five\r\n3\r\nsix", "-fivesix"},
			{"\r\n0\r\n\r\n", ""},
		} {
			writeString(c, step.send)
			if got := <-read; got != step.want {
				t.Errorf("read %q; want %q", got, step.want)
			}
		}
	})
	res, err := tcpClient(t, w.address).Send(t.Context(), post("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for b := make([]byte, 100); ; {
		n, err := res.Body.Read(b)
		if err != nil && err != io.EOF {
			t.Error(err)
		}
		read <- string(b[:n])
		if err != nil {
			break
		}
	}
}

// The budget covers the values that the caller receives.
func TestExchangeAllocatesLittle(t *testing.T) {
	conn := new(recordedConn)
	s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := post("x")
	buf := make([]byte, 100)
	n := testing.AllocsPerRun(100, func() {
		conn.in, conn.sent = ok200+"Date: now\r\nServer: uvicorn\r\nContent-Type: text/event-stream\r\nX-Request-Id: "+
			"1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", conn.sent[:0]
		res, err := s.Send(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = res.Body.Read(buf)
		}
		_ = res.Body.Close()
	})
	// Eight, and more with the race detector because of sync.Pool.
	if n > 12 {
		t.Errorf("%v allocations", n)
	}
}
