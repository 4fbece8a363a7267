package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// overTLS also serves the rig's data plane over TLS. It returns a client that uses HTTP/2 or HTTP/1.1.
func (r *rig) overTLS(http2 bool) *http.Client {
	r.t.Helper()
	front := newUnstartedServer(r.t, r.planes.dataHandler())
	front.EnableHTTP2 = true
	front.StartTLS()
	transport := &http.Transport{DialContext: r.net.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: http2}
	r.url = front.URL
	r.t.Cleanup(func() {
		transport.CloseIdleConnections()
		front.Close()
	})
	return &http.Client{Transport: transport}
}

// send sends a POST request and returns the answer with its body unread.
func (r *rig) send(ctx context.Context, client *http.Client, path, body string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// shortStallYAML is a tier and a pool for every kind of relay, with a short client_stall. Heartbeats
// never come within a test.
const shortStallYAML = `
auth: { required: false }
health: { path: "off" }
queue: { heartbeat_after: 1h }
timeouts: { client_stall: %s }
tiers:
  - { name: small, model: fake-7b, serves: [chat, audio, images], workers: [ { name: w0, url: %q } ] }
pools:
  - { name: raw, paths: ["/raw/*"], workers: [ { name: w1, url: %q } ] }
# %%s
`

// TestASilentWorkerIsNotAStalledClient: client_stall limits a write that the client does not read. Over
// HTTP/2, a deadline that is left behind would end an idle stream.
func TestASilentWorkerIsNotAStalledClient(t *testing.T) {
	const stall, silence = 100 * time.Millisecond, 400 * time.Millisecond
	const first = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
	for _, http2 := range []bool{false, true} {
		for path, want := range map[string]string{"/raw/x": "beginend", "/v1/audio/speech": "beginend",
			"/v1/chat/completions": first + chunkAndEnd} {
			t.Run(fmt.Sprintf("HTTP/2 %v %s", http2, path), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
						kind, begin, end := "application/octet-stream", "begin", "end"
						if strings.Contains(q.URL.Path, "chat") {
							kind, begin, end = "text/event-stream", first, chunkAndEnd
						}
						w.Header().Set("Content-Type", kind)
						writeNow(t, w, begin)
						<-time.After(silence)
						writeNow(t, w, end)
					})
					r := newRig(t, fmt.Sprintf(shortStallYAML, stall, startServer(t, engine), startServer(t, engine)))
					resp := r.send(t.Context(), r.overTLS(http2), path,
						`{"model":"small","stream":true,"input":"x","messages":[{"role":"user","content":"hi"}]}`)
					if (resp.ProtoMajor == 2) != http2 {
						t.Fatalf("the answer is %s", resp.Proto)
					}
					if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
						t.Errorf("the stream ended with %v after %q", err, body)
					}
				})
			})
		}
	}
}

// TestAStalledClientIsCut: a client that does not read its answer loses its slot, over either protocol.
func TestAStalledClientIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{}, 4)
		engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			out := bufio.NewWriter(w)
			for q.Context().Err() == nil {
				if _, err := out.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
			left <- struct{}{}
		})
		for _, http2 := range []bool{false, true} {
			r := newRig(t, fmt.Sprintf(shortStallYAML, 100*time.Millisecond, startServer(t, engine), startServer(t, engine)))
			resp := r.send(t.Context(), r.overTLS(http2), "/raw/x", "{}")
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("HTTP/2 %v: %d", http2, resp.StatusCode)
			}
			<-left
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Errorf("HTTP/2 %v: an answer that was cut has a clean end", http2)
			}
			waitUntil(t, "the end of the request", func() bool { return r.Inflight() == 0 })
			if d := r.recorded().Last(1)[0]; d.Result != "client_gone" {
				t.Errorf("HTTP/2 %v: the outcome is %s", http2, d.Result)
			}
		}
	})
}
