package server

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"tierway/server/intake"
	"time"
)

// unreadRequests are requests with bodies that no handler reads, by plane, with their statuses.
func unreadRequests() map[string][]struct {
	line, headers string
	status        int
} {
	type rows = []struct {
		line, headers string
		status        int
	}
	const bearer = "Authorization: Bearer ops\r\n"
	return map[string]rows{
		"data": {
			{"GET /livez", "", 200},
			{"HEAD /livez", "", 200},
			{"GET /readyz", "", 200},
			{"GET /v1/models", "", 401},
			{"POST /v1/chat/completions", "", 401},
			{"POST /v1/nowhere", "Authorization: Bearer filed\r\n", 404},
			{"PUT /v1/chat/completions", "Authorization: Bearer filed\r\n", 405},
			{"GET /v1/models", "Authorization: Bearer filed\r\n", 200},
			{"OPTIONS /v1/chat/completions", "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n", 204},
		},
		"admin": {
			{"GET /metrics", "", 200},
			{"GET /livez", "", 200},
			{"GET /readyz", "", 200},
			{"GET /nowhere", "", 404},
			{"POST /metrics", "", 405},
			{"GET /admin/workers", "", 401},
			{"POST /admin/reload", "Sec-Fetch-Site: cross-site\r\n", 403},
			{"GET /admin/workers", bearer, 200},
			{"GET /admin/tenants", bearer, 200},
		},
		"metrics": {{"GET /metrics", "", 200}, {"GET /nowhere", "", 404}},
	}
}

// handlers are the handlers of the rig's planes.
func (r *rig) handlers() map[string]http.Handler {
	return map[string]http.Handler{"data": r.planes.dataHandler(), "admin": r.planes.adminHandler(),
		"metrics": r.planes.metricsHandler()}
}

// corsYAML is adminYAML with an origin that CORS allows.
func corsYAML() string {
	return strings.Replace(adminYAML(memoryDB), "health:", "cors: { origins: [\"https://app.example\"] }\nhealth:", 1)
}

// TestAnUnreadBodyDoesNotKeepItsConnection: a request that announces a body and sends none is answered,
// and its connection is closed.
func TestAnUnreadBodyDoesNotKeepItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(corsYAML(), "[ %s ]", `[ { name: away, url: "http://127.0.0.1:1" } ]`, 1)+"# %s\n")
		type pendingRequest struct {
			what, method string
			status       int
			net.Conn
		}
		var all []pendingRequest
		for plane, handler := range r.handlers() {
			front := newServer(t, handler)
			for _, c := range unreadRequests()[plane] {
				for _, body := range []string{"Content-Length: 1\r\n", "Content-Length: 9000000\r\n",
					"Transfer-Encoding: chunked\r\n"} {
					conn, err := networkOf(t).Dial(t.Context(), "tcp", front.Listener.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { conn.Close() })
					conn.SetDeadline(time.Now().Add(10 * time.Second)) // the read fails
					fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n", c.line, c.headers, body)
					method, _, _ := strings.Cut(c.line, " ")
					all = append(all, pendingRequest{plane + " " + c.line + " " + body, method, c.status, conn})
				}
			}
		}
		for _, c := range all {
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, &http.Request{Method: c.method})
			if err != nil {
				t.Errorf("%q: no answer: %v", c.what, err)
				continue
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.status {
				t.Errorf("%q: status %d, want %d (%v)", c.what, resp.StatusCode, c.status, err)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("%q: the connection stays open: %v", c.what, err)
			}
		}
	})
}

