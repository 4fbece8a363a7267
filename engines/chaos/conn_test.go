package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// chunkSizes returns the sizes of a chunked body's chunks: one a write and flush.
func chunkSizes(raw string) []int64 {
	_, body, _ := strings.Cut(raw, "\r\n\r\n")
	var sizes []int64
	for {
		var n int64
		line, rest, ok := strings.Cut(body, "\r\n")
		if _, err := fmt.Sscanf(line, "%x", &n); !ok || err != nil || n == 0 || int64(len(rest)) < n+2 {
			return sizes
		}
		sizes = append(sizes, n)
		body = rest[n+2:]
	}
}

func TestWritesAreAsLargeAsOrdered(t *testing.T) {
	r := newRig(t)
	plain := chunkSizes(r.ask(t, streamBody).raw)
	if len(plain) != 10 {
		t.Errorf("10 events came in %d writes", len(plain))
	}
	r.set(t, Fault{Kind: Batch, Every: 4})
	if got := chunkSizes(r.ask(t, streamBody).raw); len(got) != 3 { // 4, 4 and 2 events
		t.Errorf("batches of four came in %d writes", len(got))
	}
	r.set(t, Fault{Kind: Bytewise})
	for _, n := range chunkSizes(r.ask(t, streamBody).raw) {
		if n != 1 {
			t.Fatalf("a write of %d bytes", n)
		}
	}
}

func TestHangsEndWhenTheClientLeaves(t *testing.T) {
	for after, want := range map[int]string{0: "", 3: "bbbb"} {
		r := newRig(t)
		r.set(t, Fault{Kind: Hang, After: after})
		conn := r.dial(t)
		send(t, conn, "", streamBody)
		if want == "" {
			until(t, func() bool { return r.c.Stats().Hits[Hang] == 1 })
		} else {
			var got strings.Builder
			buf := make([]byte, 4096)
			for !strings.Contains(got.String(), want) {
				n, err := conn.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				got.Write(buf[:n])
			}
		}
		if r.c.Stats().Open != 1 {
			t.Errorf("after %d events: %d open", after, r.c.Stats().Open)
		}
		conn.Close()
		until(t, func() bool { return r.c.Stats().Open == 0 })
		if got := r.c.Stats().Cancelled; got != 1 {
			t.Errorf("after %d events: %d cancelled", after, got)
		}
	}
}

func TestEndlessAnswersEndWithTheClient(t *testing.T) {
	for _, body := range []string{wholeBody, streamBody} {
		r := newRig(t)
		r.set(t, Fault{Kind: Endless})
		conn := r.dial(t)
		send(t, conn, "", body)
		if n, err := io.CopyN(io.Discard, conn, 4<<20); err != nil {
			t.Errorf("the answer ended after %d bytes: %v", n, err)
		}
		conn.Close()
		until(t, func() bool { return r.c.Stats().Open == 0 })
	}
}

func TestStaleHitsOnlyReusedConnections(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: Stale})
	conn := r.dial(t)
	reader := bufio.NewReader(conn)
	send(t, conn, "", wholeBody)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("a fresh connection: %v, %v", resp, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	send(t, conn, "", wholeBody)
	if b, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a reused connection answered %q, %v", b, err)
	}
	if r.e.Stats().Requests["/v1/chat/completions"] != 1 {
		t.Error("the engine saw the request that was dropped")
	}
}

func TestConnectionClosesAfterEachStream(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: CloseEach})
	conn := r.dial(t)
	send(t, conn, "", streamBody) // the client would keep the connection
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || contentEvents(string(body)) != 6 || resp.Close || resp.Header.Get("Keep-Alive") == "" {
		t.Errorf("the stream was %q, %v, close promised: %v", body, err, resp.Close)
	}
	if b, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still there: %q, %v", b, err)
	}
}

func TestFaultsHitSomeRequestsOnly(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: Status, Status: 500, Times: 2}, Fault{Kind: Status, Status: 418, Paths: []string{"/health"}})
	for i, want := range []int{500, 500, 200, 200} {
		if got := r.ask(t, wholeBody).status; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	get := func(path string) int {
		w := httptest.NewRecorder()
		r.c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w.Code
	}
	if get("/health") != 418 || get("/v1/models") != 200 {
		t.Errorf("health %d, models %d", get("/health"), get("/v1/models"))
	}
	r.set(t)
	if get("/health") != 200 {
		t.Error("the fault is still in force")
	}
}

func TestUnknownFaultsAreRejectedWithoutEffect(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: CRLF}, Fault{Kind: Status, Status: 503, RetryAfter: "1"})
	for _, wrong := range []Fault{{}, {Kind: "flood"}, {Kind: Status}, {Kind: ErrorFirst, Form: "x"},
		{Kind: Slow, Times: -1}} {
		if r.c.Set(wrong) == nil || len(r.c.Stats().Faults) != 2 {
			t.Errorf("%+v was set: %+v", wrong, r.c.Stats().Faults)
		}
	}
	if got := r.ask(t, wholeBody); got.status != 503 || got.header.Get("Retry-After") != "1" ||
		r.c.Stats().Hits[Status] != 1 {
		t.Errorf("%d %v", got.status, got.header)
	}
}
