package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/memnet"
)

// serverRig is a server on an in-memory network, with the connections that it gave to its fallback.
type serverRig struct {
	t       *testing.T
	network *memnet.Network
	server  *Server
	given   chan net.Conn
	panics  int
}

// newServerRig serves a handler until the test ends.
func newServerRig(t *testing.T, h http.HandlerFunc) *serverRig {
	t.Helper()
	r := &serverRig{t: t, network: memnet.New(), given: make(chan net.Conn, 1)}
	l, err := r.network.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	r.server = &Server{Handler: h, Fallback: func(c net.Conn) { r.given <- c }, HeadTimeout: 5 * time.Second,
		IdleTimeout: time.Minute, Base: context.Background(), OnPanic: func(any) { r.panics++ }}
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(l) }()
	t.Cleanup(func() {
		_ = r.server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
		_ = r.server.Shutdown(context.Background()) // waits for the connections
	})
	return r
}

// dial connects to the server.
func (r *serverRig) dial() net.Conn {
	r.t.Helper()
	synctest.Wait()
	c, err := r.network.Dial(r.t.Context(), "tcp", "127.0.0.1:80")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// write sends text.
func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// readAnswers reads n answers to GET requests, each as its status, its Connection and its body.
func readAnswers(t *testing.T, c net.Conn, n int) (all []string) {
	t.Helper()
	in := bufio.NewReader(c)
	for range n {
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d %t %s", a.StatusCode, a.Close, body))
	}
	return all
}

const simpleGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"

// TestRequestsOfAConnectionAreServedInTurn also if they arrive at once.
func TestRequestsOfAConnectionAreServedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerRig(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %v", r.Method, r.URL.Path, body, err)
		})
		c := r.dial()
		write(t, c, simpleGet+"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"+simpleGet)
		got := readAnswers(t, c, 3)
		want := []string{"200 false GET /a  <nil>", "200 false POST /b abc <nil>", "200 false GET /a  <nil>"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the answers are %q", got)
		}
	})
}

// TestRequestsOfAConnectionLeaveNothingBehind for the next one: no field of an answer, and no ended context.
func TestRequestsOfAConnectionLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerRig(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%v %v", w.Header(), r.Context().Err())
			w.Header().Set("X-Own", "1")
		})
		c := r.dial()
		write(t, c, simpleGet+simpleGet)
		if got := readAnswers(t, c, 2); got[0] != "200 false map[] <nil>" || got[1] != got[0] {
			t.Errorf("the answers are %q", got)
		}
	})
}

// TestABodyThatBreaksOffEndsTheConnection with the answer: the context of its requests has ended.
func TestABodyThatBreaksOffEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerRig(t, func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(time.Second))
			_, err := io.ReadAll(r.Body)
			_ = control.SetReadDeadline(time.Time{})
			fmt.Fprintf(w, "%t %v", errors.Is(err, os.ErrDeadlineExceeded), r.Context().Err())
		})
		c := r.dial()
		write(t, c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
		if got := readAnswers(t, c, 1); got[0] != "200 true true context canceled" {
			t.Errorf("the answer is %q", got)
		}
		if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
			t.Errorf("behind the answer are %q, %v", rest, err)
		}
	})
}

// TestUnusualRequestsGoToTheFallbackWithAllBytes and the loop answers nothing.
func TestUnusualRequestsGoToTheFallbackWithAllBytes(t *testing.T) {
	for name, text := range map[string]string{
		"old version":       "GET /a HTTP/1.0\r\nHost: x\r\n\r\n",
		"chunked":           "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":       "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"signed length":     "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na",
		"continue":          "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
		"upgrade":           "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"no host":           "GET /a HTTP/1.1\r\nAccept: x\r\n\r\n",
		"two hosts":         "GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
		"folded line":       "GET /a HTTP/1.1\r\nHost: x\r\nAccept: a\r\n b\r\n\r\n",
		"blank before ':'":  "GET /a HTTP/1.1\r\nHost: x\r\nAccept : a\r\n\r\n",
		"bare line feed":    "GET /a HTTP/1.1\nHost: x\n\n",
		"empty line before": "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
		"absolute target":   "GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
		"asterisk":          "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"HTTP/2":            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"long head":         "GET /a HTTP/1.1\r\nHost: x\r\nAccept: " + strings.Repeat("a", maxRequestHead) + "\r\n\r\n",
		"many fields":       "GET /a HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", maxFields) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newServerRig(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
				c := r.dial()
				write(t, c, simpleGet) // and the loop serves what comes before
				if got := readAnswers(t, c, 1); got[0] != "200 false served" {
					t.Errorf("the usual request is answered with %q", got)
				}
				write(t, c, text)
				given := <-r.given
				defer given.Close()
				got := make([]byte, len(text))
				if _, err := io.ReadFull(given, got); err != nil || string(got) != text {
					t.Errorf("the fallback reads %q, %v", got, err)
				}
			})
		})
	}
}

