package liveness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// modelName is the model of all engines.
const modelName = "fake-7b"

// kvCapacity is the size of an engine's KV cache in tokens, as on a GPU with 80 GB.
const kvCapacity = 400_000

// ServeHTTP serves the paths of vLLM that the gateway uses.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
	case "/v1/models":
		owner := "vllm"
		if e.config.noMetrics {
			owner = "other"
		}
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":%q}]}`, modelName, owner)
	case "/v1/chat/completions":
		e.serveChat(w, r)
	case "/metrics":
		e.serveMetrics(w)
	case "/is_paused":
		if e.config.noMetrics {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"is_paused":false}`) // the gateway reports it
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveMetrics writes the metrics of the last step.
func (e *engine) serveMetrics(w http.ResponseWriter) {
	if e.config.noMetrics {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	e.mu.Lock()
	g, awake := e.published, 1
	if e.asleep {
		awake = 0
	}
	e.mu.Unlock()
	fmt.Fprintf(w, `vllm:num_requests_running{engine="0"} %d
vllm:num_requests_waiting{engine="0"} %d
vllm:kv_cache_usage_perc{engine="0"} %g
vllm:prompt_tokens_total{engine="0"} %d
vllm:generation_tokens_total{engine="0"} %d
vllm:iteration_tokens_total_count{engine="0"} %d
vllm:engine_sleep_state{engine="0",sleep_state="awake"} %d
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="%d"} 1
`, g.running, g.waiting, float64(g.kvTokens)/kvCapacity, g.prompt, g.generated, g.iterations, awake, kvCapacity/16)
}

// chatRequest is what the engine reads of a request.
type chatRequest struct {
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct{ Content string }
}

// serveChat answers a chat completion.
func (e *engine) serveChat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request chatRequest
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var text strings.Builder
	for _, m := range request.Messages {
		text.WriteString(m.Content)
	}
	j := &job{text: text.String(), want: answerTokens(text.String()), whole: !request.Stream}
	if request.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush() // vLLM sends the head before the first token
	}
	e.submit(j)
	defer e.abort(j)
	sent := 0
	for {
		select {
		case got, more := <-j.events:
			if !more {
				e.endAnswer(w, j, request.StreamOptions.IncludeUsage)
				return
			}
			if request.Stream {
				writeEvent(w, `{"id":"c","object":"chat.completion.chunk","created":1,"model":"`+modelName+
					`","choices":[{"index":0,"delta":{"content":"`+strings.Repeat("word", got-sent)+`"},"finish_reason":null}]}`)
				sent = got
			}
		case <-r.Context().Done():
			return
		}
	}
}

// endAnswer writes the end of a stream, or the whole answer.
func (e *engine) endAnswer(w http.ResponseWriter, j *job, withUsage bool) {
	prompt := len(j.text) / bytesPerToken
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,`+
		`"prompt_tokens_details":{"cached_tokens":%d}}`, prompt, j.got, prompt+j.got, j.cached)
	if j.whole {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,`+
			`"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],%s}`, modelName,
			strings.Repeat("word", j.got), usage)
		return
	}
	writeEvent(w, `{"id":"c","object":"chat.completion.chunk","created":1,"model":"`+modelName+
		`","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	if withUsage {
		writeEvent(w, `{"id":"c","object":"chat.completion.chunk","created":1,"model":"`+modelName+`","choices":[],`+usage+`}`)
	}
	writeEvent(w, "[DONE]")
}

// writeEvent sends one event of a stream at once.
func writeEvent(w http.ResponseWriter, data string) {
	io.WriteString(w, "data: "+data+"\n\n") // the context of the request ends
	http.NewResponseController(w).Flush()   // the same
}

// lengthMark precedes the length of the answer at the end of a prompt. The gateway cannot know it.
const lengthMark = " Length: "

// answerTokens returns the length of the answer to a prompt.
func answerTokens(prompt string) int {
	_, length, found := strings.Cut(prompt, lengthMark)
	if n, err := strconv.Atoi(length); found && err == nil {
		return n
	}
	return shortAnswer
}
