package server

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestHeadersThatSteerEnginesAreNotForwarded: with them a batch key could overtake interactive
// requests, and any key could choose a rank or a host that the engine connects to.
func TestHeadersThatSteerEnginesAreNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got http.Header
		engine := fakeEngine()
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			got = r.Header.Clone()
			mu.Unlock()
			engine.ServeHTTP(w, r)
		}))
		steers := []string{"X-Vllm-Priority", "x-vllm-anything", "X-data-parallel-rank", "X-Data-Parallel-Host-Port",
			"X-DP-Rank", "X-SGLang-Session-Id",
			"X-Prefiller-Host-Port", "X-Prefiller-Url", "X-Encoder-Hosts-Ports", "X-Gateway-Destination-Endpoint",
			"endpoint-load-metrics-format"}
		headers := []string{"X-Custom", "kept"}
		for _, name := range steers {
			headers = append(headers, name, "-100")
		}
		if a := r.post("/v1/chat/completions", hello, headers...); a.status != 200 || got.Get("X-Custom") != "kept" {
			t.Fatalf("%d %s: %v", a.status, a.body, got)
		}
		for _, name := range steers {
			if v := got.Get(name); v != "" {
				t.Errorf("the engine gets %s: %s", name, v)
			}
		}
	})
}

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
