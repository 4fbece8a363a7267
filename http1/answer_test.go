package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

const ok200 = "HTTP/1.1 200 OK\r\n"

func TestValidAnswersAreRead(t *testing.T) {
	chunked := ok200 + "Transfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name, method, answer string
		status               int
		body                 string
		length               int64
		kept                 bool
	}{
		{"length", "POST", ok200 + "Content-Length: 5\r\n\r\nhello", 200, "hello", 5, true},
		{"no reason, no blank", "POST", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, "", 0, true},
		{"empty reason", "POST", "HTTP/1.1 404 \r\ncontent-length:1\r\n\r\nx", 404, "x", 1, true},
		{"equal lengths", "POST", ok200 + "Content-Length: 2\r\ncontent-length: 2\r\n\r\nok", 200, "ok", 2, true},
		{"length with zeros", "POST", ok200 + "Content-Length: 0002\r\n\r\nok", 200, "ok", 2, true},
		{"chunks", "POST", chunked + "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", 200, "hello world", -1, true},
		{"CHUNKED, hex in both cases", "POST", ok200 + "transfer-encoding: CHUNKED\r\n\r\naA\r\n" +
			strings.Repeat("x", 0xaa) + "\r\n00\r\n\r\n", 200, strings.Repeat("x", 0xaa), -1, true},
		{"extensions and trailer", "POST", chunked + "2;a=b;c=\"d\"\r\nok\r\n0;last\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", 200,
			"ok", -1, true},
		{"until close", "POST", ok200 + "\r\nto the end", 200, "to the end", -1, false},
		{"connection: close", "POST", ok200 + "Connection: close\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 2, false},
		{"connection: close among others", "POST", ok200 + "Connection: x, Close\r\nContent-Length: 2\r\n\r\nok", 200,
			"ok", 2,
			false},
		{"1.0", "POST", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 2, false},
		{"1.0 with keep-alive is kept", "POST",
			"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", 200,
			"ok", 2, true},
		{"1.0 until close is not kept", "POST", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nok", 200, "ok", -1, false},
		{"HEAD", "HEAD", ok200 + "Content-Length: 500\r\n\r\n", 200, "", 500, true},
		{"HEAD, chunked", "HEAD", chunked, 200, "", -1, true},
		{"204", "POST", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", 0, true},
		{"204 with a length has no body", "POST", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n", 204, "", 0, false},
		{"204 with chunks has no body", "POST", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204, "", 0,
			false},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, "", 0, true},
		{"interim", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok200 +
			"Content-Length: 1\r\n\r\nx", 200, "x", 1, true},
		{"bytes after the body", "POST", ok200 + "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", 200, "ok", 2, false},
		{"bytes after the chunks", "POST", chunked + "2\r\nok\r\n0\r\n\r\n!", 200, "ok", -1, false},
		{"bytes after no body", "POST", ok200 + "Content-Length: 0\r\n\r\n!", 200, "", 0, false},
		{"bytes after HEAD", "HEAD", ok200 + "Content-Length: 2\r\n\r\nok", 200, "", 2, false},
		{"head of 60 KiB", "POST", ok200 + "X-Big: " + strings.Repeat("y", 60<<10) + "\r\nContent-Length: 2\r\n\r\nok", 200,
			"ok", 2, true},
		{"100 fields", "POST", ok200 + strings.Repeat("X-A: b\r\n", 99) + "Content-Length: 2\r\n\r\nok", 200, "ok", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, step := range readSteps() {
				got := replayAnswer(c.method, c.answer, step)
				if got.err != nil || got.status != c.status || got.body != c.body || got.length != c.length {
					t.Errorf("%s: got %d %q length %d, %v", name, got.status, got.body, got.length, got.err)
				}
				// Bytes after the answer are detected only if they arrive with it.
				if c.kept && !got.kept || got.kept && !c.kept && name == "whole" {
					t.Errorf("%s: kept %v", name, got.kept)
				}
			}
		})
	}
}

// readSteps returns functions with the sizes of successive reads.
func readSteps() map[string]func() int {
	random := rand.New(rand.NewPCG(1, 2))
	return map[string]func() int{
		"whole":    nil,
		"by bytes": func() int { return 1 },
		"ragged":   func() int { return 1 + random.IntN(40) },
	}
}

func TestInvalidHeadsAreRejected(t *testing.T) {
	for name, answer := range map[string]string{
		"other protocol":          "SSH-2.0-OpenSSH_9.2\r\n",
		"HTTP/2":                  "HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.2":                "HTTP/1.2 200 OK\r\n\r\n",
		"lower case":              "http/1.1 200 OK\r\n\r\n",
		"blank before":            " HTTP/1.1 200 OK\r\n\r\n",
		"empty line before":       "\r\n" + ok200 + "\r\n",
		"two blanks":              "HTTP/1.1  200 OK\r\n\r\n",
		"status of two digits":    "HTTP/1.1 20 OK\r\n\r\n",
		"status of four digits":   "HTTP/1.1 2000 OK\r\n\r\n",
		"status with sign":        "HTTP/1.1 +20 OK\r\n\r\n",
		"status 099":              "HTTP/1.1 099 OK\r\n\r\n",
		"status 600":              "HTTP/1.1 600 OK\r\n\r\n",
		"control in reason":       "HTTP/1.1 200 O\x00K\r\n\r\n",
		"bare LF after status":    "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
		"bare LF after a field":   ok200 + "Content-Length: 0\n\r\n",
		"bare LF at the end":      ok200 + "Content-Length: 0\r\n\n",
		"bare CR":                 ok200 + "X: a\rContent-Length: 0\r\n\r\n",
		"NUL in a value":          ok200 + "X: a\x00b\r\n\r\n",
		"fold":                    ok200 + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"fold of the first field": ok200 + " X: a\r\nContent-Length: 0\r\n\r\n",
		"space before colon":      ok200 + "Content-Length : 0\r\n\r\n",
		"no colon":                ok200 + "Content-Length\r\n\r\n",
		"no name":                 ok200 + ": x\r\n\r\n",
		"length with sign":        ok200 + "Content-Length: +3\r\n\r\nabc",
		"length below zero":       ok200 + "Content-Length: -1\r\n\r\n",
		"length empty":            ok200 + "Content-Length:\r\n\r\n",
		"length in hex":           ok200 + "Content-Length: 0x3\r\n\r\nabc",
		"length as list":          ok200 + "Content-Length: 3, 3\r\n\r\nabc",
		"length too big":          ok200 + "Content-Length: 9999999999999999999\r\n\r\n",
		"two lengths":             ok200 + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"length and chunks":       ok200 + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks and length":       ok200 + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"xchunked":                ok200 + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"gzip, chunked":           ok200 + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"identity":                ok200 + "Transfer-Encoding: identity\r\n\r\n",
		"chunked twice":           ok200 + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked, chunked":        ok200 + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"chunked in 1.0":          "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"switching protocols":     "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"interim without end":     strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", maxInterim+1) + ok200 + "\r\n",
		"101 fields":              ok200 + strings.Repeat("X-A: b\r\n", 101) + "\r\n",
		"head over 64 KiB":        ok200 + strings.Repeat("X-A: "+strings.Repeat("b", 1000)+"\r\n", 66) + "\r\n",
		"line over 64 KiB":        ok200 + "X-A: " + strings.Repeat("b", 70<<10) + "\r\n\r\n",
		"status line over 64 KiB": "HTTP/1.1 200 " + strings.Repeat("b", 70<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for how, step := range readSteps() {
				got := replayAnswer("POST", answer, step)
				wantPhase(t, got.err, PhaseAwait)
				var bad protocolError
				if !errors.As(got.err, &bad) {
					t.Errorf("%s: rejected with %v", how, got.err)
				}
			}
		})
	}
}

