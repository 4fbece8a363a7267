package server

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestStalledBodyGets408: the body stalls in its data, between chunks or in the trailer, where net/http
// hides the deadline from the reader.
func TestStalledBodyGets408(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quiet, fakeEngine())
		for name, part := range map[string]string{
			"data": "5\r\n{\"m", "the last chunk": "2\r\n{}\r\n", "the trailer": "2\r\n{}\r\n0\r\nX: ",
		} {
			client, err := r.net.Dial(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(client, "POST /v1/chat/completions HTTP/1.1\r\n"+
				"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%s", part)
			resp, err := http.ReadResponse(bufio.NewReader(client), nil) // the rest of the body never comes
			if err != nil {
				t.Fatalf("%s: no answer: %v", name, err)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), "request_timeout") {
				t.Errorf("%s: %d %s", name, resp.StatusCode, body)
			}
			client.Close()
			synctest.Wait()
			if d := r.recorded().Last(1)[0]; d.Result == "client_gone" {
				t.Errorf("%s: the record says %s", name, d.Result)
			}
		}
	})
}

// quiet is one tier without keys and health checks.
const quiet = `
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
`
