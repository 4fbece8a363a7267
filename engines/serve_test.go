package engines

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"tierway/e2e/loopback"
)

func TestKilledServerResetsEverything(t *testing.T) {
	e := New(Config{Model: "m", Script: func(string, []byte) Script { return Script{HoldAfter: 1} }})
	addr, err := loopback.Address() // no other process listens on it later
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(e, addr)
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	conn, idle := dial(), dial()
	body := `{"model":"m","stream":true,` + hello + `}`
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for _, c := range []net.Conn{conn, idle} {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection ended with %v", err)
		}
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")); err == nil {
		c.Close()
		t.Error("a killed server still listens")
	}
	if st := e.Stats(); st.Open != 0 || st.Running != 0 {
		t.Errorf("left behind: %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestOnlyLoopbackIsListenedOn(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0", "127.0.0.1"} {
		if s, err := Start(http.NotFoundHandler(), addr); err == nil {
			s.Close()
			t.Errorf("%q was listened on", addr)
		}
	}
}
