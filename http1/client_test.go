package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// echo answers with the request's body: whole, or with ?stream in flushed
// pieces.
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

func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAKeptConnectionCarriesTheNextExchange(t *testing.T) {
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
				mustAsk(t, s, r, string(r.Body[0])+"tail")
			}
			if n := conns.Load(); n != 1 {
				t.Errorf("10 exchanges took %d connections", n)
			}
		})
	}
}

func TestAFreshRequestNeverUsesAKeptConnection(t *testing.T) {
	verifyNoLeaks(t)
	l := listen(t, "tcp", "127.0.0.1:0")
	conns := echoServer(t, l)
	s := tcpClient(t, l.Addr().String())
	for range 4 {
		r := post("x")
		r.Fresh = true
		mustAsk(t, s, r, "x")
	}
	if n := conns.Load(); n != 4 {
		t.Errorf("4 fresh exchanges took %d connections", n)
	}
}

// answer2 is a whole answer whose connection may be kept.
const answer2 = ok200 + "Content-Length: 2\r\n\r\nok"

// breaking serves one proper answer on the first connection, breaks it at the
// second request after the bytes last, and goes on with then on the others.
func breaking(t *testing.T, last string,
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
		for _, answer := range []string{answer2, last} {
			if _, err := readRequest(in); err != nil {
				return
			}
			requests.Add(1)
			say(c, answer)
		}
	}), requests
}

func TestAStaleConnectionIsRetriedExactlyOnce(t *testing.T) {
	verifyNoLeaks(t)
	t.Run("and the retry answers", func(t *testing.T) {
		w, requests := breaking(t, "", func(c net.Conn, in *bufio.Reader) { say(c, answer2); gone(in) })
		s := tcpClient(t, w.address)
		mustAsk(t, s, post("a"), "ok")
		mustAsk(t, s, post("b"), "ok")
		if requests.Load() != 3 || w.conns.Load() != 2 {
			t.Errorf("%d requests on %d connections; want 3 on 2", requests.Load(), w.conns.Load())
		}
	})
	t.Run("and the retry breaks too", func(t *testing.T) {
		w, requests := breaking(t, "", func(net.Conn, *bufio.Reader) {})
		s := tcpClient(t, w.address)
		mustAsk(t, s, post("a"), "ok")
		_, _, err := ask(t, s, post("b"))
		wantPhase(t, err, PhaseAwait)
		if requests.Load() != 3 || w.conns.Load() != 2 {
			t.Errorf("%d requests on %d connections; want 3 on 2", requests.Load(), w.conns.Load())
		}
	})
	t.Run("not after the first byte of an answer", func(t *testing.T) {
		w, requests := breaking(t, "H", func(c net.Conn, _ *bufio.Reader) { say(c, answer2) })
		s := tcpClient(t, w.address)
		mustAsk(t, s, post("a"), "ok")
		_, _, err := ask(t, s, post("b"))
		wantPhase(t, err, PhaseAwait)
		if requests.Load() != 2 {
			t.Errorf("%d requests; want 2", requests.Load())
		}
	})
	t.Run("nor when the connection was new", func(t *testing.T) {
		w := newRawWorker(t, func(_ int, _ net.Conn, in *bufio.Reader) { _, _ = readRequest(in) })
		_, _, err := ask(t, tcpClient(t, w.address), post("a"))
		wantPhase(t, err, PhaseAwait)
		if !errors.Is(err, io.ErrUnexpectedEOF) || w.conns.Load() != 1 {
			t.Errorf("%v on %d connections", err, w.conns.Load())
		}
	})
}

