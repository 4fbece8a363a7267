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
	"testing/synctest"
	"time"
)

// uploadYAML has a pool that accepts uploads and one that does not.
const uploadYAML = `
auth: { required: false }
health: { path: "off" }
max_body_bytes: 64KiB
retry: { attempts: 3, budget: 1 }
timeouts: { idle: %s, client_stall: %s }
pools:
  - { name: files, paths: ["/files/*"], max_upload_bytes: 64MiB, workers: [ %%s ] }
  - { name: other, paths: ["/other/*"], workers: [ { name: other-0, url: "http://127.0.0.1:1" } ] }
`

func newUploadRig(t *testing.T, engines ...http.Handler) *rig {
	t.Helper()
	return newRig(t, fmt.Sprintf(uploadYAML, "10s", "10s"), engines...)
}

// upload sends a body with the given length. A negative length sends it chunked.
func (r *rig) upload(ctx context.Context, client *http.Client, path string, body io.Reader, length int64,
	headers ...string) (httpAnswer, error) {
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
		return httpAnswer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return httpAnswer{resp.StatusCode, resp.Header, string(got), err}, nil
}

// digestEngine answers with the Content-Length, the length and the digest of the body.
func digestEngine(w http.ResponseWriter, q *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, q.Body)
	fmt.Fprintf(w, "%d %d %x %v", q.ContentLength, n, sum.Sum(nil), err)
}

// TestUploadsAreStreamedToPoolsThatAcceptThem, with known or unknown length and over either protocol. A
// longer body gets 413.
func TestUploadsAreStreamedToPoolsThatAcceptThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3 << 20
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		sum := sha256.Sum256(body)
		for _, http2 := range []bool{false, true} {
			r := newUploadRig(t, http.HandlerFunc(digestEngine))
			client := r.overTLS(http2)
			for _, length := range []int64{size, -1} {
				a, err := r.upload(t.Context(), client, "/files/x", bytes.NewReader(body), length)
				if want := fmt.Sprintf("%d %d %x <nil>", length, size, sum); err != nil || a.status != http.StatusOK ||
					a.body != want {
					t.Errorf("HTTP/2 %v, length %d: %d %s, %v, want %s", http2, length, a.status, a.body, err, want)
				}
				if a, err := r.upload(t.Context(), client, "/other/x", bytes.NewReader(body), length); err == nil &&
					a.status != http.StatusRequestEntityTooLarge {
					t.Errorf("HTTP/2 %v, length %d: a pool without uploads answers %d %s, %v", http2, length, a.status, a.body,
						err)
				}
			}
			a, err := r.upload(t.Context(), client, "/files/x", strings.NewReader("short"), -1)
			if err != nil || a.status != http.StatusOK || !strings.HasPrefix(a.body, "-1 5 ") {
				t.Errorf("HTTP/2 %v: a short body of unknown length: %d %s, %v", http2, a.status, a.body, err)
			}
			a, err = r.upload(t.Context(), client, "/files/x", io.LimitReader(zeros{}, 65<<20), 65<<20)
			if err == nil && (a.status != http.StatusRequestEntityTooLarge ||
				!strings.Contains(a.body, "max_upload_bytes")) { // err: the client still wrote when the connection closed
				t.Errorf("HTTP/2 %v: a body beyond the pool's bound: %d %s, %v", http2, a.status, a.body, err)
			}
			a, err = r.upload(t.Context(), client, "/files/x", io.LimitReader(zeros{}, 65<<20), -1)
			if err == nil && (a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, "max_upload_bytes")) {
				t.Errorf("HTTP/2 %v: a chunked body beyond the pool's bound: %d %s", http2, a.status, a.body)
			}
			for _, d := range r.recorded().Last(10) {
				if len(d.Attempts) > 1 || len(d.Attempts) == 1 && d.Attempts[0].Error != "" &&
					!strings.Contains(d.Attempts[0].Error, "max_upload_bytes") {
					t.Errorf("attempts: %+v", d.Attempts)
				}
			}
		}
	})
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestAnUploadKeepsTheClientsConnection: the connection is reused after a body that was read to its
// end.
func TestAnUploadKeepsTheClientsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns atomic.Int32
		r := newUploadRig(t, http.HandlerFunc(digestEngine))
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network,
			addr string) (net.Conn, error) {
			conns.Add(1)
			return r.net.Dial(ctx, network, addr)
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
	})
}