func TestTruncatedAnswerIsAnError(t *testing.T) {
	const chunkedHead = ok200 + "Transfer-Encoding: chunked\r\n\r\n"
	for name, whole := range map[string]string{
		"length":  ok200 + "Content-Length: 11\r\n\r\nhello world",
		"chunked": chunkedHead + "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			head := strings.Index(whole, "\r\n\r\n") + 4
			for cut := range len(whole) {
				got := replayAnswer("POST", whole[:cut], nil)
				phase := PhaseBody
				if cut < head {
					phase = PhaseAwait
				}
				wantPhase(t, got.err, phase)
				if !errors.Is(got.err, io.ErrUnexpectedEOF) || got.kept || !strings.HasPrefix("hello world", got.body) {
					t.Errorf("cut at %d: got %q, %v, kept %v", cut, got.body, got.err, got.kept)
				}
			}
		})
	}
}

func TestInvalidChunksAreRejected(t *testing.T) {
	for name, body := range map[string]string{
		"no size":                 "\r\nab\r\n0\r\n\r\n",
		"size not hex":            "2g\r\nab\r\n0\r\n\r\n",
		"size with prefix":        "0x2\r\nab\r\n0\r\n\r\n",
		"size with sign":          "+2\r\nab\r\n0\r\n\r\n",
		"blank before size":       " 2\r\nab\r\n0\r\n\r\n",
		"blank after size":        "2 \r\nab\r\n0\r\n\r\n",
		"size of 16 digits":       "8000000000000000\r\nab",
		"size wraps round":        "10000000000000002\r\nab\r\n0\r\n\r\n",
		"bare LF after size":      "2\nab\r\n0\r\n\r\n",
		"bare LF after extension": "2;ab\nab\r\n0\r\n\r\n",
		"bare LF in the trailer":  "2\r\nab\r\n0\r\nX: ab\n\r\n",
		"CR in extension":         "2;a\rb\r\nab\r\n0\r\n\r\n",
		"chunk too long":          "2\r\nabc\r\n0\r\n\r\n",
		"chunk too short":         "3\r\nab\r\n0\r\n\r\n",
		"bare LF after chunk":     "2\r\nab\n0\r\n\r\n",
		"bare LF at the end":      "2\r\nab\r\n0\r\n\n",
		"long size line":          "2;" + strings.Repeat("x", maxChunkLine) + "\r\nab\r\n0\r\n\r\n",
		"extensions only":         strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\na\r\n", 17) + "0\r\n\r\n",
		"trailer is no field":     "2\r\nab\r\n0\r\nnothing\r\n\r\n",
		"trailer folded":          "2\r\nab\r\n0\r\nX: a\r\n b\r\n\r\n",
		"trailer too long":        "0\r\n" + strings.Repeat("X-A: "+strings.Repeat("x", 90)+"\r\n", 30) + "\r\n",
		"trailer line too long":   "0\r\nX: " + strings.Repeat("x", 3<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for how, step := range readSteps() {
				got := replayAnswer("POST", ok200+"Transfer-Encoding: chunked\r\n\r\n"+body, step)
				wantPhase(t, got.err, PhaseBody)
				var bad protocolError
				if !errors.As(got.err, &bad) || got.kept {
					t.Errorf("%s: got %q, %v", how, got.body, got.err)
				}
			}
		})
	}
}

