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

	"pgregory.net/rapid"

	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/telemetry"
)

func TestAQueryIsEscapedForTheRequestLineAndMeansTheSame(t *testing.T) {
	for raw, want := range map[string]string{
		"":                      "",
		"api-version=1&x=a%20b": "api-version=1&x=a%20b",
		"q=é":                   "q=%C3%A9",
		"q=\xff":                "q=%FF",
		"a b":                   "a%20b",
		"a\tb\r\nX: y\x00\x7f":  "a%09b%0D%0AX:%20y%00%7F",
		"a=1#b":                 "a=1%23b",
		"q=100%&z=%zz":          "q=100%&z=%zz", // no escapes: as the client wrote them
		`{"a":["b"]}|^~` + "`":  `{"a":["b"]}|^~` + "`",
	} {
		if got := escapedQuery(raw); got != want {
			t.Errorf("%q is sent as %q, want %q", raw, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "query"))
		sent := escapedQuery(raw)
		for i := range len(sent) {
			if sent[i] <= ' ' || sent[i] >= 0x7f || sent[i] == '#' {
				t.Fatalf("%q is sent as %q", raw, sent)
			}
		}
		before, errBefore := url.QueryUnescape(raw)
		after, errAfter := url.QueryUnescape(sent)
		if before != after || (errBefore == nil) != (errAfter == nil) {
			t.Fatalf("%q means %q (%v), and %q means %q (%v)", raw, before, errBefore, sent, after, errAfter)
		}
	})
}

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
	pool := fmt.Sprintf("pools: [ { name: other, paths: [\"/v9/*\"], workers: [ { name: p0, url: %q }, { name: p1, url: %q } ] } ]\n", served(t, worker), served(t, worker))
	r := newRig(t, pool+plain, worker, worker)
	var to *url.URL // what net/http has made of a request's first lines
	data := r.dataHandler()
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
		for _, v := range r.snapshot.Load().byName[name].routing.Snapshot(time.Now()) {
			if v.Open != 0 || v.Cooling != 0 {
				t.Errorf("%s is left alone: %+v", v.ID, v)
			}
		}
	}
}

// TestWhatNeverLeftBlamesNoWorker: a request that cannot be written is the client's,
// and a lack of descriptors the gateway's.
func TestWhatNeverLeftBlamesNoWorker(t *testing.T) {
	full := &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	type want struct {
		excluded, retry, left, gone, suspect bool
		status                               int
		code                                 openai.Code
		wait, counted                        bool
	}
	for name, c := range map[string]struct {
		err  error
		want want
	}{
		"cannot be written":                  {&http1.SendError{Phase: http1.PhasePrepare, Err: errors.New("x")}, want{excluded: true, status: 400, code: openai.CodeInvalidValue}},
		"no descriptor":                      {&http1.SendError{Phase: http1.PhaseConnect, Err: full}, want{excluded: true, status: 503, code: openai.CodeOverloaded, wait: true, counted: true}},
		"none after a kept connection broke": {&http1.SendError{Phase: http1.PhaseAwait, Err: full}, want{excluded: true, left: true, status: 503, code: openai.CodeOverloaded, wait: true, counted: true}},
		"refused":                            {&http1.SendError{Phase: http1.PhaseConnect, Err: syscall.ECONNREFUSED}, want{retry: true, gone: true, suspect: true, status: 502, code: openai.CodeWorkerError}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, plain, fakeEngine())
			a := &attempt{cause: func() error { return nil }, x: &exchange{s: r.Server}, m: &member{name: "w0"}}
			f := a.sendFailure(c.err)
			counted := r.counter(`tierway_fd_exhausted_total{operation="connect"}`) > 0
			got := want{errors.Is(f.blame, routing.ErrExcluded), f.retry, f.left, f.gone, f.suspect, f.err.HTTPStatus(), f.err.Code, f.err.RetryAfter > 0, counted}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
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
		s := &Server{log: slog.New(slog.NewJSONHandler(log, nil)), metrics: telemetry.New("test")}
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		l := acceptor{refusing{err: full}, "data", s}
		for range 90 {
			if _, err := l.Accept(); err != full {
				t.Fatalf("net/http is given %v", err)
			}
			time.Sleep(time.Second)
		}
		text := log.String()
		if strings.Count(text, "\n") != 2 || strings.Count(text, `"level":"WARN","msg":"a connection was not made: no file descriptor is free"`) != 2 ||
			!strings.Contains(text, `"operation":"accept"`) || !strings.Contains(text, `"more":59`) {
			t.Errorf("the log is %s", text)
		}
		if n := (&rig{Server: s, t: t}).counter(`tierway_fd_exhausted_total{operation="accept"}`); n != 90 {
			t.Errorf("%d are counted", n)
		}
		before := log.String()
		closed := acceptor{refusing{err: net.ErrClosed}, "data", s}
		if _, err := closed.Accept(); err != net.ErrClosed || log.String() != before {
			t.Errorf("a closed listener gives %v and logs %s", err, log.String())
		}
		odd := acceptor{refusing{err: &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EPERM)}}, "data", s}
		if odd.Accept(); !strings.Contains(log.String(), `"msg":"a connection was not accepted","plane":"data"`) {
			t.Errorf("another failure logs %s", log.String())
		}
	})
}
