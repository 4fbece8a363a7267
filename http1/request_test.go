package http1

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestRequestsAreWrittenExactly(t *testing.T) {
	for name, c := range map[string]struct {
		request Request
		want    string
	}{
		"GET": {Request{Method: "GET", Path: "/health?x=1"},
			"GET /health?x=1 HTTP/1.1\r\nHost: engine:8000\r\n\r\n"},
		"POST without a body": {Request{Method: "POST", Path: "/"},
			"POST / HTTP/1.1\r\nHost: engine:8000\r\nContent-Length: 0\r\n\r\n"},
		"POST with empty pieces": {Request{Method: "POST", Path: "/", Body: [][]byte{nil, {}}},
			"POST / HTTP/1.1\r\nHost: engine:8000\r\nContent-Length: 0\r\n\r\n"},
		"a body in pieces": {Request{Method: "POST", Path: "/", Body: [][]byte{[]byte("ab"), nil, []byte("c")}},
			"POST / HTTP/1.1\r\nHost: engine:8000\r\nContent-Length: 3\r\n\r\nabc"},
		"values, one line each": {Request{Method: "GET", Path: "/", Header: http.Header{"X-A": {"1", "zwölf\t!"}}},
			"GET / HTTP/1.1\r\nHost: engine:8000\r\nX-A: 1\r\nX-A: zwölf\t!\r\n\r\n"},
		"the connection is ours": {Request{Method: "GET", Path: "/", Header: http.Header{
			"Host": {"evil"}, "Content-Length": {"7"}, "content-length": {"8"}, "Transfer-Encoding": {"chunked"},
			"TRANSFER-ENCODING": {"chunked"},
			"Connection":        {"X-Key"}, "Keep-Alive": {"1"}, "Proxy-Connection": {"x"}, "Te": {"trailers"}, "Trailer": {"x"},
			"Upgrade": {"websocket"}, "Expect": {"100-continue"}, "Proxy-Authorization": {"x"}, "X-Key": {"kept"},
		}}, "GET / HTTP/1.1\r\nHost: engine:8000\r\nX-Key: kept\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &recordedConn{in: okAnswer}
			s := New(Config{Host: "engine:8000", Dial: func(context.Context, string, string) (net.Conn, error) {
				return conn, nil
			}})
			s.idle.max = 0
			res, err := s.Send(t.Context(), &c.request)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if string(conn.sent) != c.want {
				t.Errorf("sent %q\nwant %q", conn.sent, c.want)
			}
			if !conn.closed {
				t.Error("a connection was kept that must be closed")
			}
		})
	}
}

func TestAmbiguousRequestsAreRejected(t *testing.T) {
	for name, r := range map[string]*Request{
		"no method":        {Path: "/"},
		"method":           {Method: "GET /x HTTP/1.1\r\n", Path: "/"},
		"no path":          {Method: "GET"},
		"whole URL":        {Method: "GET", Path: "http://evil/"},
		"blank in path":    {Method: "GET", Path: "/a HTTP/1.1"},
		"CRLF in path":     {Method: "GET", Path: "/a\r\nX: y"},
		"letter in path":   {Method: "GET", Path: "/ä"},
		"CR in value":      {Method: "GET", Path: "/", Header: http.Header{"X": {"a\rb"}}},
		"LF in value":      {Method: "GET", Path: "/", Header: http.Header{"X": {"a\nb"}}},
		"NUL in value":     {Method: "GET", Path: "/", Header: http.Header{"X": {"a\x00b"}}},
		"CRLF in name":     {Method: "GET", Path: "/", Header: http.Header{"X: a\r\nY": {"b"}}},
		"blank after name": {Method: "GET", Path: "/", Header: http.Header{"Content-Length ": {"7"}}},
		"no name":          {Method: "GET", Path: "/", Header: http.Header{"": {"b"}}},
		"letter in a name": {Method: "GET", Path: "/", Header: http.Header{"X-ſ": {"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) {
				t.Error("connected")
				return nil, context.Canceled
			}})
			_, err := s.Send(t.Context(), r)
			wantPhase(t, err, PhasePrepare)
			if strings.Contains(err.Error(), "evil") {
				t.Errorf("the error shows the path: %v", err)
			}
		})
	}
	if _, err := New(Config{Host: "a\r\nb"}).Send(t.Context(), post("")); err == nil {
		t.Error("a Host of two lines was accepted")
	}
}

// FuzzRequest verifies that net/http reads every accepted request as exactly one request with the same
// values.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/v1/chat/completions", "Authorization", "Bearer x", []byte("{}"))
	f.Add("GET", "/a?b=c", "content-length", "5", []byte{})
	f.Add("DELETE", "/", "Transfer-Encoding ", "chunked", []byte("x"))
	f.Fuzz(func(t *testing.T, method, path, key, value string, body []byte) {
		r := &Request{Method: method, Path: path, Header: http.Header{key: {value}}, Body: [][]byte{body}}
		wire, err := appendHead(nil, "engine", r)
		if err != nil {
			return
		}
		in := bufio.NewReader(bytes.NewReader(append(wire, body...)))
		req, err := http.ReadRequest(in)
		if err != nil {
			if strings.Contains(err.Error(), "invalid URL escape") || strings.Contains(err.Error(), "parse ") ||
				method == "PRI" {
				return // net/http also rejects some paths by their meaning
			}
			t.Fatalf("%v: %q", err, wire)
		}
		got := new(bytes.Buffer)
		if _, err := got.ReadFrom(req.Body); err != nil || !bytes.Equal(got.Bytes(), body) {
			t.Fatalf("body %q, %v", got, err)
		}
		if in.Buffered() > 0 || req.Method != method || req.RequestURI != path || req.Host != "engine" ||
			len(req.TransferEncoding) > 0 {
			t.Fatalf("read as %s %s of %s, with %d bytes after it", req.Method, req.RequestURI, req.Host, in.Buffered())
		}
		if want := strings.Trim(value, " \t"); !IsConnectionField(key) && !slices.Contains(req.Header.Values(key), want) {
			t.Fatalf("%q is missing: %v", key, req.Header)
		}
	})
}
