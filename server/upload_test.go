package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// uploading has a pool that takes uploads and one that does not.
const uploading = `
auth: { required: false }
health: { path: "off" }
max_body_bytes: 64KiB
retry: { attempts: 3, budget: 1 }
timeouts: { idle: %s, client_stall: %s }
pools:
  - { name: files, paths: ["/files/*"], max_upload_bytes: 64MiB, workers: [ %%s ] }
  - { name: other, paths: ["/other/*"], workers: [ { name: other-0, url: "http://127.0.0.1:1" } ] }
`

func newUploading(t *testing.T, engines ...http.Handler) *rig {
	t.Helper()
	return newRig(t, fmt.Sprintf(uploading, "10s", "10s"), engines...)
}

// upload sends a body of unknown length, or of one if it is at least 0.
func (r *rig) upload(ctx context.Context, client *http.Client, path string, body io.Reader, length int64,
	headers ...string) (answered, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if req.ContentLength = length; length < 0 {
		req.Body = io.NopCloser(body)
		if c, ok := body.(io.ReadCloser); ok {
			req.Body = c
		}
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, string(got), err}, nil
}

// digesting answers with what it got: the framing, the length and the digest.
func digesting(w http.ResponseWriter, q *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, q.Body)
	fmt.Fprintf(w, "%d %d %x %v", q.ContentLength, n, sum.Sum(nil), err)
}

// TestLargeBodiesStreamWhereAPoolTakesThem: known or unknown in length, over either
// protocol. What is longer than the pool takes is 413.
func TestLargeBodiesStreamWhereAPoolTakesThem(t *testing.T) {
	const size = 3 << 20
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	sum := sha256.Sum256(body)
	for _, http2 := range []bool{false, true} {
		r := newUploading(t, http.HandlerFunc(digesting))
		client := r.overTLS(http2)
		for _, length := range []int64{size, -1} {
			a, err := r.upload(t.Context(), client, "/files/x", bytes.NewReader(body), length)
			if want := fmt.Sprintf("%d %d %x <nil>", length, size, sum); err != nil || a.status != http.StatusOK ||
				a.body != want {
				t.Errorf("HTTP/2 %v, length %d: %d %s, %v, want %s", http2, length, a.status, a.body, err, want)
			}
			if a, err := r.upload(t.Context(), client, "/other/x", bytes.NewReader(body), length); err == nil &&
				a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("HTTP/2 %v, length %d: a pool that takes no uploads answers %d %s, %v", http2, length, a.status, a.body,
					err)
			}
		}
		a, err := r.upload(t.Context(), client, "/files/x", strings.NewReader("short"), -1)
		if err != nil || a.status != http.StatusOK || !strings.HasPrefix(a.body, "-1 5 ") {
			t.Errorf("HTTP/2 %v: a short body of unknown length: %d %s, %v", http2, a.status, a.body, err)
		}
		a, err = r.upload(t.Context(), client, "/files/x", io.LimitReader(zeros{}, 65<<20), 65<<20)
		if err == nil && (a.status != http.StatusRequestEntityTooLarge ||
			!strings.Contains(a.body, "max_upload_bytes")) { // or the client still writes when the connection closes
			t.Errorf("HTTP/2 %v: a body beyond the pool's bound: %d %s, %v", http2, a.status, a.body, err)
		}
		a, err = r.upload(t.Context(), client, "/files/x", io.LimitReader(zeros{}, 65<<20), -1)
		if err == nil && (a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, "max_upload_bytes")) {
			t.Errorf("HTTP/2 %v: a chunked body beyond the pool's bound: %d %s", http2, a.status, a.body)
		}
		for _, d := range r.Server.decisions.Last(10) {
			if len(d.Attempts) > 1 || len(d.Attempts) == 1 && d.Attempts[0].Error != "" &&
				!strings.Contains(d.Attempts[0].Error, "max_upload_bytes") {
				t.Errorf("attempts: %+v", d.Attempts)
			}
		}
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestAnUploadKeepsTheClientsConnection: a body that was read to its end leaves nothing
// behind on it.
func TestAnUploadKeepsTheClientsConnection(t *testing.T) {
	var conns atomic.Int32
	r := newUploading(t, http.HandlerFunc(digesting))
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		conns.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}}
	defer client.CloseIdleConnections()
	for _, length := range []int64{1 << 20, -1, 1 << 20} {
		if a, err := r.upload(t.Context(), client, "/files/x", io.LimitReader(zeros{}, 1<<20), length); err != nil ||
			a.status != http.StatusOK {
			t.Fatalf("%d %s, %v", a.status, a.body, err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for three uploads", n)
	}
}

// TestWhatMayBeJSONIsRead: nobody chooses a cache salt or a priority by the length of
// a body.
func TestWhatMayBeJSONIsRead(t *testing.T) {
	r := newUploading(t, http.HandlerFunc(digesting))
	for _, head := range []string{`{"cache_salt":"x","a":"`, "\xef\xbb\xbf{\"a\":\"", " \r\n\t{\"a\":\"",
		strings.Repeat(" ", 600) + `{"a":"`} {
		for _, kind := range []string{"application/json", "application/octet-stream", ""} {
			long := head + strings.Repeat("x", 70<<10) + `"}`
			for _, length := range []int64{int64(len(long)), -1} {
				if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", strings.NewReader(long), length, "Content-Type",
					kind); err == nil && a.status != http.StatusRequestEntityTooLarge {
					t.Errorf("%.20q as %q, length %d: %d %s", head, kind, length, a.status, a.body)
				}
			}
		}
		short := head + `"}`
		if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", strings.NewReader(short), -1, "Content-Type",
			"application/json"); err != nil || a.status != http.StatusOK || strings.HasPrefix(a.body, "-1") {
			t.Errorf("%.20q and little more is not buffered: %d %s, %v", head, a.status, a.body, err)
		}
	}
	wide := "{\x00\"\x00" + strings.Repeat("x\x00", 40<<10)
	if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", strings.NewReader(wide), int64(len(wide)),
		"Content-Type", "application/json"); err == nil && a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("JSON in UTF-16: %d %s", a.status, a.body)
	}
	if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", strings.NewReader(strings.Repeat("x", 70<<10)), -1,
		"Content-Encoding", "gzip"); err == nil && a.status == http.StatusOK {
		t.Errorf("a compressed body: %d %s", a.status, a.body)
	}
}

