package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tierway/server/proxy"
	"tierway/telemetry"
)

// TestNoQueryOrPathOfAClientHurtsAWorker sends what HTTP/2 carries and a request
// line does not: all requests reach both workers, and no breaker has counted any.
func TestNoQueryOrPathOfAClientHurtsAWorker(t *testing.T) {
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
		"%q } ] } ]\n", served(t, worker), served(t, worker))
	r := newRig(t, pool+plain, worker, worker)
	var to *url.URL // what net/http has made of a request's first lines
	data := r.planes.dataHandler()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
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
				t.Errorf("%s is left alone: %+v", v.ID, v)
			}
		}
	}
}

// refusing is a listener whose system has no descriptors.
type refusing struct {
	net.Listener
	err error
}

func (l refusing) Accept() (net.Conn, error) { return nil, l.err }

// TestAFailingAcceptIsCountedAndLoggedOnceAMinute: net/http itself tries again
// every second.
func TestAFailingAcceptIsCountedAndLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		logger, metrics := slog.New(slog.NewJSONHandler(log, nil)), telemetry.New("test")
		s := proxy.New(proxy.Options{Log: logger, Metrics: metrics})
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		l := acceptor{refusing{err: full}, "data", logger, s.Exhausted}
		for range 90 {
			if _, err := l.Accept(); !errors.Is(err, full) {
				t.Fatalf("net/http is given %v", err)
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
			t.Errorf("%d are counted", n)
		}
		before := log.String()
		closed := acceptor{refusing{err: net.ErrClosed}, "data", logger, s.Exhausted}
		if _, err := closed.Accept(); !errors.Is(err, net.ErrClosed) || log.String() != before {
			t.Errorf("a closed listener gives %v and logs %s", err, log.String())
		}
		odd := acceptor{refusing{err: &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EPERM)}}, "data",
			logger, s.Exhausted}
		if odd.Accept(); !strings.Contains(log.String(), `"msg":"accepting a connection failed","plane":"data"`) {
			t.Errorf("another failure logs %s", log.String())
		}
	})
}
