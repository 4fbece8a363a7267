package sdk_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"tierway/e2e/gateway"
	"tierway/engines"
)

// TestSmokeSDKsReadKeptAnswers: OpenAI's SDKs for Go, Python and Node and Anthropic's for Python and Node read kept
// answers of each dialect (C3). Answers that were kept whole are read as streams, and the reverse. The text of each
// answer has the number of its request at the engine, so that only a kept answer has the same text.
func TestSmokeSDKsReadKeptAnswers(t *testing.T) {
	t.Parallel()
	gateway.DependOn(t, "../python", "../node")
	var asked atomic.Int64
	e := engines.New(engines.Config{Model: "kept-model", Script: func(_ string, body []byte) engines.Script {
		if len(body) == 0 {
			return engines.Script{} // not a request of a client
		}
		return engines.Script{Text: fmt.Sprintf("Answer %d says \"hällo\"\nto the \U0001f30d.", asked.Add(1))}
	}})
	t.Cleanup(e.Close)
	p := gateway.Serve(t, fmt.Sprintf(`
auth: { required: false }
drain: { accept_grace: 10ms, timeout: 5s }
retry: { attempts: 1 }
policy: { name: least_load }
tiers:
  - name: kept
    model: kept-model
    serves: [chat, completions, responses, messages]
    response_cache: { exact: { ttl: 1h } }
    workers: [ { name: kept, url: %q } ]
`, startEngine(t, e)))
	kept := serveKept(t, p, &asked)
	env := []string{"KEPT_URL=" + kept}
	t.Run("all", func(t *testing.T) {
		for name, read := range map[string]func(t *testing.T){
			"Go":     func(t *testing.T) { goReadsKept(t, p, kept) },
			"Python": func(t *testing.T) { checkRan(t, runPythonWith(t, p, env, "test_kept")) },
			"Node":   func(t *testing.T) { checkRan(t, runNodeWith(t, p, env, "kept.test.js")) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				read(t)
			})
		}
	})
	// Each dialect of an SDK has an answer that was kept whole and one that was kept as a stream.
	if n, want := asked.Load(), int64(2*(3+4+4)); n != want {
		t.Errorf("the engine got %d requests, want %d", n, want)
	}
}

// serveKept returns a URL that answers when the gateway has kept all answers of the engine, or with 503 after a minute.
// The gateway keeps an answer after the client has received it, so an equal request in the next moment can be a miss.
func serveKept(t *testing.T, p *gateway.Process, asked *atomic.Int64) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), time.Minute)
		defer stop()
		for ctx.Err() == nil {
			m, err := p.Metrics()
			if err == nil && m.Sum("tierway_response_cache_answers_total", `result="kept"`) == float64(asked.Load()) {
				return
			}
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// waitUntilKept returns when the gateway has kept all answers.
func waitUntilKept(t *testing.T, kept string) {
	t.Helper()
	resp, err := http.Get(kept)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal("the answer is not kept")
	}
}

// keptRead is an answer as an SDK has read it.
type keptRead struct {
	id             string
	text, finish   string
	prompt, output int64
}

// keptReaders are the ways in which openai-go reads an answer of a dialect.
type keptReaders struct {
	whole, stream func(t *testing.T, c openai.Client, prompt string) keptRead
}

// goReadsKept reads kept answers with openai-go.
func goReadsKept(t *testing.T, p *gateway.Process, kept string) {
	for name, read := range map[string]keptReaders{
		"chat":        {readKeptChat, readKeptChatStream},
		"completions": {readKeptCompletion, readKeptCompletionStream},
		"responses":   {readKeptResponse, readKeptResponseStream},
	} {
		for first, order := range map[string]keptReaders{"whole": read, "stream": {read.stream, read.whole}} {
			t.Run(name+" kept from "+first, func(t *testing.T) { checkKept(t, p, kept, "Go "+name+" "+first, order) })
		}
	}
}

