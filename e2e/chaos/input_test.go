package chaos

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// checkNoHits checks that no worker received a request.
func (r *chaosRig) checkNoHits() {
	r.T.Helper()
	if n := r.hits(); n != 0 {
		r.T.Errorf("the workers received %d requests, want none", n)
	}
}

// checkError checks that a reply is an error with a status and a code.
func checkError(t *testing.T, what string, got rig.Reply, status int, code string) {
	t.Helper()
	e, ok := bodyError(got.Body)
	if got.Status != status || !ok || e.Code != code {
		t.Errorf("%s: the answer is %d %s, want %d %s", what, got.Status, got.Body, status, code)
	}
}

// TestTooLargeBodyIsRejectedUnread: the gateway returns 413 before it reads the body, or as soon
// as the body exceeds the bound, and closes the connection.
func TestTooLargeBodyIsRejectedUnread(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, rig.Settings{"max_body_bytes": "64KiB"}, engines.Config{})
		c := r.dial()
		c.send(head + "Content-Length: 65537\r\n\r\n")
		checkError(t, "a length over the bound", c.answer(), http.StatusRequestEntityTooLarge, "request_too_large")
		c.checkClosed()

		c = r.dial()
		c.send(head + "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n")
		checkError(t, "a length over the bound with Expect", c.answer(), http.StatusRequestEntityTooLarge,
			"request_too_large")
		c.checkClosed()

		c = r.dial()
		c.send(head + "Transfer-Encoding: chunked\r\n\r\n")
		for range 17 {
			c.send("1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n")
		}
		checkError(t, "chunks without an end", c.answer(), http.StatusRequestEntityTooLarge, "request_too_large")
		c.checkClosed()

		bomb := zip(t, strings.Repeat(" ", 1<<20))
		checkError(t, "a gzip bomb", r.post(chat.path, bomb, "Content-Encoding", "gzip"), http.StatusRequestEntityTooLarge,
			"request_too_large")
		r.checkNoHits()

		body := `{"model":"sim","messages":[{"role":"user","content":"` +
			strings.Repeat("a", 65536-len(chat.body)+len("hello")) + `"}]}`
		if got := r.post(chat.path, body); len(body) != 65536 || got.Status != http.StatusOK {
			t.Errorf("%d bytes at a bound of 65536: status %d", len(body), got.Status)
		}
	})
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedBodies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		whole := zip(t, chat.body)
		for _, encoding := range []string{"br", "deflate", "zstd, gzip", "gzip, gzip", "identity, br"} {
			checkError(t, encoding, r.post(chat.path, whole, "Content-Encoding", encoding), http.StatusUnsupportedMediaType,
				"unsupported_encoding")
		}
		for what, body := range map[string]string{"half of it": whole[:len(whole)/2], "plain text": chat.body,
			"something after it": whole + "x"} {
			checkError(t, "gzip that is "+what, r.post(chat.path, body, "Content-Encoding", "gzip"), http.StatusBadRequest,
				"invalid_value")
		}
		r.checkNoHits()
		for _, encoding := range []string{"gzip", "GZIP", "x-gzip"} {
			if got := r.post(chat.path, whole, "Content-Encoding", encoding); got.Status != http.StatusOK {
				t.Errorf("%s: the status is %d: %s", encoding, got.Status, got.Body)
			}
		}
		for _, seen := range r.Workers[0].Recorder.Requests() {
			if string(seen.Body) != chat.body || seen.Header.Get("Content-Encoding") != "" {
				t.Errorf("the worker got %q encoded as %q", seen.Body, seen.Header.Get("Content-Encoding"))
			}
		}
	})
}