func TestConnectionFieldsAreNotForwarded(t *testing.T) {
	got := replayAnswer("POST",
		ok200+"content-type: text/event-stream\r\nConnection: keep-alive, X-Private\r\nKeep-Alive: timeout=5\r\n"+
			"x-private: 1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nset-cookie: a\r\nSet-Cookie:\tb \r\nx-odd-NAME: "+
			"c\r\n\r\n0\r\n\r\n", nil)
	want := http.Header{"Content-Type": {"text/event-stream"}, "Set-Cookie": {"a", "b"}, "X-Odd-Name": {"c"}}
	if got.err != nil || !reflect.DeepEqual(got.header, want) {
		t.Errorf("got %v, %v; want %v", got.header, got.err, want)
	}
}

func TestBodyDoesNotDependOnReadSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var answer, want strings.Builder
		answer.WriteString(ok200 + "Transfer-Encoding: chunked\r\n\r\n")
		for _, chunk := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 1, 9000)).Draw(t, "chunks") {
			fmt.Fprintf(&answer, "%x\r\n%s\r\n", len(chunk), chunk)
			want.Write(chunk)
		}
		answer.WriteString("0\r\n\r\n")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 50).Draw(t, "steps")
		i := 0
		got := replayAnswer("POST", answer.String(), func() int { i++; return sizes[i%len(sizes)] })
		if got.err != nil || got.body != want.String() || !got.kept {
			t.Fatalf("got %d bytes of %d, %v, kept %v", len(got.body), want.Len(), got.err, got.kept)
		}
	})
}

