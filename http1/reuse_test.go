package http1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scriptedConn is a connection to a worker that sends its next answer when a request is written. As
// in a socket, unread bytes of an answer precede the next one.
type scriptedConn struct {
	recordedConn
	answers []string
}

func (d *scriptedConn) Write(p []byte) (int, error) {
	if len(d.answers) > 0 {
		d.in += d.answers[0]
		d.answers = d.answers[1:]
	}
	return len(p), nil
}

// scriptedWorker dials scriptedConns. A new connection continues with the answers that the previous
// one has not sent.
type scriptedWorker struct {
	answers []string
	step    func() int
	last    *scriptedConn
	dialled int
}

func (w *scriptedWorker) dial(context.Context, string, string) (net.Conn, error) {
	if w.last != nil {
		w.answers = w.last.answers
	}
	w.dialled++
	w.last = &scriptedConn{recordedConn: recordedConn{step: w.step}, answers: w.answers}
	return w.last, nil
}

func (w *scriptedWorker) sender() *Client {
	return New(Config{Host: "engine", Dial: w.dial})
}

// sendNext sends one request and verifies that idle connections have no buffers.
func sendNext(t interface{ Fatalf(string, ...any) }, p *Client, method string) received {
	res, err := p.Send(context.Background(), &Request{Method: method, Path: "/"})
	if err != nil {
		return received{err: err}
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	for _, c := range p.idle.conns {
		if c.r != 0 || c.w != 0 || c.buf != nil || c.page != nil {
			t.Fatalf("an idle connection has bytes %d to %d of a buffer of %d bytes", c.r, c.w, len(c.buf))
		}
	}
	return received{status: res.Status, header: res.Header, length: res.ContentLength, body: string(body), err: err,
		kept: len(p.idle.conns) > 0}
}

func TestConnectionIsReusedAfterALargeHead(t *testing.T) {
	const usual = ok200 + "Content-Length: 2\r\n\r\nok"
	for name, first := range map[string]string{
		"5 KB of header":        ok200 + "X-Big: " + strings.Repeat("y", 5000) + "\r\nContent-Length: 2\r\n\r\nok",
		"60 KB of header":       ok200 + "X-Big: " + strings.Repeat("y", 60000) + "\r\nContent-Length: 2\r\n\r\nok",
		"a large head, no body": "HTTP/1.1 204 No Content\r\nX-Big: " + strings.Repeat("y", 5000) + "\r\n\r\n",
		"a large head and chunks": ok200 + "X-Big: " + strings.Repeat("y", 5000) +
			"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"a large interim answer": "HTTP/1.1 103 Early Hints\r\nX-Big: " + strings.Repeat("y", 5000) + "\r\n\r\n" + usual,
		"two large heads, then it": ok200 + "X-Big: " + strings.Repeat("y", 9000) + "\r\nContent-Length: 9\r\n\r\n" +
			strings.Repeat("z", 9),
	} {
		t.Run(name, func(t *testing.T) {
			for how, step := range readSteps() {
				w := &scriptedWorker{answers: []string{first, first, usual}, step: step}
				p := w.sender()
				defer p.Close()
				alone := replayAnswer("POST", first, nil)
				for range 2 {
					if got := sendNext(t, p, "POST"); got.err != nil || got.status != alone.status || got.body != alone.body {
						t.Fatalf("%s: got %d %q, %v", how, got.status, got.body, got.err)
					}
				}
				if got := sendNext(t, p, "POST"); got.err != nil || got.body != "ok" || w.dialled != 1 {
					t.Errorf("%s: the next answer is %q, %v, on connection %d", how, got.body, got.err, w.dialled)
				}
			}
		})
	}
}

// The answers are valid and have all framings and sizes.
func TestAnySequenceOfAnswersIsReadOverOneConnection(t *testing.T) {
	sizes := rapid.SampledFrom([]int{0, 1, 100, 4000, 4096, 5000, 20000})
	rapid.Check(t, func(t *rapid.T) {
		var answers, bodies []string
		for range rapid.IntRange(2, 6).Draw(t, "answers") {
			body := strings.Repeat("b", sizes.Draw(t, "body"))
			answer := ok200
			if rapid.Bool().Draw(t, "interim") {
				answer = "HTTP/1.1 100 Continue\r\nX-Big: " + strings.Repeat("y", sizes.Draw(t, "interim head")) + "\r\n\r\n" +
					ok200
			}
			answer += "X-Big: " + strings.Repeat("y", sizes.Draw(t, "head")) + "\r\n"
			if rapid.Bool().Draw(t, "chunked") {
				answer += "Transfer-Encoding: chunked\r\n\r\n"
				if body != "" {
					answer += fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
				}
				answer += "0\r\n\r\n"
			} else {
				answer += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
			}
			answers, bodies = append(answers, answer), append(bodies, body)
		}
		lengths := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 20).Draw(t, "steps")
		i := 0
		w := &scriptedWorker{answers: answers, step: func() int { i++; return lengths[i%len(lengths)] }}
		p := w.sender()
		defer p.Close()
		for n, body := range bodies {
			if got := sendNext(t, p, "POST"); got.err != nil || got.body != body || !got.kept {
				t.Fatalf("answer %d: %d bytes of %d, kept %v, %v", n, len(got.body), len(body), got.kept, got.err)
			}
		}
		if w.dialled != 1 {
			t.Fatalf("%d connections", w.dialled)
		}
	})
}