// deadlined is a recorder that takes deadlines.
type deadlined struct{ *httptest.ResponseRecorder }

func (deadlined) SetReadDeadline(time.Time) error  { return nil }
func (deadlined) SetWriteDeadline(time.Time) error { return nil }

// TestWhatMayBeJSONIsReadHoweverItArrives: the pieces in which a body comes do not decide
// what it may be.
func TestWhatMayBeJSONIsReadHoweverItArrives(t *testing.T) {
	r := newUploading(t, http.HandlerFunc(digesting))
	for _, head := range []string{`{"kv_transfer_params":{},"a":"`, " {\"a\":\"", "\xef\xbb\xbf{\"a\":\"",
		"\xef\xbb\xbf \r\n{\"a\":\"",
		"\xef\xbb\xbf" + strings.Repeat(" ", 600) + `{"a":"`, "{\x00\"\x00", "\xff\xfe{\x00", "\x00{\x00\"",
		"\xff\xfe\x00\x00{\x00\x00\x00"} {
		for split := 1; split <= min(len(head), 6); split++ {
			body := io.MultiReader(strings.NewReader(head[:split]), strings.NewReader(head[split:]),
				io.LimitReader(zeros{}, 70<<10))
			req := httptest.NewRequest(http.MethodPost, "/files/x", io.NopCloser(body))
			req.Host, req.ContentLength = "localhost", -1
			req.Header.Set("Content-Type", "application/json")
			w := deadlined{httptest.NewRecorder()}
			r.planes.dataHandler().ServeHTTP(w, req)
			if w.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("%.20q after %d bytes: %d %s", head, split, w.Code, w.Body)
			}
		}
	}
}

