package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// inspected is data after Inspect, read in parts of step bytes.
func inspected(data string, step func() int) string {
	var f Framing
	out := []byte(data)
	for rest := out; len(rest) > 0; {
		n := min(step(), len(rest))
		f.Inspect(rest[:n])
		rest = rest[n:]
	}
	return string(out)
}

func whole() int { return 1 << 30 }

// accepted returns the heads of the requests that net/http accepts from one connection. The error is
// the reason why it accepts no more.
func accepted(data string) (heads []string, err error) {
	src := strings.NewReader(data)
	in := bufio.NewReader(src)
	at := func() int { return len(data) - src.Len() - in.Buffered() }
	for method := ""; ; {
		if method == http.MethodPost {
			for range 4 {
				if b, _ := in.Peek(1); len(b) == 1 && (b[0] == '\r' || b[0] == '\n') {
					_, _ = in.Discard(1)
				}
			}
		}
		begin := at()
		r, err := http.ReadRequest(in)
		if err != nil {
			return heads, err
		}
		heads, method = append(heads, data[begin:at()]), r.Method
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return heads, err
		}
	}
}

// ambiguous reports whether a head that net/http has accepted has two framings.
func ambiguous(head string) bool {
	var length, encoding bool
	for line := range strings.Lines(strings.ToLower(head)) {
		length = length || strings.HasPrefix(line, "content-length:")
		encoding = encoding || strings.HasPrefix(line, "transfer-encoding:")
	}
	first, _, _ := strings.Cut(head, "\n")
	return encoding && (length || strings.HasSuffix(strings.TrimRight(first, "\r"), "HTTP/1.0"))
}

// twoFramings are heads of requests with two framings, which net/http accepts. Their bodies are one last chunk.
var twoFramings = []string{
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nTRANSFER-encoding:chunked\r\ncontent-LENGTH:5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTe: trailers\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length:\r\n 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX: a\r\n Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.1\nHost: x\nContent-Length: 5\nTransfer-Encoding: chunked\n\n",
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
}

// drawRequestText draws a valid request with a body that looks like requests.
func drawRequestText(t *rapid.T) string {
	var b strings.Builder
	method := rapid.SampledFrom([]string{"GET", "POST", "PUT", "DELETE"}).Draw(t, "method")
	version := rapid.SampledFrom([]string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.0"}).Draw(t, "version")
	eol := rapid.SampledFrom([]string{"\r\n", "\r\n", "\n"}).Draw(t, "end of line")
	fmt.Fprintf(&b, "%s /x?content-length:5 %s%sHost: x%s", method, version, eol, eol)
	body := strings.Repeat(rapid.SampledFrom([]string{"", "x", "POST / HTTP/1.1\r\nContent-Length: " +
		"3\r\nTransfer-Encoding: chunked\r\n\r\n", "\r\n\r\n0\r\n\r\n"}).Draw(t, "body"),
		rapid.IntRange(0, 40).Draw(t, "times"))
	names := rapid.SampledFrom([]string{"Content-Type", "Content-Lengthy", "Content-Lengt", "Transfer-Encodings", "T", "C",
		"TE", "X-Transfer-Encoding", "Traceparent", "Cookie"})
	for range rapid.IntRange(0, 5).Draw(t, "fields") {
		fmt.Fprintf(&b, "%s: %s%s", names.Draw(t, "name"),
			rapid.SampledFrom([]string{"", "a", "transfer-encoding: chunked", "a" + eol + " transfer-encoding: b",
				"a" + eol + "\tcontent-length: 5"}).Draw(t, "value"), eol)
	}
	switch how := rapid.IntRange(0, 2).Draw(t, "framing"); {
	case how == 0 && version == "HTTP/1.1":
		fmt.Fprintf(&b, "Transfer-Encoding: chunked%s%s", eol, eol)
		for i := 0; i < len(body); {
			n := min(rapid.IntRange(1, 500).Draw(t, "chunk"), len(body)-i)
			fmt.Fprintf(&b, "%0*x%s\r\n%s\r\n", rapid.IntRange(1, 16).Draw(t, "digits"), n,
				rapid.SampledFrom([]string{"", ";a=b", " "}).Draw(t, "extension"), body[i:i+n])
			i += n
		}
		b.WriteString("0\r\n" +
			rapid.SampledFrom([]string{"", "X: y\r\n", "Content-Length: 5\r\nTransfer-Encoding: z\r\n"}).Draw(t, "trailer") +
			"\r\n")
	case how == 1 || body != "" && how == 0:
		length := fmt.Sprintf("%0*d", rapid.IntRange(1, 30).Draw(t, "length's digits"), len(body))
		if rapid.Bool().Draw(t, "folded") {
			length = eol + " " + length
		}
		fmt.Fprintf(&b, "Content-Length:%s%s%s%s", length, eol, eol, body)
	default:
		b.WriteString(eol)
	}
	return b.String()
}

// TestValidRequestsAreNotChanged, however their bytes are split. A request with two framings after them
// is still rejected.
func TestValidRequestsAreNotChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(rapid.Custom(drawRequestText), 1, 5).Draw(t, "requests")
		all := strings.Join(requests, "")
		if heads, err := accepted(all); len(heads) != len(requests) || !errors.Is(err, io.EOF) {
			t.Fatalf("net/http accepts %d of %d (%v)", len(heads), len(requests), err)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 20).Draw(t, "steps")
		i := 0
		step := func() int { i++; return sizes[i%len(sizes)] }
		if got := inspected(all, step); got != all {
			t.Fatalf("%q is changed to %q", all, got)
		}
		const bad = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		if heads, err := accepted(inspected(all+bad, step)); len(heads) != len(requests) || err == nil ||
			errors.Is(err, io.EOF) {
			t.Fatalf("after %d requests net/http accepts %d more (%v)", len(requests), len(heads)-len(requests), err)
		}
	})
}

// FuzzFraming: net/http accepts no request with two framings, and no valid request is changed, whatever
// the bytes and however they are split.
func FuzzFraming(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		uint64(1))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a\r\nhello\r\n0\r\nX: y\r\n\r\nGET "+
		"/ HTTP/1.0\r\n\r\n"), uint64(2))
	f.Add([]byte("POST / HTTP/1.1\nHost: x\nContent-Length:\n 5\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n"),
		uint64(3))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n\r\n\r\nPOST / HTTP/1.1\r\nHost: "+
		"x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n"), uint64(4))
	f.Add([]byte("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 00000000000000000000000000000002\r\n\r\nabPRI * "+
		"HTTP/2.0\r\n\r\nSM\r\n\r\n"), uint64(5))
	for _, head := range twoFramings {
		request := head + "0\r\n\r\n"
		if heads, _ := accepted(request); len(heads) != 1 || !ambiguous(heads[0]) {
			f.Errorf("net/http rejects %q without Framing", request)
		}
		f.Add([]byte(request), uint64(6))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		once := inspected(string(data), whole)
		if ragged := inspected(string(data), func() int { return 1 + random.IntN(9) }); ragged != once {
			t.Fatalf("the result depends on how the bytes are split: %q, %q", once, ragged)
		}
		heads, _ := accepted(once)
		for _, head := range heads {
			if ambiguous(head) {
				t.Fatalf("net/http accepts %q of %q", head, once)
			}
		}
		before, _ := accepted(string(data))
		for i, head := range before {
			if ambiguous(head) {
				break
			}
			if i >= len(heads) || heads[i] != head {
				t.Fatalf("request %d, %q, became one of %q", i, head, heads)
			}
		}
	})
}