// TestAnswersAreFramed by a length if they are short, and by chunks otherwise.
func TestAnswersAreFramed(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	for name, want := range map[string]struct {
		handler http.HandlerFunc
		length  int64
		coding  []string
		status  int
		closes  bool
		body    string
	}{
		"empty":   {func(http.ResponseWriter, *http.Request) {}, 0, nil, 200, false, ""},
		"short":   {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ab"); fmt.Fprint(w, "c") }, 3, nil, 200, false, "abc"},
		"long":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long) }, -1, []string{"chunked"}, 200, false, long},
		"no body": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 0, nil, 204, false, ""},
		"declared": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10000")
			fmt.Fprint(w, long)
		}, 10000, nil, 200, false, long},
		"flushed": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, long)
			fmt.Fprint(w, "b")
		}, -1, []string{"chunked"}, 200, false, "a" + long + "b"},
		"closing": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, "a")
		}, 1, nil, 200, true, "a"},
		"own status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529); fmt.Fprint(w, "a") }, 1, nil, 529, false, "a"},
		"second head": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, 0, nil, 201, false, ""},
		"new lines":   {func(w http.ResponseWriter, _ *http.Request) { w.Header()["X-A"] = []string{"a\r\nX-B: c"} }, 0, nil, 200, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newServerRig(t, want.handler)
				c := r.dial()
				write(t, c, simpleGet)
				a, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(a.Body)
				if err != nil || string(body) != want.body || a.StatusCode != want.status || a.ContentLength != want.length ||
					!reflect.DeepEqual(a.TransferEncoding, want.coding) || a.Close != want.closes || a.Header.Get("X-B") != "" {
					t.Errorf("the answer is %+v with %d bytes, %v", a, len(body), err)
				}
			})
		})
	}
}

// TestAnswersOfHEADHaveNoBody but its length, also if the handler does not declare it.
func TestAnswersOfHEADHaveNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerRig(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "abc") })
		c := r.dial()
		write(t, c, "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n"+simpleGet)
		in := bufio.NewReader(c)
		a, err := http.ReadResponse(in, &http.Request{Method: http.MethodHead})
		if err != nil || a.ContentLength != 3 {
			t.Fatalf("the answer is %+v, %v", a, err)
		}
		if b, err := http.ReadResponse(in, nil); err != nil || b.ContentLength != 3 {
			t.Errorf("the answer to the next request is %+v, %v", b, err)
		}
	})
}

// TestAnAnswerContinuesAfterItsHandler: middleware has returned by then, and the connection is kept.
func TestAnAnswerContinuesAfterItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		r := newServerRig(t, func(w http.ResponseWriter, r *http.Request) {
			defer func() { returned = true }()
			returned = false
			fmt.Fprint(w, "a")
			if r.Method == http.MethodPost {
				return
			}
			w.(*served).ContinueAfterHandler(func() { fmt.Fprintf(w, "b %t %v", returned, r.Context().Err()) })
		})
		c := r.dial()
		write(t, c, simpleGet+"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"+simpleGet)
		want := []string{"200 false ab true <nil>", "200 false a", "200 false ab true <nil>"}
		if got := readAnswers(t, c, 3); !reflect.DeepEqual(got, want) {
			t.Errorf("the answers are %q", got)
		}
	})
}

// TestABrokenAnswerCutsTheConnection so that it does not look complete.
func TestABrokenAnswerCutsTheConnection(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"abort": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"panic": func(http.ResponseWriter, *http.Request) { panic("fault") },
		"panic after the handler": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a")
			w.(*served).ContinueAfterHandler(func() {
				w.(http.Flusher).Flush()
				panic("fault")
			})
		},
		"too short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			fmt.Fprint(w, "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newServerRig(t, h)
				c := r.dial()
				write(t, c, simpleGet)
				got, err := io.ReadAll(c)
				if err != nil || bytes.HasSuffix(got, []byte("0\r\n\r\n")) {
					t.Errorf("the client reads %q, %v", got, err)
				}
				if name != "panic" && !bytes.Contains(got, []byte("a")) {
					t.Errorf("the client reads %q: what was sent before is missing", got)
				}
				if want := map[string]int{"panic": 1, "panic after the handler": 1}[name]; r.panics != want {
					t.Errorf("%d panics are reported", r.panics)
				}
			})
		})
	}
}