// TestAmbiguousRequestsAreRejected: a request that servers could parse differently never reaches
// a worker.
func TestAmbiguousRequestsAreRejected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		length := fmt.Sprintf("Content-Length: %d\r\n", len(chat.body))
		for name, c := range map[string]struct {
			text   string
			status int
		}{
			"two lengths":            {head + length + "Content-Length: 3\r\n\r\n" + chat.body, 400},
			"a length with a sign":   {head + "Content-Length: +3\r\n\r\nabc", 400},
			"a length below zero":    {head + "Content-Length: -1\r\n\r\n", 400},
			"a length in words":      {head + "Content-Length: 3, 3 4\r\n\r\nabc", 400},
			"an unknown encoding":    {head + "Transfer-Encoding: xchunked\r\n\r\n", 501},
			"two encodings":          {head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
			"a list of encodings":    {head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
			"a space before a colon": {head + fmt.Sprintf("Content-Length : %d\r\n\r\n", len(chat.body)) + chat.body, 400},
			"no Host":                {"POST /v1/chat/completions HTTP/1.1\r\n" + length + "\r\n" + chat.body, 400},
			"two Hosts":              {head + "Host: other\r\n" + length + "\r\n" + chat.body, 400},
			"a NUL in a value":       {head + "X-A: a\x00b\r\n" + length + "\r\n" + chat.body, 400},
			"a folded header":        {head + "X-A: a\r\n b\r\n Content-Length: 1\r\n" + "X\x7f: 1\r\n" + "\r\n", 400},
			"a bad chunk size":       {head + "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 400},
			"a chunk of a huge size": {head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n", 400},
			"chunks in HTTP/1.0": {strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) +
				"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
			"a version of the future": {strings.Replace(head, "HTTP/1.1", "HTTP/3.0", 1) + length + "\r\n" + chat.body, 505},
			"a path without a slash":  {strings.Replace(head, "/v1", "v1", 1) + length + "\r\n" + chat.body, 400},
		} {
			conn := r.dial()
			conn.send(c.text + smuggled)
			if got := conn.answer(); got.Status != c.status {
				t.Errorf("%s: the status is %d, want %d: %s", name, got.Status, c.status, got.Body)
			}
			conn.checkClosed()
		}
		r.checkNoHits()
	})
}

// TestLengthWithChunksIsRefused, in plain text and over TLS, as the first request of a connection
// and after others, because a proxy in front could parse it differently.
func TestLengthWithChunksIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		a.issue(t, 1)
		body := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chat.body), chat.body)
		good := head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(chat.body)) + chat.body
		chunked := head + "Transfer-Encoding: chunked\r\n\r\n" + body
		for _, own := range []rig.Settings{nil, {"tls": a.section()}} {
			r := newRig(t, 1, own, engines.Config{})
			for _, bad := range []string{
				head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
				head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + body,
				head + "Transfer-Encoding:\r\n chunked\r\ncontent-length:\r\n\t4\r\n\r\n" + body,
				strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + body,
			} {
				for before, requests := range []string{"", good, chunked + good} {
					c := r.dial()
					if own != nil {
						secure := tls.Client(c.Conn, trusting())
						c.Conn, c.r = secure, bufio.NewReader(secure)
					}
					hits := r.hits()
					c.send(requests + bad + smuggled)
					for range before {
						if got := c.answer(); got.Status != http.StatusOK {
							t.Errorf("a proper request before it got %d %s", got.Status, got.Body)
						}
					}
					if got := c.answer(); got.Status != http.StatusBadRequest || !got.Close {
						t.Errorf("%q got %d %s", bad[len(head):], got.Status, got.Body)
					}
					c.checkClosed()
					if seen := r.hits() - hits; seen != int64(before) {
						t.Errorf("the worker saw %d requests, want %d", seen, before)
					}
				}
			}
		}
	})
}

func TestTooLargeAHeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		c := r.dial()
		c.send(head + "X-Large: " + strings.Repeat("x", 70<<10))
		if got := c.answer(); got.Status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("the status is %d", got.Status)
		}
		c.checkClosed()
		r.checkNoHits()
	})
}

// TestSlowBodyTimesOut: a body that stalls for longer than the grace of 5 s gets 408 and does not reach a worker. It
// stalls in its data, between chunks or in the trailer, where net/http hides the deadline from the reader. An unread
// body of a rejected request does not keep its connection open. No client counts as gone.
func TestSlowBodyTimesOut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const part, chunked = "Content-Length: 1000\r\n\r\n{\"model\"", "Transfer-Encoding: chunked\r\n\r\n"
		r := newRig(t, 1, nil, engines.Config{})
		closed := newRig(t, 1,
			rig.Settings{"auth": fmt.Sprintf("{ keys: [ { name: team, sha256: %s } ] }", rig.Digest("secret"))},
			engines.Config{})
		for name, c := range map[string]struct {
			r      *chaosRig
			text   string
			status int
			code   string
		}{
			"in its data":    {r, head + part, 408, "request_timeout"},
			"in a chunk":     {r, head + chunked + "5\r\n{\"m", 408, "request_timeout"},
			"after a chunk":  {r, head + chunked + "2\r\n{}\r\n", 408, "request_timeout"},
			"in the trailer": {r, head + chunked + "2\r\n{}\r\n0\r\nX: ", 408, "request_timeout"},
			"without a key":  {closed, head + part, 401, "invalid_api_key"},
			"elsewhere":      {r, strings.Replace(head, "/v1/chat", "/v1/chess", 1) + part, 404, "unknown_url"},
			"with PUT":       {r, strings.Replace(head, "POST", "PUT", 1) + part, 405, "method_not_allowed"},
		} {
			conn := c.r.dial()
			conn.send(c.text)
			got := conn.answer()
			checkError(t, name, got, c.status, c.code)
			conn.checkClosed()
			if line := c.r.AccessLine(got.Header.Get("X-Request-Id")); line["outcome"] == "client_gone" {
				t.Errorf("%s: the log says %v", name, line)
			}
		}
		r.checkNoHits()
		closed.checkNoHits()
	})
}

// TestIncompleteBodyReachesNoWorker: the client disconnects in the middle of the body.
func TestIncompleteBodyReachesNoWorker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		c := r.dial()
		c.send(head + "Content-Length: 1000\r\n\r\n{\"model\"")
		c.Close()
		r.WaitFor("the request's end", func() bool { return len(r.AccessLines()) == 1 })
		if line := r.AccessLines()[0]; line["outcome"] != "client_gone" && line["outcome"] != "refused" {
			t.Errorf("the log says %v", line)
		}
		r.checkNoHits()
	})
}
