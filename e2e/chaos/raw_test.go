package chaos

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tierway/e2e/rig"
)

// raw is a client connection that can send arbitrary bytes.
type raw struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (r *chaosRig) dial() *raw {
	r.T.Helper()
	c := rig.Dial(r.T, r.DataAddr)
	if err := c.SetDeadline(time.Now().Add(2 * rig.Patience)); err != nil {
		r.T.Fatal(err)
	}
	return &raw{t: r.T, Conn: c, r: bufio.NewReader(c)}
}

// send writes text unchanged.
func (c *raw) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads one complete response.
func (c *raw) answer() rig.Reply {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return rig.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(body), Close: resp.Close, Err: err}
}

// checkClosed checks that the gateway sends nothing more and closes the connection.
func (c *raw) checkClosed() {
	c.t.Helper()
	more, err := io.ReadAll(c.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the connection stays open")
	}
	if len(more) > 0 {
		c.t.Errorf("the gateway sent more: %q", more)
	}
}

// head is the beginning of a chat request. Further headers can follow.
const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"

// smuggled is a request inside the body of another one.
const smuggled = "POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: 32\r\n\r\n" +
	`{"model":"sim","prompt":"sneaky"`

// lines joins the lines of a request with CRLF.
func lines(l ...string) string { return strings.Join(l, "\r\n") }
