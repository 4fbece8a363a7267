package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	"tierway/config"
	"tierway/http1"
	"tierway/telemetry"
)

// BenchmarkChat sends a chat request through the whole gateway. Worker and client cost next to nothing.
func BenchmarkChat(b *testing.B) {
	for _, size := range []int{400, 48 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) { benchChat(b, size, "") })
	}
}

// BenchmarkChatTraced is BenchmarkChat with a collector that discards all traces.
func BenchmarkChatTraced(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer collector.Close()
	for name, sample := range map[string]int{"unsampled": 0, "sampled": 1} {
		b.Run(name, func(b *testing.B) {
			benchChat(b, 400, fmt.Sprintf("telemetry: { otlp: %q, sample: %d }\n", collector.URL, sample))
		})
	}
}

// benchAnswer is a chat's answer.
const benchAnswer = `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`

func benchChat(b *testing.B, size int, more string) {
	benchRequests(b, size, benchFront(b, fmt.Sprintf(plain, benchWorker(b, "w0", benchAnswer, ""))+more))
}

func benchRequests(b *testing.B, size int, address string) {
	benchStatus(b, benchBody("gpt-4o-mini", size), address, "HTTP/1.1 200")
}

// benchBody returns a chat whose text has that many bytes.
func benchBody(model string, size int) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"` + strings.Repeat("hi there ", size/9) +
		`"}],"max_tokens":20}`
}

// benchStatus sends a body again and again, and expects answers with a status.
func benchStatus(b *testing.B, body, address, status string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	request := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nAuthorization: Bearer k\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	r := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if got := readRaw(b, r); !strings.HasPrefix(got, status) {
			b.Fatal(got)
		}
	}
}

// readRaw reads one message with a Content-Length or in chunks, and returns its first line.
func readRaw(b *testing.B, r *bufio.Reader) (first string) {
	length, chunked := 0, false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			if first == "" {
				return ""
			}
			b.Error(err)
			return first
		}
		if first == "" {
			first = string(line[:min(len(line), 15)])
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > 16 && strings.EqualFold(string(line[:15]), "Content-Length:") {
			for _, c := range line[16 : len(line)-2] {
				length = length*10 + int(c-'0')
			}
		}
		chunked = chunked || strings.EqualFold(string(line), "Transfer-Encoding: chunked\r\n")
	}
	if chunked {
		if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
			b.Error(err)
		}
		length = len("\r\n") // behind the last chunk
	}
	if _, err := r.Discard(length); err != nil {
		b.Error(err)
	}
	return first
}

// benchWorker starts a raw worker with a constant answer, and returns its entry in a configuration.
func benchWorker(b *testing.B, name, answer, more string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	form := "application/json"
	if strings.HasPrefix(answer, "data:") {
		form = "text/event-stream"
	}
	whole := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", form,
		len(answer), answer))
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for readRaw(b, r) != "" {
					if _, err := conn.Write(whole); err != nil {
						return
					}
				}
			}()
		}
	}()
	return fmt.Sprintf("{ name: %s, url: \"http://%s\", %s }", name, l.Addr(), more)
}

// benchFront serves a configuration and returns its address.
func benchFront(b *testing.B, text string) string {
	file, err := config.Parse("bench.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Options{Config: file, Log: slog.New(slog.DiscardHandler), Access: io.Discard,
		Metrics: telemetry.New("bench"), Rand: func() uint64 { return 7 }})
	if err != nil {
		b.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	h := &http1.Server{Handler: s.planes.dataHandler(), Fallback: func(c net.Conn) { c.Close() }, Base: b.Context(),
		HeadTimeout: headerTimeout, IdleTimeout: idleTimeout, OnPanic: func(p any) { b.Error(p) }}
	go h.Serve(front) // ends with Close
	go s.traces.Run(b.Context())
	go s.proxy.RunRecords(b.Context())
	b.Cleanup(func() { h.Close(); s.close() })
	return front.Addr().String()
}

// BenchmarkChatAs sends a chat of a caller with limits, one that is classified, and one whose answer is a stream.
func BenchmarkChatAs(b *testing.B) {
	const limits = "rpm: 100000000, tpm: 100000000000, concurrent: 1000, day_tokens: 100000000000"
	for name, c := range map[string]struct{ from, to, model, answer string }{
		"limited": {"auth: { required: false }", "auth: { keys: [ { name: acme, sha256: " + digestHex("k") + ", limits: { " +
			limits + " } } ] }", "gpt-4o-mini", benchAnswer},
		"classified": {"\nmodels:", "\nclassifier: { preset: graded }\nmodels:", "auto", benchAnswer},
		"streamed":   {"", "", "gpt-4o-mini", benchStream},
	} {
		b.Run(name, func(b *testing.B) {
			text := fmt.Sprintf(plain, benchWorker(b, "w0", c.answer, ""))
			if name == "classified" { // a second tier
				text = strings.Replace(text, "models: {", "  - { name: large, model: fake-70b, workers: [ "+
					benchWorker(b, "w1", c.answer, "")+" ] }\nmodels: {", 1)
			}
			body := benchBody(c.model, 400)
			if name == "streamed" {
				body = strings.Replace(body, "{", `{"stream":true,`, 1)
			}
			benchStatus(b, body, benchFront(b, strings.Replace(text, c.from, c.to, 1)), "HTTP/1.1 200")
		})
	}
}

// benchStream is a chat's answer as a stream of four events.
const benchStream = `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"o"}}]}

data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"k"},"finish_reason":"stop"}]}

data: {"id":"x","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}

data: [DONE]

`
