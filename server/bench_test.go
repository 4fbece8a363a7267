package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tierway/config"
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

func benchChat(b *testing.B, size int, more string) {
	const answer = `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`
	body := `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"` + strings.Repeat("hi there ", size/9) +
		`"}],"max_tokens":20}`
	conn, err := net.Dial("tcp", benchFront(b, answer, more))
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
		if status := readRaw(b, r); !strings.HasPrefix(status, "HTTP/1.1 200") {
			b.Fatal(status)
		}
	}
}

// readRaw reads one message with a Content-Length and returns its first line.
func readRaw(b *testing.B, r *bufio.Reader) (first string) {
	length := 0
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
	}
	if _, err := r.Discard(length); err != nil {
		b.Error(err)
	}
	return first
}

// benchFront serves one tier before a raw worker with a constant answer. more is added to its
// configuration.
func benchFront(b *testing.B, answer, more string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	whole := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
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
	text := fmt.Sprintf(plain, fmt.Sprintf("{ name: w0, url: \"http://%s\" }", l.Addr())) + more
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
	h := &http.Server{Handler: s.planes.dataHandler()}
	go h.Serve(front) // ends with Close
	go s.traces.Run(b.Context())
	b.Cleanup(func() { h.Close(); s.close() })
	return front.Addr().String()
}
