package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// files returns a worker for pass-through paths: a file, an upload that returns its digest, a
// redirect and a stream that pauses.
func files(pause time.Duration) http.Handler {
	h := http.NewServeMux()
	modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h.HandleFunc("/files/messages/f.bin", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		http.ServeContent(w, q, "f.bin", modified, strings.NewReader("0123456789"))
	})
	h.HandleFunc("PUT /files/upload", func(w http.ResponseWriter, q *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, q.Body)
		fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	})
	h.HandleFunc("/files/old/", func(w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, "http://"+q.Host+"/files/messages/f.bin?x=1", http.StatusFound)
	})
	h.HandleFunc("/files/pause", func(w http.ResponseWriter, q *http.Request) {
		io.WriteString(w, "begin")            //nolint:errcheck // the client checks the body
		http.NewResponseController(w).Flush() //nolint:errcheck // the client checks the body
		<-time.After(pause)
		io.WriteString(w, "end") //nolint:errcheck // the client checks the body
	})
	return h
}

// passing returns a pool of three workers that serves /files/*. Breakers open at the second
// failure.
func passing(t *testing.T, own rig.Settings, h http.Handler) *chaosRig {
	t.Helper()
	var list []string
	for i := range 3 {
		list = append(list, fmt.Sprintf("{ name: f%d, url: %q }", i, rig.Serve(t, h).URL))
	}
	own["pools"] = `[ { name: files, paths: ["/files/*"], max_upload_bytes: 1GiB, workers: [ ` + strings.Join(list, ", ") +
		` ] } ]`
	own["breaker"] = "{ consecutive_failures: 2 }"
	return newRig(t, 1, own, engines.Config{})
}

// TestPassThroughPathsBehaveAsWithoutAGateway: HEAD, ranges, conditions, redirects and slashes
// pass unchanged, and no client header makes the gateway parse a download.
func TestPassThroughPathsBehaveAsWithoutAGateway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := passing(t, rig.Settings{}, files(0))
		const file = "/files/messages/f.bin"
		for _, c := range []struct {
			method, path string
			headers      []string
			status       int
			body         string
			header, want string
		}{
			{"GET", file, nil, 200, "0123456789", "Content-Type", "application/octet-stream"},
			{"GET", file, []string{"Anthropic-Version", "2023-06-01"}, 200, "0123456789", "Content-Length", "10"},
			{"HEAD", file, nil, 200, "", "Content-Length", "10"},
			{"GET", file, []string{"Range", "bytes=2-4"}, 206, "234", "Content-Range", "bytes 2-4/10"},
			{"GET", file, []string{"Range", "bytes=90-"}, 416, "invalid range: failed to overlap\n", "Content-Range",
				"bytes */10"},
			{"GET", file, []string{"If-None-Match", `"v1"`}, 304, "", "Etag", `"v1"`},
			{"GET", "/files/old/", nil, 302, "", "Location", file + "?x=1"},
			{"GET", "/files/old/a/b/", nil, 302, "", "Location", file + "?x=1"},
		} {
			for range 3 { // each worker, or one after two failures
				got := r.do(c.method, c.path, "", c.headers...)
				if got.Status != c.status || c.body != "" && got.Body != c.body || got.Header.Get(c.header) != c.want ||
					got.Err != nil {
					t.Errorf("%s %s %q: %d %q, %s %q, %v", c.method, c.path, c.headers, got.Status, got.Body, c.header,
						got.Header.Get(c.header), got.Err)
				}
			}
		}
		if n := r.breakerOpenings(""); n != 0 {
			t.Errorf("successful answers opened %v breakers", n)
		}
	})
}

// TestLargeUploadsStream: max_upload_bytes allows 48 MiB although max_body_bytes is 1 MiB.
func TestLargeUploadsStream(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := passing(t, rig.Settings{"max_body_bytes": "1MiB"}, files(0))
		body := bytes.Repeat([]byte("0123456789abcdef"), 3<<20)
		want := fmt.Sprintf("%d %x <nil>", len(body), sha256.Sum256(body))
		for _, length := range []int64{int64(len(body)), -1} {
			req := r.Request(context.Background(), http.MethodPut, "/files/upload", "x", "Content-Type",
				"application/octet-stream")
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), length
			got, err := r.try(req)
			if err != nil || got.Status != http.StatusOK || got.Body != want {
				t.Errorf("length %d: %d %s, %v", length, got.Status, got.Body, err)
			}
		}
	})
}

// TestSilentAnswersOutliveClientStall over HTTP/2, where a write deadline that was not reset would
// end the stream.
func TestSilentAnswersOutliveClientStall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		a.issue(t, 1)
		const stall = 200 * time.Millisecond
		r := passing(t, rig.Settings{"tls": a.section(), "timeouts": "{ client_stall: " + stall.String() + " }"},
			files(3*stall))
		resp, err := rig.NewHTTP2Client(t).Get("https://" + r.DataAddr + "/files/pause")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "beginend" || resp.ProtoMajor != 2 {
			t.Errorf("%s: %q, %v", resp.Proto, body, err)
		}
	})
}