func TestAWorkerThatDiedKeepsThePhaseOfTheFirstAttempt(t *testing.T) {
	verifyNoLeaks(t)
	dials := 0
	w, _ := breaking(t, "", func(net.Conn, *bufio.Reader) {})
	s := New(Config{Network: "tcp", Address: w.address, Host: "engine",
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, errors.New("refused")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
	defer s.Close()
	mustAsk(t, s, post("a"), "ok")
	_, _, err := ask(t, s, post("b"))
	wantPhase(t, err, PhaseAwait)
	if !strings.Contains(err.Error(), "refused") {
		t.Errorf("the second cause is missing: %v", err)
	}
}

// TestADeadIdleConnectionIsNotUsed: what the worker did to an idle connection
// is seen before a request goes out on it.
func TestADeadIdleConnectionIsNotUsed(t *testing.T) {
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
				say(c, answer2)
				if i == 0 {
					<-speak
					say(c, last)
					if last == "" {
						return
					}
				}
				if _, err := readRequest(in); err == nil {
					t.Error("a second request came on a dead connection")
				}
			})
			s := tcpClient(t, w.address)
			mustAsk(t, s, post("a"), "ok")
			kept := s.idle.conns[0]
			close(speak)
			for kept.quiet() {
				runtime.Gosched()
			}
			if last != "" {
				// The look above took a byte; what follows must be seen as well.
				for kept.quiet() {
					runtime.Gosched()
				}
			}
			mustAsk(t, s, post("b"), "ok")
			if answered.Load() != 2 || w.conns.Load() != 2 {
				t.Errorf("%d answers on %d connections; want 2 on 2", answered.Load(), w.conns.Load())
			}
			s.Close()
		})
	}
}

// TestAnEarlyRefusalIsRead: a worker that answers 413 and closes without
// reading on breaks the write; its answer still counts.
func TestAnEarlyRefusalIsRead(t *testing.T) {
	verifyNoLeaks(t)
	w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
		_, _ = in.ReadString('\n')
		say(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
	})
	s := tcpClient(t, w.address)
	status, body, err := ask(t, s, post(strings.Repeat("x", 16<<20)))
	if err != nil || status != 413 || body != "big" {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	if len(s.idle.conns) != 0 {
		t.Error("a connection with half a request on it was kept")
	}
}

// brokenPipe is a connection that takes no bytes and gives none.
type brokenPipe struct{ net.Conn }

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestABrokenWriteWaitsASecondForTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) {
			return brokenPipe{here}, nil
		}})
		start := time.Now()
		_, err := s.Send(t.Context(), post("x"))
		wantPhase(t, err, PhaseWrite)
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

func TestIdleConnectionsAreBoundedAndExpire(t *testing.T) {
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
					say(there, ok200+"Content-Length: 2\r\n\r\n")
					say(there, "ok")
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
		count(2) // as many as are kept
		time.Sleep(6 * time.Second)
		mustAsk(t, s, post("x"), "ok")
		time.Sleep(4 * time.Second)
		count(1) // the one not used for 10 s is closed
		time.Sleep(6 * time.Second)
		count(0)
		mustAsk(t, s, post("x"), "ok")
		count(1)
		s.Close()
		count(0)
		mustAsk(t, s, post("x"), "ok")
		count(0) // after Close nothing is kept
	})
}

func TestManyAtOnceGetTheirOwnAnswers(t *testing.T) {
	verifyNoLeaks(t)
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	s := tcpClient(t, server.Listener.Addr().String())
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
	heard := make(chan string)
	w := newRawWorker(t, func(_ int, c net.Conn, in *bufio.Reader) {
		_, _ = readRequest(in)
		// A chunk begun is handed out before it ends, and whole ones at once.
		for _, step := range []struct{ send, want string }{
			{ok200 + "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n", "one"},
			{"3\r\ntwo\r\n5\r\nthree\r\n", "twothree"},
			{"9\r\nfo", "fo"},
			{"ur", "ur"},
			{"-five\r\n3\r\nsix", "-fivesix"},
			{"\r\n0\r\n\r\n", ""},
		} {
			say(c, step.send)
			if got := <-heard; got != step.want {
				t.Errorf("heard %q; want %q", got, step.want)
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
		heard <- string(b[:n])
		if err != nil {
			break
		}
	}
}

// TestAnExchangeAllocatesLittle: a request that is proxied should cost the
// collector no more than what its caller is given.
func TestAnExchangeAllocatesLittle(t *testing.T) {
	conn := new(tape)
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
	// Eight, and what the race detector makes of sync.Pool.
	if n > 12 {
		t.Errorf("%v allocations", n)
	}
}