// TestAnUnreadBodyDoesNotKeepItsStream: over HTTP/2 the stream ends and the connection stays.
func TestAnUnreadBodyDoesNotKeepItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(corsYAML(), "[ %s ]", `[ { name: away, url: "http://127.0.0.1:1" } ]`, 1)+"# %s\n")
		for plane, handler := range r.handlers() {
			front := newUnstartedServer(t, handler)
			front.EnableHTTP2 = true
			front.StartTLS()
			transport := &http.Transport{DialContext: r.net.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				ForceAttemptHTTP2: true}
			t.Cleanup(transport.CloseIdleConnections)
			for _, c := range unreadRequests()[plane] {
				t.Logf("case %v %v", plane, c.line)
				func() {
					method, path, _ := strings.Cut(c.line, " ")
					silent, end := io.Pipe()
					defer end.Close()
					req, err := http.NewRequestWithContext(t.Context(), method, front.URL+path, silent)
					if err != nil {
						t.Fatal(err)
					}
					for line := range strings.Lines(c.headers) {
						name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
						req.Header.Set(name, value)
					}
					resp, err := transport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.status || resp.ProtoMajor != 2 {
						t.Errorf("%s %d, want %d (%v)", resp.Proto, resp.StatusCode, c.status, err)
					}
				}()
			}
		}
	})
}

// TestAnUnreadAnswerDoesNotKeepItsStream: a stream is reset if its client reads no byte of the answer,
// with or without a key.
func TestAnUnreadAnswerDoesNotKeepItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(corsYAML(), "health:", "timeouts: { client_stall: 100ms }\nhealth:", 1), fakeEngine())
		paths := map[string][]string{"data": {"/livez", "/readyz", "/v1/models", "/nowhere"},
			"admin": {"/metrics", "/livez", "/nowhere", "/admin/workers"}, "metrics": {"/metrics"}}
		for plane, handler := range r.handlers() {
			front := newUnstartedServer(t, handler)
			front.EnableHTTP2 = true
			front.StartTLS()
			for _, path := range paths[plane] {
				plain, err := r.net.Dial(t.Context(), "tcp", front.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				conn := tls.Client(plain, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				t.Cleanup(func() { conn.Close() })
				conn.SetDeadline(time.Now().Add(10 * time.Second))                        // the read fails
				head := fmt.Sprintf("\x82\x87\x04%c%s\x01\x09localhost", len(path), path) // GET, https, :path, :authority
				fmt.Fprintf(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+
					"\x00\x00\x06\x04\x00\x00\x00\x00\x00"+"\x00\x04\x00\x00\x00\x00"+ // SETTINGS: windows of 0 bytes
					"\x00\x00%c\x01\x05\x00\x00\x00\x01%s", len(head), head) // HEADERS: the whole request
				const resetStream = 3
				for frame := make([]byte, 9); ; {
					if _, err := io.ReadFull(conn, frame); err != nil {
						t.Errorf("%s %s: the stream stays open: %v", plane, path, err)
						break
					}
					if frame[3] == resetStream {
						break
					}
					// the next read fails
					io.CopyN(io.Discard, conn, int64(frame[0])<<16|int64(frame[1])<<8|int64(frame[2]))
				}
			}
		}
	})
}

// TestAStreamOutlastsTheUnreadGrace: the deadline for unread bodies ends neither an answer to a body
// that was read nor an endless answer to a request with a body.
func TestAStreamOutlastsTheUnreadGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			<-time.After(intake.UnreadGrace + 200*time.Millisecond)
			writeNow(t, w, chunkAndEnd)
		})
		r := adminRigOf(newRig(t, adminYAML(memoryDB), engine))
		admin := newServer(t, r.planes.adminHandler())
		t.Cleanup(admin.Close)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin.URL+"/admin/decisions/stream",
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer ops")
		followed, err := r.net.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer followed.Body.Close()
		if a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			"Authorization", "Bearer filed"); a.err != nil || a.body != chunkAndEnd {
			t.Errorf("the stream ended with %v after %q", a.err, a.body)
		}
		if line, err := bufio.NewReader(followed.Body).ReadString('\n'); err != nil {
			t.Errorf("the decisions ended with %v after %q", err, line)
		}
	})
}
