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
	"time"
)

// uploadOf is a request with a streamed body.
func uploadOf(body io.Reader, length int64) *Request {
	return &Request{Method: "PUT", Path: "/raw/file", Upload: body, UploadLength: length}
}

func TestAnUploadShorterThanItsLengthFails(t *testing.T) {
	w := newRawWorker(t, func(_ int, _ net.Conn, in *bufio.Reader) { gone(in) })
	_, err := tcpClient(t, w.address).Send(t.Context(), uploadOf(strings.NewReader("short"), 6))
	if wantPhase(t, err, PhaseWrite); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// endlessBody is a body that never ends; it counts what was read.
type endlessBody struct{ read int }

func (b *endlessBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return len(p), nil
}

// piped is a client whose connection holds nothing between its two ends, and the
// worker's end.
func piped(t *testing.T) (s *Client, worker net.Conn) {
	t.Helper()
	ours, worker := net.Pipe()
	t.Cleanup(func() { _ = worker.Close() })
	return New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}),
		worker
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
			if body.read > pieces*uploadPiece || body.read < (pieces-1)*uploadPiece {
				t.Errorf("%d bytes of the body were read while the worker took %d pieces", body.read, pieces-1)
			}
			if n, err := io.ReadFull(r.Body, make([]byte, uploadPiece)); err != nil {
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
