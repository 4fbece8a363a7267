package workers

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"tierway/http1"
)

// uploadOf returns a request with a streamed body.
func uploadOf(body io.Reader, length int64) *http1.Request {
	return &http1.Request{Method: "PUT", Path: "/raw/file",
		Header: http.Header{"Content-Type": {"application/octet-stream"}}, Upload: body, UploadLength: length}
}

// bothSenders runs a test with the HTTP/1.1 client and with the standard Sender. Each has its own
// server with the same handler.
func bothSenders(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, s Sender)) {
	t.Run("http1", func(t *testing.T) {
		engine := loopback.NewServer(handler)
		t.Cleanup(engine.Close)
		s := newSender(Spec{Config: Config{URL: engine.URL}}, loopback.Dial, slog.New(slog.DiscardHandler))
		t.Cleanup(s.Close)
		test(t, s)
	})
	t.Run("standard", func(t *testing.T) { test(t, tlsEngine(t, true, handler)) })
}

// The body arrives unchanged for all sizes of its reads, with a length and in chunks.
func TestUploadArrivesUnchanged(t *testing.T) {
	var got []byte
	var length int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		length = r.ContentLength
		io.WriteString(w, "ok") // a test's own worker
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
			announced := int64(len(body))
			if rapid.Bool().Draw(rt, "chunked") || announced == 0 {
				announced = -1
			}
			answer, err := s.Send(t.Context(), uploadOf(in, announced))
			if body := readAll(t, answer, err); answer.Status != 200 || body != "ok" {
				rt.Fatalf("%d %q", answer.Status, body)
			}
			if !bytes.Equal(got, body) || length != announced {
				rt.Fatalf("%d bytes of %d arrived, with the length %d", len(got), len(body), length)
			}
		})
	})
}

// The worker must not accept the part as a complete body. The sender's error wraps the body's error.
func TestBrokenUploadIsAnErrorAtBothEnds(t *testing.T) {
	broke := errors.New("the client left")
	for _, length := range []int64{1 << 20, -1} {
		ends := make(chan error, 2)
		handler := func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			ends <- err
		}
		bothSenders(t, handler, func(t *testing.T, s Sender) {
			_, err := s.Send(t.Context(),
				uploadOf(io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), iotest.ErrReader(broke)), length))
			if wantPhase(t, err, http1.PhaseWrite); !errors.Is(err, broke) {
				t.Errorf("length %d: %v", length, err)
			}
			if end := <-ends; end == nil {
				t.Errorf("length %d: the worker accepted a part as a complete body", length)
			}
		})
	}
}

// A kept connection may break during the upload, and a streamed body cannot be sent twice.
func TestUploadUsesANewConnection(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		io.WriteString(w, r.RemoteAddr) // a test's own worker
	}
	bothSenders(t, handler, func(t *testing.T, s Sender) {
		from := map[string]bool{}
		for i := range 4 {
			r := uploadOf(strings.NewReader("x"), -1)
			if i%2 == 0 {
				r = postRequest("/", "x")
			}
			answer, err := s.Send(t.Context(), r)
			address := readAll(t, answer, err)
			if r.Upload != nil && from[address] {
				t.Error("an upload uses a kept connection")
			}
			from[address] = true
		}
	})
}