// FuzzReusedConnections reads sequences of answers with any bytes over one client. After an answer
// with a proper end, the next one is read as on a new connection.
func FuzzReusedConnections(f *testing.F) {
	const part = "\x00\x00" // between two answers
	usual := ok200 + "Content-Length: 5\r\n\r\nhello"
	big := ok200 + "X-Big: " + strings.Repeat("y", 5000) + "\r\nContent-Length: 0\r\n\r\n"
	chunked := ok200 + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"
	for _, seed := range []string{
		usual + part + usual,
		big + part + usual + part + big,
		chunked + part + big + part + chunked,
		usual + "HTTP/1.1 200 OK\r\n" + part + usual,
		"HTTP/1.1 100 Continue\r\n\r\n" + big + part + "HTTP/1.1 204 No Content\r\n\r\n" + part + usual,
		ok200 + "Connection: close\r\nContent-Length: 1\r\n\r\nx" + part + chunked,
		ok200 + "\r\nto the end" + part + "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx" + part +
			usual,
		strings.Replace(chunked, "0\r\nX: y", "0\r\n"+strings.Repeat("X: y\r\n", 300), 1) + part + big + part + usual,
	} {
		f.Add([]byte(seed), false, uint64(1))
		f.Add([]byte(seed), true, uint64(2))
	}
	f.Fuzz(func(t *testing.T, data []byte, head bool, seed uint64) {
		method := http.MethodPost
		if head {
			method = http.MethodHead
		}
		var answers []string
		for answer := range bytes.SplitSeq(data, []byte(part)) {
			answers = append(answers, string(answer))
		}
		answers = answers[:min(len(answers), 20)]
		random := rand.New(rand.NewPCG(seed, 0))
		ragged := (&scriptedWorker{answers: answers, step: func() int { return 1 + random.IntN(64) }}).sender()
		defer ragged.Close()
		for range answers {
			sendNext(t, ragged, method)
		}
		w := &scriptedWorker{answers: answers}
		p := w.sender()
		defer p.Close()
		clean := true
		for _, answer := range answers {
			got, alone := sendNext(t, p, method), replayAnswer(method, answer, nil)
			if same := got.status == alone.status && got.body == alone.body &&
				reflect.DeepEqual(got.header, alone.header); clean && alone.err == nil && !same {
				t.Fatalf("after a clean end %q is read as\n%+v, and alone as\n%+v", answer, got, alone)
			}
			clean = clean && alone.err == nil && got.kept && w.last.in == ""
		}
	})
}