// TestLargeJSONBodiesAreNotStreamed: otherwise a long body could set a cache salt or a priority.
func TestLargeJSONBodiesAreNotStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUploadRig(t, http.HandlerFunc(digestEngine))
		for _, head := range []string{`{"cache_salt":"x","a":"`, "\xef\xbb\xbf{\"a\":\"", " \r\n\t{\"a\":\"",
			strings.Repeat(" ", 600) + `{"a":"`} {
			for _, kind := range []string{"application/json", "application/octet-stream", ""} {
				long := head + strings.Repeat("x", 70<<10) + `"}`
				for _, length := range []int64{int64(len(long)), -1} {
					if a, err := r.upload(t.Context(), r.net.client, "/files/x", strings.NewReader(long), length, "Content-Type",
						kind); err == nil && a.status != http.StatusRequestEntityTooLarge {
						t.Errorf("%.20q as %q, length %d: %d %s", head, kind, length, a.status, a.body)
					}
				}
			}
			short := head + `"}`
			if a, err := r.upload(t.Context(), r.net.client, "/files/x", strings.NewReader(short), -1, "Content-Type",
				"application/json"); err != nil || a.status != http.StatusOK || strings.HasPrefix(a.body, "-1") {
				t.Errorf("%.20q in a short body is not buffered: %d %s, %v", head, a.status, a.body, err)
			}
		}
		wide := "{\x00\"\x00" + strings.Repeat("x\x00", 40<<10)
		if a, err := r.upload(t.Context(), r.net.client, "/files/x", strings.NewReader(wide), int64(len(wide)),
			"Content-Type", "application/json"); err == nil && a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("JSON in UTF-16: %d %s", a.status, a.body)
		}
		if a, err := r.upload(t.Context(), r.net.client, "/files/x", strings.NewReader(strings.Repeat("x", 70<<10)), -1,
			"Content-Encoding", "gzip"); err == nil && a.status == http.StatusOK {
			t.Errorf("a compressed body: %d %s", a.status, a.body)
		}
	})
}

// deadlineRecorder is a ResponseRecorder that accepts deadlines.
type deadlineRecorder struct{ *httptest.ResponseRecorder }

func (deadlineRecorder) SetReadDeadline(time.Time) error  { return nil }
func (deadlineRecorder) SetWriteDeadline(time.Time) error { return nil }

func TestJSONIsDetectedHoweverItsBytesAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUploadRig(t, http.HandlerFunc(digestEngine))
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
				w := deadlineRecorder{httptest.NewRecorder()}
				r.planes.dataHandler().ServeHTTP(w, req)
				if w.Code != http.StatusRequestEntityTooLarge {
					t.Errorf("%.20q after %d bytes: %d %s", head, split, w.Code, w.Body)
				}
			}
		}
	})
}

// TestAnUploadNeedsLittleMemory, whatever its length.
func TestAnUploadNeedsLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int64
		r := newUploadRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
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
		if a, err := r.upload(t.Context(), r.net.client, "/files/x", io.LimitReader(zeros{}, 48<<20),
			48<<20); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s, %v", a.status, a.body, err)
		}
		if grown := most.Load() - int64(before.HeapAlloc); grown > 8<<20 {
			t.Errorf("an upload of 48 MiB grew the heap by %d KiB", grown>>10)
		}
	})
}

// TestAnUploadIsRetriedOnlyIfNothingWasSent: a worker that read a part may have processed it. A worker
// that refused the connection has not.
func TestAnUploadIsRetriedOnlyIfNothingWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hits atomic.Int32
		fails := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			hits.Add(1)
			io.CopyN(io.Discard, q.Body, 100_000) // a test's own worker
			panic(http.ErrAbortHandler)
		})
		r := newUploadRig(t, fails, fails)
		for _, length := range []int64{4 << 20, -1} {
			hits.Store(0)
			a, err := r.upload(t.Context(), r.net.client, "/files/x", io.LimitReader(zeros{}, 4<<20), length)
			if err == nil && a.status != http.StatusBadGateway || hits.Load() != 1 {
				t.Errorf("length %d: %d %s, %v after %d attempts", length, a.status, a.body, err, hits.Load())
			}
		}
		yaml := strings.Replace(fmt.Sprintf(uploadYAML, "10s", "10s"), "workers: [ %s ]",
			`workers: [ { name: none, url: "http://127.0.0.1:9", weight: 100 }, %s ]`, 1)
		r = newRig(t, "policy: { name: round_robin }\n"+yaml, http.HandlerFunc(digestEngine))
		for range 2 {
			if a, err := r.upload(t.Context(), r.net.client, "/files/x", io.LimitReader(zeros{}, 1<<20), -1); err != nil ||
				a.status != http.StatusOK || !strings.HasPrefix(a.body, "-1 1048576 ") {
				t.Errorf("beside a worker that refuses connections: %d %s, %v", a.status, a.body, err)
			}
		}
	})
}

// TestAnEarlyErrorOfAWorkerReachesTheClient, and the client's connection is closed.
func TestAnEarlyErrorOfAWorkerReachesTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUploadRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Connection", "close")
			http.Error(w, "no room", http.StatusInsufficientStorage-100) // 407: a 4xx is forwarded unchanged
		}))
		conn, err := networkOf(t).Dial(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn,
			"PUT /files/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
			60<<20)
		go io.CopyN(conn, zeros{}, 60<<20) // fails when the gateway closes
		answer := make([]byte, 4096)
		n, err := conn.Read(answer)
		if text := string(answer[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.1 407 ") ||
			!strings.Contains(text, "Connection: close") {
			t.Errorf("%q, %v", answer[:n], err)
		}
	})
}

