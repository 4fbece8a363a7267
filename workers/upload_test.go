package workers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// uploadOf is a request whose body streams.
func uploadOf(body io.Reader, length int64) *Request {
	return &Request{Method: "PUT", Path: "/raw/file", Header: http.Header{"Content-Type": {"application/octet-stream"}}, Upload: body, UploadLength: length}
}

// bothSenders runs a test over the plain and the standard Sender, each before a server
// of its own with the same handler.
func bothSenders(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, s Sender)) {
	t.Run("plain", func(t *testing.T) {
		noLeaks(t)
		engine := httptest.NewServer(handler)
		t.Cleanup(engine.Close)
		test(t, tcpSender(t, engine.Listener.Addr().String()))
	})
	t.Run("standard", func(t *testing.T) { test(t, tlsEngine(t, true, handler)) })
}

// TestAnUploadArrivesAsItWasRead: whatever its pieces are, with its length or in chunks.
func TestAnUploadArrivesAsItWasRead(t *testing.T) {
	var got []byte
	var length int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		length = r.ContentLength
		io.WriteString(w, "ok") //nolint:errcheck // a test's own worker
	}
	bothSenders(t, handler, func(t *testing.T, s Sender) {
		rapid.Check(t, func(rt *rapid.T) {
			body := bytes.Repeat([]byte("0123456789"), rapid.IntRange(0, 9000).Draw(rt, "tens"))[:]
			var in io.Reader = bytes.NewReader(body)
			switch rapid.IntRange(0, 2).Draw(rt, "pieces") {
			case 0:
				in = iotest.DataErrReader(in)
			case 1:
				in = iotest.HalfReader(in)
			}
			said := int64(len(body))
			if rapid.Bool().Draw(rt, "chunked") || said == 0 {
				said = -1
			}
			status, answer, err := ask(t, s, uploadOf(in, said))
			if err != nil || status != 200 || answer != "ok" {
				rt.Fatalf("%d %q, %v", status, answer, err)
			}
			if !bytes.Equal(got, body) || length != said {
				rt.Fatalf("%d bytes of %d arrived, said to be %d", len(got), len(body), length)
			}
		})
	})
}

// TestABrokenUploadIsNoWholeOne: the worker must not take a part for the whole, and the
// error is that of the body.
func TestABrokenUploadIsNoWholeOne(t *testing.T) {
	broke := errors.New("the client left")
	for _, length := range []int64{1 << 20, -1} {
		ends := make(chan error, 2)
		handler := func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			ends <- err
		}
		bothSenders(t, handler, func(t *testing.T, s Sender) {
			_, err := s.Send(t.Context(), uploadOf(io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), iotest.ErrReader(broke)), length))
			if wantPhase(t, err, PhaseWrite); !errors.Is(err, broke) {
				t.Errorf("length %d: %v", length, err)
			}
			if end := <-ends; end == nil {
				t.Errorf("length %d: the worker took a part for the whole", length)
			}
		})
	}
	t.Run("shorter than said", func(t *testing.T) {
		w := newRawWorker(t, func(_ int, _ net.Conn, in *bufio.Reader) { gone(in) })
		_, err := tcpSender(t, w.address).Send(t.Context(), uploadOf(strings.NewReader("short"), 6))
		if wantPhase(t, err, PhaseWrite); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
}

// endlessBody is a body that never ends; it counts what was read.
type endlessBody struct{ read int }

func (b *endlessBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return len(p), nil
}

// piped is a plain Sender whose connection holds nothing between its two ends, and the
// worker's end.
func piped(t *testing.T) (s *plain, worker net.Conn) {
	t.Helper()
	ours, worker := net.Pipe()
	t.Cleanup(func() { _ = worker.Close() })
	return newPlain(plainConfig{Host: "engine", Dial: func(context.Context, string, string) (net.Conn,
		error) {
		return ours, nil
	}}).(*plain), worker
}

// TestAWorkerThatRefusesAnUploadEarlyIsRead: it may neither read on nor close.
func TestAWorkerThatRefusesAnUploadEarlyIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, worker := piped(t)
		defer s.Close()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(worker))
			say(worker, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		}()
		if status, body, err := ask(t, s, uploadOf(&endlessBody{}, -1)); err != nil || status != 413 || body != "no" {
			t.Errorf("%d %q, %v", status, body, err)
		}
		if len(s.idle.conns) != 0 {
			t.Error("a connection is kept on which a body has no end")
		}
	})
}

// TestAnUploadHasTheWorkersPace: a worker that does not read holds the body back for as
// long as it likes, and cancelling ends the wait.
func TestAnUploadHasTheWorkersPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, worker := piped(t)
		defer s.Close()
		in := bufio.NewReaderSize(worker, 4096)
		ctx, cancel := context.WithCancelCause(t.Context())
		body, why := &endlessBody{}, errors.New("its time is over")
		sent := make(chan error)
		go func() {
			_, err := s.Send(ctx, uploadOf(body, -1))
			sent <- err
		}()
		r, err := http.ReadRequest(in)
		if err != nil {
			t.Fatal(err)
		}
		for pieces := 1; pieces < 4; pieces++ {
			time.Sleep(time.Hour)
			synctest.Wait()
			if body.read > pieces*plainUploadPiece || body.read < (pieces-1)*plainUploadPiece {
				t.Errorf("%d bytes of the body were read while the worker took %d pieces", body.read, pieces-1)
			}
			if n, err := io.ReadFull(r.Body, make([]byte, plainUploadPiece)); err != nil {
				t.Fatal(n, err)
			}
		}
		cancel(why)
		err = <-sent
		if wantPhase(t, err, PhaseWrite); !errors.Is(err, why) {
			t.Error(err)
		}
	})
}

// TestAnUploadIsNeverSentTwice: it has a new connection, since one that breaks under it
// would leave nothing to send again.
func TestAnUploadIsNeverSentTwice(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		io.WriteString(w, r.RemoteAddr) //nolint:errcheck // a test's own worker
	}
	bothSenders(t, handler, func(t *testing.T, s Sender) {
		from := map[string]bool{}
		for i := range 4 {
			r := uploadOf(strings.NewReader("x"), -1)
			if i%2 == 0 {
				r = plainPost("x")
			}
			_, address, err := ask(t, s, r)
			if err != nil {
				t.Fatal(err)
			}
			if r.Upload != nil && from[address] {
				t.Error("an upload goes over a kept connection")
			}
			from[address] = true
		}
	})
}