// TestAnUploadHoldsNoMoreThanAPiece: whatever its length.
func TestAnUploadHoldsNoMoreThanAPiece(t *testing.T) {
	var most atomic.Int64
	r := newUploading(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var m runtime.MemStats
		buf := make([]byte, 1<<20)
		for n := 0; ; n++ {
			if _, err := io.ReadFull(q.Body, buf); err != nil {
				break
			}
			if n%16 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), int64(m.HeapAlloc)))
			}
		}
	}))
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", io.LimitReader(zeros{}, 48<<20),
		48<<20); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s, %v", a.status, a.body, err)
	}
	if grown := most.Load() - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("an upload of 48 MiB grew the heap by %d KiB", grown>>10)
	}
}

// TestAnUploadIsTriedOnceUnlessNothingLeft: a worker that took part of it may have done
// something with it. One that took no connection has not.
func TestAnUploadIsTriedOnceUnlessNothingLeft(t *testing.T) {
	var hits atomic.Int32
	fails := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		hits.Add(1)
		io.CopyN(io.Discard, q.Body, 100_000) //nolint:errcheck // a test's own worker
		panic(http.ErrAbortHandler)
	})
	r := newUploading(t, fails, fails)
	for _, length := range []int64{4 << 20, -1} {
		hits.Store(0)
		a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", io.LimitReader(zeros{}, 4<<20), length)
		if err == nil && a.status != http.StatusBadGateway || hits.Load() != 1 {
			t.Errorf("length %d: %d %s, %v after %d attempts", length, a.status, a.body, err, hits.Load())
		}
	}
	yaml := strings.Replace(fmt.Sprintf(uploading, "10s", "10s"), "workers: [ %s ]",
		`workers: [ { name: none, url: "http://127.0.0.1:9", weight: 100 }, %s ]`, 1)
	r = newRig(t, "policy: { name: round_robin }\n"+yaml, http.HandlerFunc(digesting))
	for range 2 {
		if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", io.LimitReader(zeros{}, 1<<20), -1); err != nil ||
			a.status != http.StatusOK || !strings.HasPrefix(a.body, "-1 1048576 ") {
			t.Errorf("beside a worker that takes no connection: %d %s, %v", a.status, a.body, err)
		}
	}
}

// TestAWorkerMayRefuseAnUploadEarly: its own answer reaches the client, which learns
// that its connection is of no more use.
func TestAWorkerMayRefuseAnUploadEarly(t *testing.T) {
	r := newUploading(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "no room", http.StatusInsufficientStorage-100) // 407: a 4xx passes as it is
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"PUT /files/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		60<<20)
	go io.CopyN(conn, zeros{}, 60<<20) //nolint:errcheck // it fails when the gateway closes
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if text := string(answer[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.1 407 ") ||
		!strings.Contains(text, "Connection: close") {
		t.Errorf("%q, %v", answer[:n], err)
	}
}

// TestAnUploadEndsWithItsClient: the worker sees no whole body, is not blamed, and its
// place is free.
func TestAnUploadEndsWithItsClient(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		begun, ends := make(chan struct{}, 1), make(chan error, 1)
		r := newUploading(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			io.ReadFull(q.Body, make([]byte, 1)) //nolint:errcheck // the copy tells
			begun <- struct{}{}
			_, err := io.Copy(io.Discard, q.Body)
			ends <- err
		}))
		client := r.overTLS(http2)
		for _, length := range []int64{8 << 20, -1} {
			ctx, cancel := context.WithCancel(t.Context())
			in, out := io.Pipe()
			go func() {
				out.Write(bytes.Repeat([]byte("x"), 1<<20)) //nolint:errcheck // the request has ended
				<-begun
				cancel()
				out.CloseWithError(context.Canceled) // net/http waits for it
			}()
			if _, err := r.upload(ctx, client, "/files/x", in, length); !errors.Is(err, context.Canceled) {
				t.Errorf("HTTP/2 %v, length %d: %v", http2, length, err)
			}
			if err := <-ends; err == nil {
				t.Errorf("HTTP/2 %v, length %d: the worker took a part for the whole", http2, length)
			}
			until(t, "the end", func() bool { return r.Inflight() == 0 })
			d := r.Server.decisions.Last(1)[0]
			if d.Result != "client_gone" || len(d.Attempts) != 1 || d.Attempts[0].ErrorType != "client_gone" {
				t.Errorf("HTTP/2 %v, length %d: %s after %+v", http2, length, d.Result, d.Attempts)
			}
		}
	}
}

