package chaos

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tierway/engines"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a chaotic engine on a real socket.
type rig struct {
	e *engines.Engine
	c *Handler
	s *engines.Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	e := engines.New(engines.Config{Model: "m", Script: func(string, []byte) engines.Script {
		return engines.Script{Text: "aaaabbbbccccddddeeeeffff"}
	}})
	c := New(e)
	s, err := engines.Start(c, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if st := e.Stats(); st.Open != 0 || st.Running != 0 || c.Stats().Open != 0 {
			t.Errorf("left behind: %+v, %+v", st, c.Stats())
		}
	})
	return &rig{e, c, s}
}

func (r *rig) set(t *testing.T, faults ...Fault) {
	t.Helper()
	if err := r.c.Set(faults...); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// Nothing here waits on purpose: the deadline only turns a hang into a failure.
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn net.Conn, header, body string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\n%sContent-Length: %d\r\n\r\n%s", header,
		len(body), body)
	if err != nil {
		t.Fatal(err)
	}
}

const (
	hello      = `"messages":[{"role":"user","content":"Tell me a story."}]`
	streamBody = `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + hello + `}`
	wholeBody  = `{"model":"m",` + hello + `}`
)

// reply is all that one request's connection gave: bytes and how it ended.
type reply struct {
	raw string
	err error // of reading the socket; nil is FIN

	status  int
	header  http.Header
	body    string
	bodyErr error // of reading the body as HTTP
}

func (r *rig) ask(t *testing.T, body string) reply {
	t.Helper()
	conn := r.dial(t)
	send(t, conn, "Connection: close\r\n", body)
	var got bytes.Buffer
	_, err := got.ReadFrom(conn)
	out := reply{raw: got.String(), err: err}
	if resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(out.raw)), &http.Request{Method: "POST"}); err ==
		nil {
		out.status, out.header = resp.StatusCode, resp.Header
		b, err := io.ReadAll(resp.Body)
		out.body, out.bodyErr = string(b), err
	}
	return out
}

// contentEvents counts the events that carry text.
func contentEvents(body string) int { return strings.Count(body, `"delta":{"content":`) }

func TestFaultsDoWhatTheySay(t *testing.T) {
	table := []struct {
		name   string
		faults []Fault
		body   string
		ok     func(r reply) bool
	}{
		{"none, stream", nil, streamBody, func(r reply) bool {
			return r.status == 200 && r.bodyErr == nil && contentEvents(r.body) == 6 && strings.HasSuffix(r.body, "[DONE]\n\n")
		}},
		{"reset before header", []Fault{{Kind: Reset}}, streamBody, func(r reply) bool {
			return r.raw == "" && errors.Is(r.err, syscall.ECONNRESET)
		}},
		{"reset after 3 events", []Fault{{Kind: Reset, After: 3}}, streamBody, func(r reply) bool {
			return r.status == 200 && contentEvents(r.body) == 2 && errors.Is(r.err, syscall.ECONNRESET)
		}},
		{"reset in a whole answer", []Fault{{Kind: Reset, After: 1}}, wholeBody, func(r reply) bool {
			return r.status == 200 && r.body != "" && errors.Is(r.bodyErr, io.ErrUnexpectedEOF) &&
				errors.Is(r.err, syscall.ECONNRESET)
		}},
		{"close before header", []Fault{{Kind: Close}}, streamBody, func(r reply) bool {
			return r.raw == "" && r.err == nil
		}},
		{"close after 3 events", []Fault{{Kind: Close, After: 3}}, streamBody, func(r reply) bool {
			return contentEvents(r.body) == 2 && errors.Is(r.bodyErr, io.ErrUnexpectedEOF) && r.err == nil
		}},
		{"garbage", []Fault{{Kind: Garbage}}, wholeBody, func(r reply) bool {
			return r.status == 0 && r.raw != "" && !strings.HasPrefix(r.raw, "HTTP")
		}},
		{"truncated after 3", []Fault{{Kind: Truncate, After: 3}}, streamBody, func(r reply) bool {
			return contentEvents(r.body) == 2 && r.bodyErr == nil && !strings.Contains(r.body, "DONE") &&
				!strings.Contains(r.body, `"stop"`)
		}},
		{"truncated before the first event", []Fault{{Kind: Truncate}}, streamBody,
			func(r reply) bool { return r.status == 200 && r.body == "" && r.bodyErr == nil }},
		{"truncated whole answer", []Fault{{Kind: Truncate, After: 1}}, wholeBody, func(r reply) bool {
			return strings.HasPrefix(r.body, "{") && !strings.HasSuffix(r.body, "}") && r.bodyErr == nil
		}},
		{"no DONE", []Fault{{Kind: NoDone}}, streamBody, func(r reply) bool {
			return strings.Contains(r.body, `"finish_reason":"stop"`) && !strings.Contains(r.body, "DONE") && r.bodyErr == nil
		}},
		{"vLLM's error first", []Fault{{Kind: ErrorFirst}}, streamBody, func(r reply) bool {
			return r.status == 200 && strings.HasPrefix(r.body, `data: {"error":{"code":400`) &&
				strings.HasSuffix(r.body, "[DONE]\n\n")
		}},
		{"SGLang's error first", []Fault{{Kind: ErrorFirst, Form: FormSGLang}}, streamBody, func(r reply) bool {
			return r.status == 200 && strings.HasPrefix(r.body, `data: {"error":{"object":"error"`)
		}},
		{"llama.cpp's error first", []Fault{{Kind: ErrorFirst, Form: FormLlamaCpp}}, streamBody, func(r reply) bool {
			return r.status == 200 && strings.HasPrefix(r.body, `error: {"code":500`)
		}},
		{"Anthropic's error after 2", []Fault{{Kind: ErrorEvent, After: 2, Form: FormMessages}}, streamBody,
			func(r reply) bool {
				return contentEvents(r.body) == 1 && strings.Contains(r.body, "event: error\ndata: {\"type\":\"error\"") &&
					r.bodyErr == nil
			}},
		{"error after 4", []Fault{{Kind: ErrorEvent, After: 4, Form: FormSGLang}}, streamBody, func(r reply) bool {
			return contentEvents(r.body) == 3 && strings.HasSuffix(r.body, "}}\n\n") && strings.Contains(r.body, `"error":{`)
		}},
		{"malformed chunk", []Fault{{Kind: Malformed, After: 2}}, streamBody, func(r reply) bool {
			broken := 0
			for part := range strings.SplitSeq(r.body, "\n\n") {
				if strings.HasPrefix(part, "data: {") && !strings.HasSuffix(part, "}") {
					broken++
				}
			}
			return broken == 1 && strings.HasSuffix(r.body, "[DONE]\n\n")
		}},
		{"429 with Retry-After", []Fault{{Kind: Status, Status: 429, RetryAfter: "2"}}, wholeBody, func(r reply) bool {
			return r.status == 429 && r.header.Get("Retry-After") == "2" && strings.Contains(r.body, `"code":429`)
		}},
		{"503 without", []Fault{{Kind: Status, Status: 503}}, wholeBody, func(r reply) bool {
			_, there := r.header["Retry-After"]
			return r.status == 503 && !there
		}},
		{"401 with its own body", []Fault{{Kind: Status, Status: 401, Body: "no", ContentType: "text/plain"}}, wholeBody,
			func(r reply) bool {
				return r.status == 401 && r.body == "no" && r.header.Get("Content-Type") == "text/plain"
			}},
		{"redirect", []Fault{{Kind: Redirect}}, wholeBody, func(r reply) bool {
			return r.status == 302 && r.header.Get("Location") != ""
		}},
		{"html", []Fault{{Kind: HTML}}, wholeBody, func(r reply) bool {
			return r.status == 200 && strings.HasPrefix(r.header.Get("Content-Type"), "text/html")
		}},
		{"json error", []Fault{{Kind: JSONError}}, wholeBody, func(r reply) bool {
			return r.status == 200 && strings.HasPrefix(r.body, `{"error":`)
		}},
		{"empty", []Fault{{Kind: Empty}}, wholeBody, func(r reply) bool {
			return r.status == 200 && r.body == "" && r.bodyErr == nil
		}},
		{"rejected field", []Fault{{Kind: Reject}}, streamBody, func(r reply) bool {
			return r.status == 400 && strings.Contains(r.body, "stream_options.include_usage")
		}},
		{"rejected field that is absent", []Fault{{Kind: Reject}}, wholeBody, func(r reply) bool { return r.status == 200 }},
		{"other rejected field", []Fault{{Kind: Reject, Field: "messages", Status: 422}}, wholeBody,
			func(r reply) bool { return r.status == 422 && strings.Contains(r.body, "messages") }},
		{"merged tokens", []Fault{{Kind: Merge, Every: 4}}, streamBody, func(r reply) bool {
			return contentEvents(r.body) == 2 && strings.Contains(r.body, `"content":"aaaabbbbccccdddd"`) &&
				strings.Contains(r.body, `"content":"eeeeffff"`)
		}},
		{"comments", []Fault{{Kind: Comments}}, streamBody, func(r reply) bool {
			return strings.Count(r.body, ": still here\n\n") == 10 && contentEvents(r.body) == 6
		}},
		{"pings", []Fault{{Kind: Ping}}, streamBody, func(r reply) bool {
			return strings.Count(r.body, "event: ping\ndata: {") == 10
		}},
		{"crlf", []Fault{{Kind: CRLF}}, streamBody, func(r reply) bool {
			return strings.Count(r.body, "\n") == 20 && strings.Count(r.body, "\r\n") == 20
		}},
		{"huge event", []Fault{{Kind: Huge, After: 2, Size: 1 << 20}}, streamBody, func(r reply) bool {
			return len(r.body) > 1<<20 && contentEvents(r.body) == 7
		}},
		{"no usage, stream", []Fault{{Kind: NoUsage}}, streamBody, func(r reply) bool {
			return !strings.Contains(r.body, "usage") && strings.HasSuffix(r.body, "[DONE]\n\n")
		}},
		{"no usage, whole", []Fault{{Kind: NoUsage}}, wholeBody, func(r reply) bool {
			return !strings.Contains(r.body, "usage") && strings.Contains(r.body, "choices")
		}},
		{"null error", []Fault{{Kind: NullError}}, streamBody, func(r reply) bool {
			return strings.Count(r.body, `"error":null`) == 9
		}},
		{"length too long", []Fault{{Kind: Length, Size: 10}}, wholeBody, func(r reply) bool {
			return r.status == 200 && errors.Is(r.bodyErr, io.ErrUnexpectedEOF)
		}},
		{"length too short", []Fault{{Kind: Length, Size: -10}}, wholeBody, func(r reply) bool {
			return r.bodyErr == nil && !strings.HasSuffix(r.body, "}")
		}},
		{"gzip whole", []Fault{{Kind: Gzip}}, wholeBody, func(r reply) bool {
			return r.header.Get("Content-Encoding") == "gzip" && strings.Contains(gunzip(r.body), "choices")
		}},
		{"gzip stream", []Fault{{Kind: Gzip}}, streamBody, func(r reply) bool { return contentEvents(gunzip(r.body)) == 6 }},
		{"several at once", []Fault{{Kind: CRLF}, {Kind: Comments}, {Kind: ErrorEvent, After: 3}}, streamBody,
			func(r reply) bool {
				return strings.Count(r.body, ": still here\r\n\r\n") == 3 && strings.HasSuffix(r.body, "[DONE]\r\n\r\n") &&
					strings.Contains(r.body, `"error":{`)
			}},
		{"slow", []Fault{{Kind: Slow, Delay: time.Millisecond}}, streamBody, func(r reply) bool {
			return contentEvents(r.body) == 6
		}},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.set(t, row.faults...)
			if got := r.ask(t, row.body); !row.ok(got) {
				t.Errorf("status %d, body ends with %v, socket with %v:\n%.1500s", got.status, got.bodyErr, got.err, got.raw)
			}
			if s := r.e.Stats(); s.Cancelled != 0 {
				t.Errorf("a fault counts as a client that left: %+v", s)
			}
		})
	}
}

// until waits for what another goroutine brings about; the test's own timeout bounds it.
func until(t *testing.T, happened func() bool) {
	t.Helper()
	for !happened() {
		if t.Context().Err() != nil {
			t.Fatal("it never happened")
		}
		runtime.Gosched()
	}
}

func gunzip(s string) string {
	z, err := gzip.NewReader(strings.NewReader(s))
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(z)
	return string(b)
}

func TestRecorderKeepsWhatArrived(t *testing.T) {
	rec := Record(engines.New(engines.Config{Model: "m"}))
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/completions?x=1",
		strings.NewReader(`{"model":"m","prompt":"a"}`))
	r.Header.Set("Authorization", "Bearer t")
	rec.ServeHTTP(httptest.NewRecorder(), r)
	got := rec.Requests()
	if len(got) != 1 || got[0].Method != "POST" || got[0].URL != "/v1/completions?x=1" ||
		got[0].Header.Get("Authorization") != "Bearer t" || string(got[0].Body) != `{"model":"m","prompt":"a"}` {
		t.Errorf("recorded %+v", got)
	}
}
