package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tierway/server/control"
	"tierway/server/proxy"
	"tierway/telemetry"
)

// TestInvalidURLBytesBlameNoWorker sends bytes that HTTP/2 allows in a URL and a request line does not.
// All requests reach both workers, and no breaker counts a failure.
func TestInvalidURLBytesBlameNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		engine := fakeEngine()
		worker := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			mu.Lock()
			seen = append(seen, q.RequestURI)
			mu.Unlock()
			if q.Method == http.MethodPost {
				engine.ServeHTTP(w, q)
			}
		})
		pool := fmt.Sprintf("pools: [ { name: other, paths: [\"/v9/*\"], workers: [ { name: p0, url: %q }, { name: p1, url: "+
			"%q } ] } ]\n", startServer(t, worker), startServer(t, worker))
		r := newRig(t, pool+plain, worker, worker)
		var to *url.URL // the URL that the gateway sees
		data := r.planes.dataHandler()
		front := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			q.URL = to
			data.ServeHTTP(w, q)
		}))
		defer front.Close()
		r.url = front.URL
		send := func(method string, u *url.URL, body string) {
			t.Helper()
			to = u
			if a := r.do(method, "/", body); a.status != 200 {
				t.Errorf("%s %q: %d %s", method, u.RequestURI(), a.status, a.body)
			}
		}
		for range 10 {
			send("POST", &url.URL{Path: "/v1/chat/completions", RawQuery: "q=é x"}, hello)
			send("GET", &url.URL{Path: "/v9/a b/é", RawPath: "/v9/a b/é", RawQuery: "q=\x80"}, "")
		}
		for _, uri := range seen {
			if uri != "/v1/chat/completions?q=%C3%A9%20x" && uri != "/v9/a%20b/%C3%A9?q=%80" {
				t.Errorf("a worker got %q", uri)
			}
		}
		for _, name := range []string{"small", "other"} {
			for _, v := range r.control.Snapshot().ByName[name].Routing.Snapshot(time.Now()) {
				if v.Open != 0 || v.Backoff != 0 {
					t.Errorf("%s is out of rotation: %+v", v.ID, v)
				}
			}
		}
	})
}

// failingListener is a listener that fails to accept, with err.
type failingListener struct {
	net.Listener
	err error
}

func (l failingListener) Accept() (net.Conn, error) { return nil, l.err }

// TestAFailingAcceptIsCountedAndLoggedOnceAMinute: net/http itself retries every second.
func TestAFailingAcceptIsCountedAndLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		logger, metrics := slog.New(slog.NewJSONHandler(log, nil)), telemetry.New("test")
		s := proxy.New(proxy.Options{Control: &control.Control{Stores: new(control.Stores)}, Log: logger, Metrics: metrics})
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		l := acceptor{failingListener{err: full}, "data", logger, s.Exhausted}
		for range 90 {
			if _, err := l.Accept(); !errors.Is(err, full) {
				t.Fatalf("Accept returns %v", err)
			}
			time.Sleep(time.Second)
		}
		text := log.String()
		if strings.Count(text, "\n") != 2 ||
			strings.Count(text, `"level":"WARN","msg":"a connection failed: no file descriptor is free"`) != 2 ||
			!strings.Contains(text, `"operation":"accept"`) || !strings.Contains(text, `"more":59`) {
			t.Errorf("the log is %s", text)
		}
		if n := (&rig{Server: &Server{metrics: metrics}, t: t}).counter(
			`tierway_fd_exhausted_total{operation="accept"}`); n != 90 {
			t.Errorf("%d failures are counted", n)
		}
		before := log.String()
		closed := acceptor{failingListener{err: net.ErrClosed}, "data", logger, s.Exhausted}
		if _, err := closed.Accept(); !errors.Is(err, net.ErrClosed) || log.String() != before {
			t.Errorf("a closed listener returns %v and logs %s", err, log.String())
		}
		other := acceptor{failingListener{err: &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EPERM)}},
			"data",
			logger, s.Exhausted}
		if other.Accept(); !strings.Contains(log.String(), `"msg":"accepting a connection failed","plane":"data"`) {
			t.Errorf("another failure logs %s", log.String())
		}
	})
}