// checkKept reads an answer in one form, and then what the gateway has kept of it in the other form and in the same.
func checkKept(t *testing.T, p *gateway.Process, kept, prompt string, order keptReaders) {
	status := ""
	c, _ := goClient(p, option.WithMaxRetries(0), option.WithMiddleware(
		func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			resp, err := next(r)
			if err == nil {
				status = resp.Header.Get("X-Tierway-Cache-Status")
			}
			return resp, err
		}))
	first := order.whole(t, c, prompt)
	if status != "miss" || !strings.HasPrefix(first.text, "Answer ") || first.finish == "" || first.prompt == 0 ||
		first.output == 0 {
		t.Errorf("the first answer is a %s: %+v", status, first)
	}
	waitUntilKept(t, kept)
	ids := map[string]bool{first.id: true}
	for i, again := range []func(*testing.T, openai.Client, string) keptRead{order.stream, order.whole} {
		got := again(t, c, prompt)
		ids[got.id] = true
		want := first
		if want.id = got.id; got != want || status != "exact-hit" || len(ids) != i+2 {
			t.Errorf("a %s: %+v, want %+v and a new id", status, got, want)
		}
	}
}

func keptChat(prompt string) openai.ChatCompletionNewParams {
	params := chatOf("kept", prompt)
	params.Temperature = openai.Float(0)
	return params
}

func readKeptChat(t *testing.T, c openai.Client, prompt string) keptRead {
	got := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(t.Context(), keptChat(prompt)))
	choice := last(t, got.Choices, 1)
	return keptRead{got.ID, choice.Message.Content, choice.FinishReason, got.Usage.PromptTokens,
		got.Usage.CompletionTokens}
}

func readKeptChatStream(t *testing.T, c openai.Client, prompt string) keptRead {
	params := keptChat(prompt)
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	var sum openai.ChatCompletionAccumulator
	for _, chunk := range must[[]openai.ChatCompletionChunk](t)(collect(c.Chat.Completions.NewStreaming(t.Context(),
		params))) {
		if !sum.AddChunk(chunk) {
			t.Errorf("a chunk that does not fit: %s", chunk.RawJSON())
		}
	}
	choice := last(t, sum.Choices, 1)
	return keptRead{sum.ID, choice.Message.Content, choice.FinishReason, sum.Usage.PromptTokens,
		sum.Usage.CompletionTokens}
}

func keptCompletion(prompt string) openai.CompletionNewParams {
	params := openai.CompletionNewParams{Model: "kept", MaxTokens: openai.Int(99), Temperature: openai.Float(0)}
	params.Prompt.OfString = openai.String(prompt)
	return params
}

func readKeptCompletion(t *testing.T, c openai.Client, prompt string) keptRead {
	got := must[*openai.Completion](t)(c.Completions.New(t.Context(), keptCompletion(prompt)))
	choice := last(t, got.Choices, 1)
	return keptRead{got.ID, choice.Text, string(choice.FinishReason), got.Usage.PromptTokens,
		got.Usage.CompletionTokens}
}

func readKeptCompletionStream(t *testing.T, c openai.Client, prompt string) keptRead {
	params := keptCompletion(prompt)
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	chunks := must[[]openai.Completion](t)(collect(c.Completions.NewStreaming(t.Context(), params)))
	end := last(t, chunks, 3)
	got := keptRead{id: end.ID, prompt: end.Usage.PromptTokens, output: end.Usage.CompletionTokens}
	for _, chunk := range chunks[:len(chunks)-1] {
		got.text += last(t, chunk.Choices, 1).Text
		got.finish += string(chunk.Choices[0].FinishReason)
	}
	return got
}

func keptResponse(prompt string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "kept", Store: openai.Bool(false), Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)}}
}

func readOfResponse(r *responses.Response) keptRead {
	return keptRead{r.ID, r.OutputText(), string(r.Status), r.Usage.InputTokens, r.Usage.OutputTokens}
}

func readKeptResponse(t *testing.T, c openai.Client, prompt string) keptRead {
	return readOfResponse(must[*responses.Response](t)(c.Responses.New(t.Context(), keptResponse(prompt))))
}

func readKeptResponseStream(t *testing.T, c openai.Client, prompt string) keptRead {
	events := must[[]responses.ResponseStreamEventUnion](t)(collect(c.Responses.NewStreaming(t.Context(),
		keptResponse(prompt))))
	for i, event := range events {
		if event.SequenceNumber != int64(i) {
			t.Errorf("event %d is %s", i, event.RawJSON())
		}
	}
	end := last(t, events, 2).Response
	got := readOfResponse(&end)
	if said := said(events); said != got.text {
		t.Errorf("the deltas have %q, the whole response %q", said, got.text)
	}
	return got
}
