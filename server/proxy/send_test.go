package proxy

import (
	"errors"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
)

func TestEscapedQueryIsValidAndKeepsItsMeaning(t *testing.T) {
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

// TestOnlyARefusedConnectionIsTheWorkersFault: the client causes a request that cannot be written, and
// the gateway causes a lack of descriptors. A refused connection is the worker's fault.
func TestOnlyARefusedConnectionIsTheWorkersFault(t *testing.T) {
	full := &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	type want struct {
		excluded, retry, sent, unreachable, recheck bool
		status                                      int
		code                                        openai.Code
		retryAfter, counted                         bool
	}
	for name, c := range map[string]struct {
		err  error
		want want
	}{
		"the request cannot be written": {&http1.SendError{Phase: http1.PhasePrepare, Err: errors.New("x")},
			want{excluded: true, status: 400, code: openai.CodeInvalidValue}},
		"no free descriptor": {&http1.SendError{Phase: http1.PhaseConnect, Err: full},
			want{excluded: true, status: 503, code: openai.CodeOverloaded, retryAfter: true, counted: true}},
		"no free descriptor after a kept connection broke": {&http1.SendError{Phase: http1.PhaseAwait, Err: full},
			want{excluded: true, sent: true, status: 503, code: openai.CodeOverloaded, retryAfter: true, counted: true}},
		"the worker refuses the connection": {&http1.SendError{Phase: http1.PhaseConnect, Err: syscall.ECONNREFUSED},
			want{retry: true, unreachable: true, recheck: true, status: 502, code: openai.CodeWorkerError}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newProxyRig(t, openTier, fakeAnswers())
			a := &attempt{cause: func() error { return nil }, x: &exchange{s: r.Proxy}, m: &control.Member{Name: "w0"}}
			f := a.sendFailure(c.err)
			counted := r.counter(`tierway_fd_exhausted_total{operation="connect"}`) > "0"
			got := want{errors.Is(f.fault, routing.ErrExcluded), f.retry, f.sent, f.unreachable, f.recheck, f.err.HTTPStatus(),
				f.err.Code, f.err.RetryAfter > 0, counted}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
