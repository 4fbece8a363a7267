package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// pipes is a listener of in-memory connections.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestStalledBodyGets408: the body stalls in its data, between chunks or in the trailer, where net/http
// hides the deadline from the reader.
func TestStalledBodyGets408(t *testing.T) {
	for name, part := range map[string]string{
		"data": "5\r\n{\"m", "the last chunk": "2\r\n{}\r\n", "the trailer": "2\r\n{}\r\n0\r\nX: ",
	} {
		r := newRig(t, quiet, fakeEngine())
		handler := r.planes.dataHandler()
		synctest.Test(t, func(t *testing.T) {
			l := make(pipes, 1)
			front := &http.Server{Handler: handler}
			defer front.Close()
			go front.Serve(l) //nolint:errcheck // ends with the listener
			client, conn := net.Pipe()
			l <- conn
			close(l)
			//nolint:errcheck // the rest never comes
			go fmt.Fprintf(client, "POST /v1/chat/completions HTTP/1.1\r\n"+
				"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%s", part)
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Errorf("%s: no answer: %v", name, err)
				return
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), "request_timeout") {
				t.Errorf("%s: %d %s", name, resp.StatusCode, body)
			}
			client.Close()
		})
		if d := r.Server.decisions.Last(1)[0]; d.Result == "client_gone" {
			t.Errorf("%s: the record says %s", name, d.Result)
		}
	}
}

// quiet is one tier without keys and health checks.
const quiet = `
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
`