// FuzzAnswer compares with net/http, which must read every answer that the client accepts in the
// same way. The client rejects more than net/http.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		ok200 + "Content-Length: 5\r\n\r\nhello",
		ok200 + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
		ok200 + "Connection: close, X\r\nX: 1\r\n\r\nto the end",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No Content\r\nPragma: no-cache\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
		ok200 + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhel",
		ok200 + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		ok200 + "transfer-encoding: chunked\r\n\r\n0000000000000005\r\nhello\r\n2\r\n\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed), false, uint64(1))
		f.Add([]byte(seed), true, uint64(2))
	}
	f.Fuzz(func(t *testing.T, data []byte, head bool, seed uint64) {
		method := "POST"
		if head {
			method = "HEAD"
		}
		got := replayAnswer(method, string(data), nil)
		random := rand.New(rand.NewPCG(seed, 0))
		split := replayAnswer(method, string(data), func() int { return 1 + random.IntN(16) })
		if got.status != split.status || got.body != split.body || got.length != split.length ||
			!reflect.DeepEqual(got.header, split.header) || fmt.Sprint(got.err) != fmt.Sprint(split.err) {
			t.Fatalf("the result depends on the sizes of reads:\n%+v\n%+v", got, split)
		}
		want := readWithNetHTTP(method, string(data))
		if got.err == nil && want.err != nil && !netHTTPIsStricter(string(data), want.err) {
			t.Fatalf("read as %+v, but net/http returns %v", got, want.err)
		}
		if got.err != nil && got.status == 0 || want.err != nil && want.status == 0 {
			return
		}
		if got.status != want.status || !sameHeader(got.header, want.header, string(data)) {
			t.Fatalf("heads differ:\n%+v\n%+v", got, want)
		}
		if got.err == nil && want.err == nil && got.body != want.body ||
			!strings.HasPrefix(got.body, want.body) && !strings.HasPrefix(want.body, got.body) {
			t.Fatalf("bodies differ:\n%+v\n%+v", got, want)
		}
	})
}

// netHTTPIsStricter reports whether net/http rejects an answer because of its Trailer header, which
// the client drops with the trailer.
func netHTTPIsStricter(data string, err error) bool {
	return strings.Contains(err.Error(), "bad trailer key") && strings.Contains(strings.ToLower(data), "trailer:")
}

// readWithNetHTTP returns an answer as net/http reads it.
func readWithNetHTTP(method, answer string) received {
	in := bufio.NewReader(strings.NewReader(answer))
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return received{err: err}
		}
		if res.StatusCode >= 100 && res.StatusCode < 200 && res.StatusCode != 101 {
			continue
		}
		body, err := io.ReadAll(res.Body)
		h := res.Header
		for _, k := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade",
			"Transfer-Encoding"} {
			delete(h, k)
		}
		return received{status: res.StatusCode, header: h, body: string(body), err: err}
	}
}

// sameHeader compares two headers with two exceptions: net/http adds Cache-Control to Pragma, and with
// Connection: close it keeps the other fields that Connection names.
func sameHeader(got, want http.Header, data string) bool {
	if want["Pragma"] != nil && got["Cache-Control"] == nil {
		delete(want, "Cache-Control")
	}
	if strings.Contains(strings.ToLower(data), "connection:") {
		maps.DeleteFunc(want, func(k string, _ []string) bool { return got[k] == nil })
	}
	return maps.EqualFunc(got, want, slices.Equal)
}

// TestWaitKeepsTheErrorOfTheConnection: an answer that ends with its connection must not look complete
// after a reset.
func TestWaitKeepsTheErrorOfTheConnection(t *testing.T) {
	c := &recordedConn{in: ok200 + "\r\npart", fault: syscall.ECONNRESET}
	p := New(Config{Host: "engine", Dial: func(context.Context, string, string) (net.Conn, error) { return c, nil }})
	defer p.Close()
	res, err := p.Send(t.Context(), &Request{Method: "GET", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(waitingReader{res.Body})
	if wantPhase(t, err, PhaseBody); string(body) != "part" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the body is %q with error %v", body, err)
	}
	res.Body.(interface{ Wait() }).Wait() // after the end
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
}
