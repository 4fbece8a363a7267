package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestARepeatedControlHeaderIsRejected: readers disagree about which value counts.
func TestARepeatedControlHeaderIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		for _, name := range []string{"Content-Type", "X-Model-Tier", "X-Request-Priority", "X-Session-Id", "Session-Id",
			"X-Stainless-Timeout"} {
			for _, values := range [][2]string{{"a", "b"}, {"a", "a"}} {
				q, err := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(hello))
				if err != nil {
					t.Fatal(err)
				}
				q.Header.Set("Content-Type", "application/json")
				q.Header[name] = values[:]
				resp, err := r.net.transport.RoundTrip(q)
				if err != nil {
					t.Fatal(err)
				}
				a := readAnswer(t, resp)
				if _, code, message := errorOf(t, a); a.status != 400 || code != "invalid_value" ||
					!strings.Contains(message, name) || !strings.Contains(a.body, `"param":"`+name+`"`) {
					t.Errorf("%s twice: %d %s", name, a.status, a.body)
				}
			}
		}
		if a := r.post("/v1/chat/completions", hello, "X-Model-Tier", "small", "X-Request-Priority", "batch", "X-Session-Id",
			"s"); a.status != 200 {
			t.Errorf("each once: %d %s", a.status, a.body)
		}
	})
}

// readAnswer reads an answer to its end.
func readAnswer(t *testing.T, resp *http.Response) httpAnswer {
	t.Helper()
	defer resp.Body.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return httpAnswer{resp.StatusCode, resp.Header, b.String(), nil}
		}
	}
}
