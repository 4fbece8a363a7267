package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// vllmStream streams as vLLM 0.32. Its fingerprint is in the last chunk, which is the usage chunk if
// usage is requested. With continuous_usage_stats every chunk has usage.
func vllmStream(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body) // the client may have left
	include := strings.Contains(string(body), `"include_usage":true`)
	usage, last := "", `,"system_fingerprint":"vllm-1"`
	if include && strings.Contains(string(body), `"continuous_usage_stats":true`) {
		usage = `,"usage":{"prompt_tokens":3,"completion_tokens":1}`
	}
	if include {
		last = ""
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, `data: {"id":"x","choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":null}]%s}`+"\n\n",
		usage)
	fmt.Fprintf(w, `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]%s%s}`+"\n\n", usage, last)
	if include {
		fmt.Fprint(w,
			`data: {"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2},"system_fingerprint":"vllm-1"}`+
				"\n\n")
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// TestAddedUsageIsRemovedFromTheStream: the gateway requests usage for its accounting. The client gets
// the stream that its own request would have produced.
func TestAddedUsageIsRemovedFromTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			first  = `data: {"id":"x","choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":null}]}` + "\n\n"
			finish = `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"system_fingerprint":"vllm-1"}` +
				"\n\n"
			done    = "data: [DONE]\n\n"
			without = first + finish + done
		)
		for _, options := range []string{``, `,"stream_options":{}`, `,"stream_options":null`,
			`,"stream_options":{"include_usage":false}`, `,"stream_options":{"continuous_usage_stats":true}`,
			`,"stream_options":{"include_usage":false,"continuous_usage_stats":true}`} {
			r := newRig(t, plain, http.HandlerFunc(vllmStream))
			got := r.post("/v1/chat/completions", chatBody("small", "Hi", `,"stream":true`+options))
			if got.body != without {
				t.Errorf("%s:\n got %s\nwant %s", options, got.body, without)
			}
			if line := r.accessLog(); !strings.Contains(line, `"prompt_tokens":3`) ||
				!strings.Contains(line, `"output_tokens":2`) {
				t.Errorf("%s: the usage is not accounted for: %s", options, line)
			}
		}
		r := newRig(t, plain, http.HandlerFunc(vllmStream))
		got := r.post("/v1/chat/completions",
			chatBody("small", "Hi", `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`))
		if n := strings.Count(got.body, `"usage":{`); n != 3 || !strings.Contains(got.body, `"choices":[],"usage"`) {
			t.Errorf("requested usage is missing: %s", got.body)
		}
	})
}
