package http1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// benchWorker answers every request with the same bytes. It only searches the end of each request,
// so the benchmark measures the client.
func benchWorker(b *testing.B, text string) string {
	answer := []byte(text)
	l := listen(b, "tcp", "127.0.0.1:0")
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				n := 0
				for {
					k, err := c.Read(buf[n:])
					if err != nil {
						return
					}
					n += k
					if bytes.HasSuffix(buf[:n], []byte("\n.")) {
						n = 0
						if _, err := c.Write(answer); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// benchLoads returns the exchanges of the gateway's performance budgets.
func benchLoads() []struct{ name, request, answer string } {
	const head = ok200 + "Date: Mon, 01 Jan 2024 00:00:00 GMT\r\nServer: uvicorn\r\nContent-Type: application/json\r\n"
	events := new(strings.Builder)
	for range 64 {
		const event = "data: {\"choices\":[{\"delta\":{\"content\":\"tok\"}}]}\n\n"
		fmt.Fprintf(events, "%x\r\n%s\r\n", len(event), event)
	}
	small := strings.Repeat("x", 400)
	return []struct{ name, request, answer string }{
		{"small", small, head + "Content-Length: 400\r\n\r\n" + small},
		{"48KB", strings.Repeat("x", 48<<10), head + "Content-Length: 400\r\n\r\n" + small},
		{"stream", small, head + "Transfer-Encoding: chunked\r\n\r\n" + events.String() + "0\r\n\r\n"},
	}
}

func BenchmarkClient(b *testing.B) {
	for _, load := range benchLoads() {
		b.Run(load.name, func(b *testing.B) {
			s := New(Config{Network: "tcp", Address: benchWorker(b, load.answer), Host: "engine"})
			defer s.Close()
			header := benchHeader()
			body := [][]byte{[]byte(load.request), []byte("\n.")}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				buf := make([]byte, 32<<10)
				for pb.Next() {
					res, err := s.Send(ctx, &Request{Method: "POST", Path: "/v1/chat/completions", Header: header, Body: body})
					if err != nil {
						b.Error(err)
						return
					}
					drain(b, res.Body, buf)
				}
			})
		})
	}
}

func BenchmarkTransport(b *testing.B) {
	for _, load := range benchLoads() {
		b.Run(load.name, func(b *testing.B) {
			transport := &http.Transport{
				DisableCompression: true, MaxIdleConnsPerHost: maxIdle,
				DialContext: new(net.Dialer).DialContext,
			}
			defer transport.CloseIdleConnections()
			url := "http://" + benchWorker(b, load.answer) + "/v1/chat/completions"
			header := benchHeader()
			body := load.request + "\n."
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				buf := make([]byte, 32<<10)
				for pb.Next() {
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					r.Header = header
					res, err := transport.RoundTrip(r)
					if err != nil {
						b.Error(err)
						return
					}
					drain(b, res.Body, buf)
				}
			})
		})
	}
}

func benchHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "Accept-Encoding": {"identity"},
		"Authorization": {"Bearer key"}, "X-Request-Id": {"0123456789abcdef"}, "User-Agent": {"tierway"},
	}
}

func drain(b *testing.B, body io.ReadCloser, buf []byte) {
	for {
		if _, err := body.Read(buf); err != nil {
			if err != io.EOF {
				b.Error(err)
			}
			break
		}
	}
	_ = body.Close()
}