// TestAClientThatLeavesCancelsItsRequest while the handler works, with a body and without.
func TestAClientThatLeavesCancelsItsRequest(t *testing.T) {
	for name, text := range map[string]string{
		"without a body":    simpleGet,
		"with a body":       "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"body of two parts": "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cancelled := make(chan bool, 1)
				r := newServerRig(t, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					cancelled <- true
				})
				c := r.dial()
				write(t, c, text)
				synctest.Wait()
				if len(cancelled) > 0 {
					t.Fatal("the request is cancelled before its client leaves")
				}
				c.Close()
				<-cancelled
			})
		})
	}
}

// TestWaitingConnectionsAreClosed after their time.
func TestWaitingConnectionsAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		wait time.Duration
	}{
		"new":            {"", 5 * time.Second},
		"part of a head": {"GET /a HT", 5 * time.Second},
		"after requests": {simpleGet, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newServerRig(t, func(http.ResponseWriter, *http.Request) {})
				conn := r.dial()
				begin := time.Now()
				write(t, conn, c.text)
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(begin); waited < c.wait || waited > c.wait+2*sweepInterval {
					t.Errorf("the connection was closed after %s", waited)
				}
			})
		})
	}
}

// TestUnreadBodiesDoNotDisturbTheNextRequest: a short rest is skipped, a long one ends the connection.
func TestUnreadBodiesDoNotDisturbTheNextRequest(t *testing.T) {
	for _, size := range []int{10, maxSkipped, maxSkipped + 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newServerRig(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "refused") })
			c := r.dial()
			go fmt.Fprintf(c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s%s", size, strings.Repeat("a", size),
				simpleGet)
			want := []string{"200 false refused", "200 false refused"}
			if size > maxSkipped {
				want = []string{"200 true refused"}
			}
			if got := readAnswers(t, c, len(want)); !reflect.DeepEqual(got, want) {
				t.Errorf("%d bytes: the answers are %q", size, got)
			}
		})
	}
}

// TestShutdownWaitsForRequests and closes waiting connections at once.
func TestShutdownWaitsForRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		r := newServerRig(t, func(w http.ResponseWriter, _ *http.Request) { <-release; fmt.Fprint(w, "done") })
		waiting, busy := r.dial(), r.dial()
		write(t, busy, simpleGet)
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- r.server.Shutdown(context.Background()) }()
		if _, err := io.Copy(io.Discard, waiting); err != nil {
			t.Error(err)
		}
		if len(ended) > 0 {
			t.Fatal("Shutdown does not wait for the request")
		}
		close(release)
		if got := readAnswers(t, busy, 1); got[0] != "200 true done" {
			t.Errorf("the answer is %q", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestDeadlinesEndWithTheirRequest: the next one is answered after they have passed.
func TestDeadlinesEndWithTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerRig(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/a" {
				control, soon := http.NewResponseController(w), time.Now().Add(time.Second)
				if err := errors.Join(control.SetWriteDeadline(soon), control.SetReadDeadline(soon)); err != nil {
					t.Error(err)
				}
			}
		})
		c := r.dial()
		write(t, c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
		write(t, c, "abc")
		readAnswers(t, c, 1)
		time.Sleep(2 * time.Second)
		write(t, c, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
		readAnswers(t, c, 1)
	})
}

