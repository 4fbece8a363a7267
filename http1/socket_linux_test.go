//go:build !race

package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTransmitWritesAllPieces also if there are more than one system call takes, and if the reader is slower.
func TestTransmitWritesAllPieces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		client, server := socketPair(t)
		defer client.Close()
		if err := server.(*net.UnixConn).SetWriteBuffer(1); err != nil { // as small as the kernel allows
			rt.Fatal(err)
		}
		longest := rapid.SampledFrom([]int{3, 300, 20_000, 100_000}).Draw(rt, "longest")
		most := rapid.SampledFrom([]int{3, maxVec, 3 * maxVec}).Draw(rt, "most")
		sizes := rapid.SliceOfN(rapid.IntRange(0, longest), 0, min(most, 3_000_000/longest)).Draw(rt, "sizes")
		var pieces net.Buffers
		var want []byte
		for i, n := range sizes {
			p := bytes.Repeat([]byte{byte(i)}, n)
			pieces, want = append(pieces, p), append(want, p...)
		}
		last := bytes.Repeat([]byte("last"), rapid.IntRange(0, 25_000).Draw(rt, "last"))
		got := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(client) // an error shows as missing bytes
			got <- all
		}()
		c := newConn(server, newPages())
		n, err := c.transmitAll(slices.Clone(pieces))
		if err != nil || n != int64(len(want)) {
			rt.Fatalf("transmitAll returned %d, %v; want %d", n, err, len(want))
		}
		m, err := c.transmit(last)
		if err != nil || m != len(last) {
			rt.Fatalf("transmit returned %d, %v; want %d", m, err, len(last))
		}
		if err := server.Close(); err != nil {
			rt.Fatal(err)
		}
		if all := <-got; !bytes.Equal(all, append(want, last...)) {
			rt.Fatalf("%d bytes arrived, or others than the %d that were sent", len(all), len(want)+len(last))
		}
	})
}

// TestTransmitKeepsNoPiece: an idle connection must not hold the memory of a request.
func TestTransmitKeepsNoPiece(t *testing.T) {
	client, server := socketPair(t)
	defer client.Close()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	c := newConn(server, newPages())
	defer server.Close()
	for _, n := range []int{1, 3, maxVec, 2*maxVec + 1} {
		var pieces net.Buffers
		for range n {
			pieces = append(pieces, make([]byte, 300))
		}
		if _, err := c.transmitAll(pieces); err != nil {
			t.Fatal(err)
		}
		for i, v := range c.out.vec[:cap(c.out.vec)] {
			if v.Base != nil {
				t.Fatalf("after %d pieces, entry %d refers to one", n, i)
			}
		}
		if c.out.bytes != nil || slices.ContainsFunc(pieces, func(p []byte) bool { return p != nil }) {
			t.Fatalf("after %d pieces, one is kept", n)
		}
	}
}

// TestOnlyPlainSocketsAreUsedDirectly: another type may change what it reads or writes.
func TestOnlyPlainSocketsAreUsedDirectly(t *testing.T) {
	client, server := socketPair(t)
	defer client.Close()
	defer server.Close()
	if newConn(server, newPages()).direct == nil {
		t.Error("a socket is not used directly")
	}
	if newConn(struct{ *net.UnixConn }{server.(*net.UnixConn)}, newPages()).direct != nil {
		t.Error("a type that embeds a socket is used directly")
	}
}

// TestErrorsOfASocketAreThoseOfNet: the callers compare them.
func TestErrorsOfASocketAreThoseOfNet(t *testing.T) {
	errorsOf := func(t *testing.T, prepare func(client, server net.Conn) error, use func(c *conn) error) [2]error {
		var got [2]error
		for i := range got {
			client, server := socketPair(t)
			defer client.Close()
			defer server.Close()
			if err := prepare(client, server); err != nil {
				t.Fatal(err)
			}
			c := newConn(server, newPages())
			if i == 1 {
				c.direct = nil // net's own calls
			}
			got[i] = use(c)
		}
		return got
	}
	read := func(c *conn) error { _, err := c.receive(make([]byte, 8)); return err }
	write := func(c *conn) error { _, err := c.transmit([]byte("text")); return err }
	writeAll := func(c *conn) error { _, err := c.transmitAll(net.Buffers{[]byte("a"), []byte("b")}); return err }
	leave := func(client, _ net.Conn) error { return client.Close() }
	closeOwn := func(_, server net.Conn) error { return server.Close() }
	past := func(_, server net.Conn) error { return server.SetDeadline(time.Unix(1, 0)) }
	for name, c := range map[string]struct {
		prepare func(client, server net.Conn) error
		use     func(c *conn) error
		want    error
	}{
		"read at the end":           {leave, read, io.EOF},
		"read of a closed one":      {closeOwn, read, net.ErrClosed},
		"read after its deadline":   {past, read, os.ErrDeadlineExceeded},
		"write without a reader":    {leave, write, syscall.EPIPE},
		"write to a closed one":     {closeOwn, write, net.ErrClosed},
		"write after its deadline":  {past, write, os.ErrDeadlineExceeded},
		"pieces without a reader":   {leave, writeAll, syscall.EPIPE},
		"pieces to a closed one":    {closeOwn, writeAll, net.ErrClosed},
		"pieces after the deadline": {past, writeAll, os.ErrDeadlineExceeded},
	} {
		got := errorsOf(t, c.prepare, c.use)
		for i, from := range []string{"http1", "net"} {
			if !errors.Is(got[i], c.want) {
				t.Errorf("%s: %s returns %v, want %v", name, from, got[i], c.want)
			}
		}
	}
}

