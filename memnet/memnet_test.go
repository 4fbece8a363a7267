package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (client, server *Conn) {
	t.Helper()
	n := New()
	l := listenOn(t, n, "127.0.0.1:0")
	a, err := n.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a.(*Conn), b.(*Conn)
}

func listenOn(t *testing.T, n *Network, address string) net.Listener {
	t.Helper()
	l, err := n.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // the test may have closed it
	return l
}

func TestBytesArriveInOrderInBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		sent := bytes.Repeat([]byte("0123456789abcdef"), 3*windowBytes/16)
		for _, d := range []struct{ from, to *Conn }{{client, server}, {server, client}} {
			go func() {
				if n, err := d.from.Write(sent); n != len(sent) || err != nil {
					t.Errorf("Write = %d, %v", n, err)
				}
				d.from.CloseWrite() // if this fails, the read below fails
			}()
			got, err := io.ReadAll(d.to)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d of %d bytes arrived, with the error %v", len(got), len(sent), err)
			}
		}
	})
}

func TestTimePassesWhileAReaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		began := time.Now()
		time.AfterFunc(time.Hour, func() { io.WriteString(server, "late") }) // if this fails, the read below fails
		b := make([]byte, 8)
		n, err := client.Read(b)
		if string(b[:n]) != "late" || err != nil || time.Since(began) != time.Hour {
			t.Errorf("Read = %q, %v after %s", b[:n], err, time.Since(began))
		}
	})
}

func TestAWriterWaitsForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		written := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, windowBytes+1))
			written <- err
		}()
		synctest.Wait()
		select {
		case err := <-written:
			t.Fatalf("the write of more than the window returned %v before a read", err)
		default:
		}
		if n, err := io.CopyN(io.Discard, server, windowBytes+1); err != nil {
			t.Errorf("%d bytes were read: %v", n, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

func TestDeadlinesEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := pair(t)
		waits := map[string]func() error{
			"Read":  func() error { _, err := client.Read(make([]byte, 1)); return err },
			"Write": func() error { _, err := client.Write(make([]byte, 2*windowBytes)); return err },
		}
		for name, wait := range waits {
			began := time.Now()
			// SetDeadline cannot fail: the connection is open.
			client.SetDeadline(began.Add(time.Hour))
			time.AfterFunc(time.Second, func() { client.SetDeadline(began.Add(3 * time.Second)) })
			if err := wait(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 3*time.Second {
				t.Errorf("%s = %v after %s, not a timeout after 3 s", name, err, time.Since(began))
			}
			if timeout, ok := errors.AsType[net.Error](wait()); !ok || !timeout.Timeout() {
				t.Errorf("%s after the deadline is no timeout", name)
			}
			client.SetDeadline(time.Time{}) // cannot fail: the connection is open
		}
	})
}

func TestARemovedDeadlineDoesNotPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		client.SetReadDeadline(time.Now().Add(time.Second)) // cannot fail: the connection is open
		client.SetReadDeadline(time.Time{})                 // cannot fail: the connection is open
		time.AfterFunc(time.Minute, func() { server.Close() })
		if _, err := client.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as a reader of a net.Conn sees it
			t.Errorf("Read = %v, not the end after a minute", err)
		}
	})
}

func TestAClosedEndIsSeenByBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		io.WriteString(client, "last") // if this fails, the read below fails
		reading := make(chan error, 1)
		go func() { _, err := client.Read(make([]byte, 1)); reading <- err }()
		synctest.Wait()
		client.Close()
		if err := <-reading; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the own Read = %v", err)
		}
		if got, err := io.ReadAll(server); string(got) != "last" || err != nil {
			t.Errorf("the peer reads %q, %v", got, err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the peer's Write = %v", err)
		}
		for name, err := range map[string]error{"Close": client.Close(), "CloseWrite": client.CloseWrite(),
			"SetDeadline": client.SetDeadline(time.Now())} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s of a closed connection = %v", name, err)
			}
		}
	})
}

func TestReadableConnectionsHaveDataOrAnEnd(t *testing.T) {
	for name, change := range map[string]func(client, server *Conn){
		"data":  func(_, server *Conn) { _, _ = server.Write([]byte("x")) },
		"end":   func(_, server *Conn) { _ = server.Close() },
		"reset": func(_, server *Conn) { _, _ = server.SetLinger(0), server.Close() },
	} {
		client, server := pair(t)
		if client.Readable() {
			t.Errorf("%s: a new connection is readable", name)
		}
		if change(client, server); !client.Readable() {
			t.Errorf("%s: not readable", name)
		}
	}
}

func TestAResetLosesUnreadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		io.WriteString(client, "lost") // cannot fail: the connection is open
		client.SetLinger(0)            // cannot fail: the connection is open
		client.Close()
		if n, err := server.Read(make([]byte, 8)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer's Read = %d, %v", n, err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the peer's Write = %v", err)
		}
		if err := client.SetLinger(0); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetLinger of a closed connection = %v", err)
		}
	})
}

func TestAHalfClosedConnectionStillReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		client.CloseWrite() // cannot fail: the connection is open
		if _, err := client.Write([]byte("x")); err == nil {
			t.Error("a write after CloseWrite succeeded")
		}
		io.WriteString(server, "answer") // if this fails, the read below fails
		server.Close()
		if got, err := io.ReadAll(client); string(got) != "answer" || err != nil {
			t.Errorf("the rest is %q, %v", got, err)
		}
	})
}

func TestConnectionsWaitInTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l := listenOn(t, n, "127.0.0.1:80")
		var last net.Conn
		for range backlog {
			c, err := n.Dial(t.Context(), "tcp", "localhost:80")
			if err != nil {
				t.Fatal(err)
			}
			last = c
		}
		if _, err := io.WriteString(last, "hello"); err != nil {
			t.Errorf("writing before the connection is accepted: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "tcp", "localhost:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialing with a full backlog: %v", err)
		}
		time.AfterFunc(time.Minute, func() { l.Accept() }) // if this fails, the Dial below fails
		if _, err := n.Dial(t.Context(), "tcp", "localhost:80"); err != nil {
			t.Errorf("dialing until there is a place: %v", err)
		}
		l.Close() // cannot fail: the listener is open
		if _, err := io.ReadAll(last); err != nil {
			t.Errorf("a connection that is not accepted when the listener closes: %v", err)
		}
	})
}

func TestAnAddressIsRefusedUntilItListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		dial := func() error { _, err := n.Dial(t.Context(), "tcp", "127.0.0.1:80"); return err }
		if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialing an address that nothing listens on: %v", err)
		}
		for range 2 { // an address can be used again
			l := listenOn(t, n, ":80")
			if err := dial(); err != nil {
				t.Error(err)
			}
			if _, err := n.Listen("tcp", "127.0.0.1:80"); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("listening twice: %v", err)
			}
			l.Close() // cannot fail: the listener is open
			if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dialing a closed address: %v", err)
			}
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("accepting from a closed listener: %v", err)
			}
		}
		for _, address := range []string{"example.com:80", "127.0.0.1", "127.0.0.1:http"} {
			if _, err := n.Dial(t.Context(), "tcp", address); err == nil {
				t.Errorf("dialing %q succeeded", address)
			}
			if _, err := n.Listen("tcp", address); err == nil {
				t.Errorf("listening on %q succeeded", address)
			}
		}
	})
}

func TestHTTPRunsOverTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l := listenOn(t, n, "127.0.0.1:0")
		left := make(chan struct{})
		server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hang" {
					<-r.Context().Done()
					close(left)
				}
				io.Copy(w, r.Body) // the client checks the answer
			})}
		var served sync.WaitGroup
		served.Go(func() { server.Serve(l) }) // it ends with http.ErrServerClosed
		transport := &http.Transport{DialContext: n.Dial}
		client := &http.Client{Transport: transport}

		for range 2 {
			resp, err := client.Post("http://"+l.Addr().String(), "text/plain", bytes.NewBufferString("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); string(got) != "hello" || err != nil {
				t.Errorf("the answer is %q, %v", got, err)
			}
			resp.Body.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/hang", nil)
		if _, err := client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the request that hangs ended with %v", err)
		}
		<-left // the server sees that its client has left
		transport.CloseIdleConnections()
		server.Close() // cannot fail: the listener is open
		served.Wait()
	})
}

func TestConcurrentUseIsSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l := listenOn(t, n, "127.0.0.1:0")
		var all sync.WaitGroup
		const conns = 32
		for range conns {
			all.Go(func() {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				io.Copy(c, c) // the client checks the echo
			})
			all.Go(func() {
				c, err := n.Dial(t.Context(), "tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				all.Go(func() { c.SetDeadline(time.Now().Add(time.Minute)) }) // fails if the connection is closed already
				for i := range 100 {
					b := []byte{byte(i)}
					if _, err := c.Write(b); err != nil {
						t.Error(err)
					}
					if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(i) {
						t.Errorf("the echo of %d is %d, %v", i, b[0], err)
					}
				}
			})
		}
		all.Wait()
	})
}
