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

// uploadOf returns a request with a streamed body.
func uploadOf(body io.Reader, length int64) *Request {
	return &Request{Method: "PUT", Path: "/raw/file", Upload: body, UploadLength: length}
}

func TestUploadShorterThanItsLengthFails(t *testing.T) {
	w := newRawWorker(t, func(_ int, _ net.Conn, in *bufio.Reader) { waitForClose(in) })
	_, err := tcpClient(t, w.address).Send(t.Context(), uploadOf(strings.NewReader("short"), 6))
	if wantPhase(t, err, PhaseWrite); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// endlessBody is a body without end. It counts the bytes that were read.
type endlessBody struct{ read int }

func (b *endlessBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return len(p), nil
}

// pipedClient returns a client with an unbuffered connection, and the worker's end of it.
func pipedClient(t *testing.T) (s *Client, worker net.Conn) {
	t.Helper()
	ours, worker := net.Pipe()
	t.Cleanup(func() { _ = worker.Close() })
	return New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}),
		worker
}

// Such a worker neither reads the rest nor closes the connection.
func TestEarlyRejectionOfAnUploadIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, worker := pipedClient(t)
		defer s.Close()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(worker))
			writeString(worker, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		}()
		if status, body, err := sendAndRead(t, s, uploadOf(&endlessBody{}, -1)); err != nil || status != 413 || body != "no" {
			t.Errorf("%d %q, %v", status, body, err)
		}
		if len(s.idle.conns) != 0 {
			t.Error("a connection with an incomplete upload is kept")
		}
	})
}

// While the worker does not read, the body is not read either. A cancellation ends the wait.
func TestUploadIsReadAtTheWorkersPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, worker := pipedClient(t)
		defer s.Close()
		in := bufio.NewReaderSize(worker, 4096)
		ctx, cancel := context.WithCancelCause(t.Context())
		body, why := &endlessBody{}, errors.New("the client left")
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
				t.Errorf("%d bytes of the body were read while the worker read %d pieces", body.read, pieces-1)
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
