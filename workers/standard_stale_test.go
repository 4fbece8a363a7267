package workers

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// The worker closes a kept connection while a request is sent on it.
func TestStaleConnectionIsReplacedExactlyOnce(t *testing.T) {
	bodies := make(chan string, 8)
	url := scriptedEngine(t, func(number int, conn net.Conn, r *bufio.Reader) {
		for answers := 0; ; answers++ {
			body, err := readRequest(r)
			if err != nil {
				return
			}
			bodies <- body
			if number == 0 && answers == 1 {
				return
			}
			_, _ = io.WriteString(conn, okAnswer)
		}
	})
	send := senderTo(t, url, nil)
	for _, body := range []string{"first", "second"} {
		answer, err := send.Send(t.Context(), postRequest("/", body))
		if got := readAll(t, answer, err); got != "ok" {
			t.Fatalf("%s: got %q", body, got)
		}
	}
	for _, want := range []string{"first", "second", "second"} {
		if got := <-bodies; got != want {
			t.Errorf("the worker received %q; want %q", got, want)
		}
	}
	if len(bodies) != 0 {
		t.Errorf("the worker received %d more requests", len(bodies))
	}
}

func TestSecondBrokenConnectionIsAnError(t *testing.T) {
	var requests atomic.Int32
	url := scriptedEngine(t, func(number int, conn net.Conn, r *bufio.Reader) {
		for {
			if _, err := readRequest(r); err != nil {
				return
			}
			if requests.Add(1) > 1 {
				return
			}
			_, _ = io.WriteString(conn, okAnswer)
		}
	})
	send := senderTo(t, url, nil)
	answer, err := send.Send(t.Context(), postRequest("/", "x"))
	_ = readAll(t, answer, err)
	_, err = send.Send(t.Context(), postRequest("/", "x"))
	wantPhaseBeforeAnswer(t, err)
	if requests.Load() != 3 {
		t.Errorf("the worker received %d requests; want 3: the first, the second and its repetition", requests.Load())
	}
}

func TestRepeatedRequestKeepsThePhaseOfItsFirstCopy(t *testing.T) {
	listener, err := loopback.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		_, _ = readRequest(r)
		_, _ = io.WriteString(conn, okAnswer)
		_, _ = readRequest(r)
		_ = listener.Close() // the engine dies during the request
	}()
	send := senderTo(t, "http://"+listener.Addr().String(), nil)
	answer, err := send.Send(t.Context(), postRequest("/", "x"))
	_ = readAll(t, answer, err)
	_, err = send.Send(t.Context(), postRequest("/", "x"))
	wantPhaseBeforeAnswer(t, err)
}

func TestFreshRequestIsNeverOnAKeptConnectionNorRepeated(t *testing.T) {
	var connections, requests atomic.Int32
	url := scriptedEngine(t, func(number int, conn net.Conn, r *bufio.Reader) {
		connections.Add(1)
		if _, err := readRequest(r); err != nil {
			return
		}
		if requests.Add(1) == 1 {
			_, _ = io.WriteString(conn, okAnswer)
		}
	})
	send := senderTo(t, url, nil)
	answer, err := send.Send(t.Context(), postRequest("/", "x"))
	_ = readAll(t, answer, err)
	fresh := postRequest("/", "x")
	fresh.Fresh = true
	_, err = send.Send(t.Context(), fresh)
	wantPhaseBeforeAnswer(t, err)
	if connections.Load() != 2 || requests.Load() != 2 {
		t.Errorf("%d connections, %d requests; want 2 and 2", connections.Load(), requests.Load())
	}
}

func TestOnceIsNotRepeatedAfterAStaleConnection(t *testing.T) {
	var requests atomic.Int32
	url := scriptedEngine(t, func(_ int, conn net.Conn, r *bufio.Reader) {
		for {
			if _, err := readRequest(r); err != nil || requests.Add(1) > 1 {
				return
			}
			_, _ = io.WriteString(conn, okAnswer)
		}
	})
	send := senderTo(t, url, nil)
	answer, err := send.Send(t.Context(), postRequest("/", "x"))
	_ = readAll(t, answer, err)
	once := postRequest("/", "x")
	once.Once = true
	_, err = send.Send(t.Context(), once)
	wantPhaseBeforeAnswer(t, err)
	if requests.Load() != 2 {
		t.Errorf("the worker received %d requests; want 2", requests.Load())
	}
}

func TestConnectionsAreKeptUnlessFresh(t *testing.T) {
	var connections atomic.Int32
	engine := loopback.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	engine.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	engine.Start()
	t.Cleanup(engine.Close)
	send := senderTo(t, engine.URL, nil)
	ask := func(fresh bool) {
		r := postRequest("/", "x")
		r.Fresh = fresh
		answer, err := send.Send(t.Context(), r)
		_ = readAll(t, answer, err)
	}
	for range 3 {
		ask(false)
	}
	if connections.Load() != 1 {
		t.Errorf("3 requests in a row took %d connections; want 1", connections.Load())
	}
	ask(true)
	ask(true)
	if connections.Load() != 3 {
		t.Errorf("2 fresh requests made it %d connections; want 3", connections.Load())
	}
	send.Close()
	ask(false)
	if connections.Load() != 4 {
		t.Errorf("after Close a request must still go, on its own connection: %d connections", connections.Load())
	}
}

// A reset of an HTTP/2 stream ends one exchange; the connection continues. The worker may have
// processed the request.
func TestResetStreamIsNotRepeated(t *testing.T) {
	var requests atomic.Int32
	send := tlsEngine(t, true, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	})
	answer, err := send.Send(t.Context(), postRequest("/", "x"))
	_ = readAll(t, answer, err)
	_, err = send.Send(t.Context(), postRequest("/", "x"))
	wantPhaseBeforeAnswer(t, err)
	if requests.Load() != 2 {
		t.Errorf("the worker saw %d requests; want 2", requests.Load())
	}
}
