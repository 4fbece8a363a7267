package server

import (
	"bytes"
	"strings"
	"testing"
)

func BenchmarkFraming(b *testing.B) {
	const request = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: OpenAI/Python " +
		"1.99.1\r\nAccept: application/json\r\n" +
		"Content-Type: application/json\r\nAuthorization: Bearer " +
		"tw-abcdefghijklmnopqrstuvwxyz01_abcdef\r\nX-Stainless-Lang: python\r\nContent-Length: 126\r\n\r\n" +
		`{"model":"auto","messages":[{"role":"user","content":"Write a short poem about a river that flows by"}],"max_tokens":64,"n":1}`
	for name, text := range map[string]string{
		"400B": request,
		"48KB": strings.Replace(request, "Content-Length: 126", "Content-Length: 49152", 1) + strings.Repeat("x", 49152-126),
	} {
		b.Run(name, func(b *testing.B) {
			buf := []byte(text)
			var f Framing
			b.ReportAllocs()
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				for rest := buf; len(rest) > 0; {
					n := min(4096, len(rest)) // net/http's buffer
					f.Inspect(rest[:n])
					rest = rest[n:]
				}
			}
			if f.state != beforeRequest || !bytes.Equal(buf, []byte(text)) {
				b.Fatal("the parser lost the request or changed it")
			}
		})
	}
}