// TestAWriteDeadlineStaysForLaterRequests: those that set a similar one share its timer, and those that set none are
// written without it.
func TestAWriteDeadlineStaysForLaterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, l := memnet.New(), &timedListener{}
		var err error
		if l.Listener, err = network.Listen("tcp", "127.0.0.1:80"); err != nil {
			t.Fatal(err)
		}
		given := make(chan net.Conn, 1)
		s := &Server{HeadTimeout: 5 * time.Second, IdleTimeout: time.Minute, Base: context.Background(),
			Fallback: func(c net.Conn) { given <- c }}
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/a" {
				if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(32 * time.Second)); err != nil {
					t.Error(err)
				}
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		synctest.Wait()
		c, err := network.Dial(t.Context(), "tcp", "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for _, path := range []string{"/a", "/a", "/a", "/b", "/b", "/a"} { // after 0, 1, 2, 3, 4 and 5 s
			write(t, c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			readAnswers(t, c, 1)
			time.Sleep(time.Second)
		}
		write(t, c, "GET /c HTTP/1.0\r\n\r\n")
		(<-given).Close()
		want := []time.Duration{32 * time.Second, 0, 37 * time.Second, 0}
		var got []time.Duration
		for _, at := range l.deadlines {
			if got = append(got, 0); !at.IsZero() {
				got[len(got)-1] = at.Sub(begin)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the write deadlines are %v, want %v", got, want)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// timedListener records the write deadlines of its connections.
type timedListener struct {
	net.Listener
	deadlines []time.Time
}

func (l *timedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &timedConn{c, l}, err
}

type timedConn struct {
	net.Conn
	l *timedListener
}

func (c *timedConn) SetWriteDeadline(t time.Time) error {
	c.l.deadlines = append(c.l.deadlines, t)
	return c.Conn.SetWriteDeadline(t)
}

// TestEmptyLinesAfterAPOSTAreSkipped as net/http does.
func TestEmptyLinesAfterAPOSTAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerRig(t, func(http.ResponseWriter, *http.Request) {})
		c := r.dial()
		write(t, c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc\r\n"+simpleGet)
		readAnswers(t, c, 2)
	})
}

// TestARequestEndsWithItsHandler: later reads and writes fail, and do not disturb the next request.
func TestARequestEndsWithItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first func() (read, written error)
		r := newServerRig(t, func(w http.ResponseWriter, r *http.Request) {
			if first == nil {
				first = func() (read, written error) {
					_, read = r.Body.Read(make([]byte, 1))
					_, written = w.Write([]byte("late"))
					w.Header().Set("X-Late", "1")
					return read, errors.Join(written, w.(interface{ FlushError() error }).FlushError())
				}
				return
			}
			if read, written := first(); read == nil || written == nil {
				t.Errorf("a read after the end has the error %v, and a write %v", read, written)
			}
			if len(w.Header()) > 0 {
				t.Errorf("the second answer has %v", w.Header())
			}
			fmt.Fprint(w, "second")
		})
		c := r.dial()
		write(t, c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"+simpleGet)
		if got := readAnswers(t, c, 2); got[1] != "200 false second" {
			t.Errorf("the answers are %q", got)
		}
	})
}

// TestAServerThatIsClosedBeforeServesNothing and its listener is closed.
func TestAServerThatIsClosedBeforeServesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		l, err := network.Listen("tcp", "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
		if _, err := network.Dial(t.Context(), "tcp", "127.0.0.1:80"); err == nil {
			t.Error("the listener is open")
		}
	})
}

// FuzzRequestsMeanTheSameToNetHTTP: what the loop accepts, net/http accepts with the same meaning.
func FuzzRequestsMeanTheSameToNetHTTP(f *testing.F) {
	for _, text := range []string{simpleGet, "POST /v1/chat/completions?a=b%20c#d HTTP/1.1\r\nhost: x:1\r\n" +
		"Content-Length: 3\r\nConnection: close\r\nX-A: b\r\nx-a:\tc \r\nAuthorization: Bearer k\r\n\r\nabc", "GET //a/%2f;b HTTP/1.1\r\nHost: [::1]\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		c := &servedConn{conn: &conn{buf: bytes.Clone(input), w: len(input), socket: noInput{}}, server: &Server{}}
		block, err := c.readRequestHead()
		if err != nil {
			return
		}
		h, ok := parseRequestHead(block)
		if !ok {
			return
		}
		r := &http.Request{}
		h.fill(r)
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(input)))
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", block, err)
		}
		if r.Method != want.Method || r.RequestURI != want.RequestURI || r.Host != want.Host ||
			!reflect.DeepEqual(r.URL, want.URL) ||
			!reflect.DeepEqual(r.Header, want.Header) || r.ContentLength != want.ContentLength || r.Close != want.Close ||
			len(want.TransferEncoding) > 0 || len(want.Trailer) > 0 {
			t.Errorf("%q is\n%+v, and to net/http\n%+v", block, r, want)
		}
	})
}

// noInput is a connection without further input.
type noInput struct{ net.Conn }

func (noInput) Read([]byte) (int, error)        { return 0, io.EOF }
func (noInput) SetReadDeadline(time.Time) error { return nil }