// serveOnce writes text to a connection, closes the client's side and then serves the connection. With late, the
// connection has waited too long before. It returns what the client reads.
func serveOnce(t *testing.T, text string, late bool) string {
	t.Helper()
	client, served := socketPair(t)
	defer client.Close()
	s := &Server{Base: t.Context(), HeadTimeout: time.Hour, IdleTimeout: time.Hour, conns: map[*servedConn]struct{}{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })}
	c := newServedConn(s, served, newPages())
	s.add(c)
	write(t, client, text)
	if err := client.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if late {
		s.closeWaiting(math.MaxInt64)
	}
	c.serve()
	s.watcher.close()
	all, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// TestUnreadRequestsAreServed although their connection has waited too long, and although the client has closed its
// side after them.
func TestUnreadRequestsAreServed(t *testing.T) {
	for text, want := range map[string]int{"": 0, simpleGet: 1, simpleGet + simpleGet: 2} {
		for _, late := range []bool{false, true} {
			if got := serveOnce(t, text, late); strings.Count(got, "served") != want || want == 0 && got != "" {
				t.Errorf("%d requests, late %t: the client reads %q", want, late, got)
			}
		}
	}
}

// TestAWaitingConnectionHasNoPage, so that idle streams and idle connections take no buffer.
func TestAWaitingConnectionHasNoPage(t *testing.T) {
	client, server := socketPair(t)
	defer client.Close()
	defer server.Close()
	c := newConn(server, newPages())
	for _, text := range []string{"", "text", ""} {
		write(t, client, text)
		arrived := false
		if err := c.direct.Control(func(fd uintptr) { arrived = c.fillEmpty(fd) }); err != nil {
			t.Fatal(err)
		}
		if got := string(c.buf[:max(0, c.in.n)]); arrived != (text != "") || got != text || (c.page != nil) != arrived {
			t.Fatalf("after %q, %q was read; arrived: %t, page: %t", text, got, arrived, c.page != nil)
		}
		c.dropBuffer()
	}
}

// TestConnectionsThatSharePagesKeepTheirBytes: no request or answer has bytes of another connection.
func TestConnectionsThatSharePagesKeepTheirBytes(t *testing.T) {
	const conns, requests = 8, 200
	s := &Server{Base: t.Context(), HeadTimeout: time.Hour, IdleTimeout: time.Hour, conns: map[*servedConn]struct{}{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // an error shows as missing bytes
			w.Header().Set("X-Name", r.Header.Get("X-Name"))
			for piece := range slices.Chunk(body, 700) {
				_, _ = w.Write(piece)
				w.(http.Flusher).Flush()
			}
		})}
	pages, sockets := newPages(), make(chan net.Conn, conns)
	for range conns {
		client, served := socketPair(t)
		c := newServedConn(s, served, pages)
		s.add(c)
		go c.serve()
		sockets <- client
	}
	dial := func(context.Context, string, string) (net.Conn, error) { return <-sockets, nil }
	p := New(Config{Host: "engine", Dial: dial})
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() {
			for k := range requests {
				name := strings.Repeat(string(rune('a'+i)), 1+k*37%9000)
				res, err := p.Send(t.Context(), &Request{Method: "POST", Path: "/", Header: http.Header{"X-Name": {name}},
					Body: [][]byte{[]byte(name), []byte("end")}})
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				if err != nil || string(body) != name+"end" || res.Header.Get("X-Name") != name {
					t.Errorf("request %d of %c: %d bytes, %v", k, 'a'+i, len(body), err)
					return
				}
			}
		})
	}
	all.Wait()
	p.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.watcher.close()
}