// TestAStalledUploadIsCut: the error and the blame are those of the side that stalls.
func TestAStalledUploadIsCut(t *testing.T) {
	slow := strings.Repeat("x", 100<<10)
	t.Run("the client", func(t *testing.T) {
		for _, http2 := range []bool{false, true} {
			ends := make(chan error, 1)
			r := newRig(t, fmt.Sprintf(uploading, "10s", "100ms"), http.HandlerFunc(func(_ http.ResponseWriter,
				q *http.Request) {
				_, err := io.Copy(io.Discard, q.Body)
				ends <- err
			}))
			client := r.overTLS(http2)
			in, out := io.Pipe()
			go io.WriteString(out, slow) //nolint:errcheck // and then nothing
			a, err := r.upload(t.Context(), client, "/files/x", in, 8<<20)
			out.Close()
			if err != nil || a.status != http.StatusRequestTimeout {
				t.Errorf("HTTP/2 %v: %d %s, %v", http2, a.status, a.body, err)
			}
			if err := <-ends; err == nil {
				t.Errorf("HTTP/2 %v: the worker took a part for the whole", http2)
			}
			until(t, "the end", func() bool { return r.Inflight() == 0 })
			if d := r.Server.decisions.Last(1)[0]; len(d.Attempts) != 1 ||
				!strings.Contains(d.Attempts[0].Error, "the client's body failed") {
				t.Errorf("HTTP/2 %v: %+v", http2, d.Attempts)
			}
		}
	})
	t.Run("the worker", func(t *testing.T) {
		stuck := make(chan struct{})
		r := newRig(t, fmt.Sprintf(uploading, "200ms", "10s"), http.HandlerFunc(func(_ http.ResponseWriter,
			q *http.Request) {
			<-stuck
		}))
		a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", io.LimitReader(zeros{}, 60<<20), 60<<20)
		close(stuck)
		if err == nil && a.status != http.StatusGatewayTimeout {
			t.Errorf("%d %s, %v", a.status, a.body, err)
		}
		until(t, "the end", func() bool { return r.Inflight() == 0 })
		if d := r.Server.decisions.Last(1)[0]; len(d.Attempts) != 1 ||
			d.Attempts[0].Error != "no bytes within timeouts.idle" {
			t.Errorf("%+v", d.Attempts)
		}
	})
	t.Run("beyond the total time", func(t *testing.T) {
		ends := make(chan error, 1)
		yaml := strings.Replace(uploading, "client_stall: %s", "client_stall: %s, total: { interactive: 150ms }", 1)
		r := newRig(t, fmt.Sprintf(yaml, "10s", "10s"), http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			_, err := io.Copy(io.Discard, q.Body)
			ends <- err
		}))
		in, out := io.Pipe()
		go io.WriteString(out, slow) //nolint:errcheck // and then nothing
		a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", in, 8<<20)
		out.Close()
		if err != nil || a.status != http.StatusGatewayTimeout {
			t.Errorf("%d %s, %v", a.status, a.body, err)
		}
		if err := <-ends; err == nil {
			t.Error("the worker took a part for the whole")
		}
		until(t, "the end", func() bool { return r.Inflight() == 0 })
		if d := r.Server.decisions.Last(1)[0]; len(d.Attempts) != 1 ||
			!strings.Contains(d.Attempts[0].Error, "the request reached its total time") {
			t.Errorf("%+v", d.Attempts)
		}
	})
	t.Run("neither, for longer than idle", func(t *testing.T) {
		r := newRig(t, fmt.Sprintf(uploading, "150ms", "10s"), http.HandlerFunc(digesting))
		in, out := io.Pipe()
		go func() {
			for range 5 {
				io.WriteString(out, slow) //nolint:errcheck // the test tells
				<-time.After(80 * time.Millisecond)
			}
			out.Close()
		}()
		if a, err := r.upload(t.Context(), http.DefaultClient, "/files/x", in, -1); err != nil || a.status != http.StatusOK {
			t.Errorf("%d %s, %v", a.status, a.body, err)
		}
	})
}