// TestAnUploadEndsWithItsClient: the worker sees an incomplete body, is not blamed, and its slot is
// free.
func TestAnUploadEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, http2 := range []bool{false, true} {
			begun, ends := make(chan struct{}, 1), make(chan error, 1)
			r := newUploadRig(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				io.ReadFull(q.Body, make([]byte, 1)) // the copy below fails too
				begun <- struct{}{}
				_, err := io.Copy(io.Discard, q.Body)
				ends <- err
			}))
			client := r.overTLS(http2)
			for _, length := range []int64{8 << 20, -1} {
				ctx, cancel := context.WithCancel(t.Context())
				in, out := io.Pipe()
				go func() {
					out.Write(bytes.Repeat([]byte("x"), 1<<20)) // the request has ended
					<-begun
					cancel()
					out.CloseWithError(context.Canceled) // net/http waits for the end of the body
				}()
				if _, err := r.upload(ctx, client, "/files/x", in, length); !errors.Is(err, context.Canceled) {
					t.Errorf("HTTP/2 %v, length %d: %v", http2, length, err)
				}
				if err := <-ends; err == nil {
					t.Errorf("HTTP/2 %v, length %d: the worker read an incomplete body as complete", http2, length)
				}
				waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
				d := r.recorded().Last(1)[0]
				if d.Result != "client_gone" || len(d.Attempts) != 1 || d.Attempts[0].ErrorType != "client_gone" {
					t.Errorf("HTTP/2 %v, length %d: %s after %+v", http2, length, d.Result, d.Attempts)
				}
			}
		}
	})
}

// TestAStalledUploadIsCut: error and blame go to the side that stalls.
func TestAStalledUploadIsCut(t *testing.T) {
	slow := strings.Repeat("x", 100<<10)
	t.Run("the client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, http2 := range []bool{false, true} {
				ends := make(chan error, 1)
				r := newRig(t, fmt.Sprintf(uploadYAML, "10s", "100ms"), http.HandlerFunc(func(_ http.ResponseWriter,
					q *http.Request) {
					_, err := io.Copy(io.Discard, q.Body)
					ends <- err
				}))
				client := r.overTLS(http2)
				in, out := io.Pipe()
				go io.WriteString(out, slow) // and then nothing
				a, err := r.upload(t.Context(), client, "/files/x", in, 8<<20)
				out.Close()
				if err != nil || a.status != http.StatusRequestTimeout {
					t.Errorf("HTTP/2 %v: %d %s, %v", http2, a.status, a.body, err)
				}
				if err := <-ends; err == nil {
					t.Errorf("HTTP/2 %v: the worker read an incomplete body as complete", http2)
				}
				waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
				if d := r.recorded().Last(1)[0]; len(d.Attempts) != 1 ||
					!strings.Contains(d.Attempts[0].Error, "the client's body failed") {
					t.Errorf("HTTP/2 %v: %+v", http2, d.Attempts)
				}
			}
		})
	})
	t.Run("the worker", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			r := newRig(t, fmt.Sprintf(uploadYAML, "200ms", "10s"), http.HandlerFunc(func(_ http.ResponseWriter,
				q *http.Request) {
				<-stuck
			}))
			a, err := r.upload(t.Context(), r.net.client, "/files/x", io.LimitReader(zeros{}, 60<<20), 60<<20)
			close(stuck)
			if err == nil && a.status != http.StatusGatewayTimeout {
				t.Errorf("%d %s, %v", a.status, a.body, err)
			}
			waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
			if d := r.recorded().Last(1)[0]; len(d.Attempts) != 1 ||
				d.Attempts[0].Error != "no bytes within timeouts.idle" {
				t.Errorf("%+v", d.Attempts)
			}
		})
	})
	t.Run("beyond the total time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ends := make(chan error, 1)
			yaml := strings.Replace(uploadYAML, "client_stall: %s", "client_stall: %s, total: { interactive: 150ms }", 1)
			r := newRig(t, fmt.Sprintf(yaml, "10s", "10s"), http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				_, err := io.Copy(io.Discard, q.Body)
				ends <- err
			}))
			in, out := io.Pipe()
			go io.WriteString(out, slow) // and then nothing
			a, err := r.upload(t.Context(), r.net.client, "/files/x", in, 8<<20)
			out.Close()
			if err != nil || a.status != http.StatusGatewayTimeout {
				t.Errorf("%d %s, %v", a.status, a.body, err)
			}
			if err := <-ends; err == nil {
				t.Error("the worker read an incomplete body as complete")
			}
			waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
			if d := r.recorded().Last(1)[0]; len(d.Attempts) != 1 ||
				!strings.Contains(d.Attempts[0].Error, "the request reached its total time") {
				t.Errorf("%+v", d.Attempts)
			}
		})
	})
	t.Run("neither, for longer than idle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fmt.Sprintf(uploadYAML, "150ms", "10s"), http.HandlerFunc(digestEngine))
			in, out := io.Pipe()
			go func() {
				for range 5 {
					io.WriteString(out, slow) // the upload below fails too
					<-time.After(80 * time.Millisecond)
				}
				out.Close()
			}()
			if a, err := r.upload(t.Context(), r.net.client, "/files/x", in, -1); err != nil || a.status != http.StatusOK {
				t.Errorf("%d %s, %v", a.status, a.body, err)
			}
		})
	})
}
