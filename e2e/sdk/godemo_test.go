package sdk_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"tierway/e2e/gateway"
)

const hello = "Say hello to the whole world"

// forecast returns a JSON schema of a city and a number of days.
func forecast() map[string]any {
	return map[string]any{"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
		"properties": map[string]any{"city": map[string]any{"type": "string"}, "days": map[string]any{"type": "integer"}}}
}

func wantForecast(t *testing.T, text string) {
	t.Helper()
	var f struct {
		City *string `json:"city"`
		Days *int    `json:"days"`
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil || f.City == nil || f.Days == nil {
		t.Errorf("%q is no forecast: %v", text, err)
	}
}

// sdkCase is one test case of an SDK.
type sdkCase struct {
	name string
	do   func(t *testing.T, ctx context.Context, c openai.Client)
}

// goOnDemo runs the cases of openai-go with only the base URL and the key that the demo prints.
func goOnDemo(t *testing.T) tally {
	p := gateway.Demo(t)
	all := slices.Concat(goChat(), goResponses(), goOthers(), goErrors())
	for _, n := range all {
		t.Run(n.name, func(t *testing.T) {
			c, _ := goClient(p)
			n.do(t, t.Context(), c)
		})
	}
	return tally{ran: len(all)}
}

func goChat() []sdkCase {
	return []sdkCase{
		{"chat", func(t *testing.T, ctx context.Context, c openai.Client) {
			answer := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, chatOf("auto", hello)))
			if last(t, answer.Choices, 1).Message.Content == "" || answer.Usage.TotalTokens != answer.Usage.PromptTokens+
				answer.Usage.CompletionTokens {
				t.Errorf("an odd answer: %s", answer.RawJSON())
			}
		}},
		{"a stream has no chunk that was not asked for", func(t *testing.T, ctx context.Context, c openai.Client) {
			chunks := must[[]openai.ChatCompletionChunk](t)(collect(c.Chat.Completions.NewStreaming(ctx,
				chatOf("small", hello))))
			for _, chunk := range chunks {
				if len(chunk.Choices) == 0 || chunk.JSON.Usage.Valid() {
					t.Errorf("a chunk that was not asked for: %s", chunk.RawJSON())
				}
			}
			if finish(t, chunks) == "" {
				t.Errorf("%d chunks and no proper end", len(chunks))
			}
		}},
		{"a stream ends with the usage that was asked for", func(t *testing.T, ctx context.Context, c openai.Client) {
			params := chatOf("small", hello)
			params.MaxTokens = openai.Int(7)
			params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
			chunks := must[[]openai.ChatCompletionChunk](t)(collect(c.Chat.Completions.NewStreaming(ctx, params)))
			if end := last(t, chunks, 3); len(end.Choices) != 0 || end.Usage.CompletionTokens != 7 {
				t.Errorf("the last chunk is %s", end.RawJSON())
			}
		}},
		{"tools, whole and streamed", func(t *testing.T, ctx context.Context, c openai.Client) {
			params := chatOf("auto", "What is the weather in Paris?")
			params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
				openai.FunctionDefinitionParam{Name: "get_weather", Parameters: forecast()})}
			whole := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, params))
			var acc openai.ChatCompletionAccumulator
			for _, chunk := range must[[]openai.ChatCompletionChunk](t)(collect(c.Chat.Completions.NewStreaming(ctx, params))) {
				if !acc.AddChunk(chunk) {
					t.Fatalf("a chunk does not fit: %s", chunk.RawJSON())
				}
			}
			for _, choice := range []openai.ChatCompletionChoice{last(t, whole.Choices, 1), last(t, acc.Choices, 1)} {
				call := last(t, choice.Message.ToolCalls, 1).Function
				if choice.FinishReason != "tool_calls" || call.Name != "get_weather" {
					t.Errorf("no call: %+v", choice)
				}
				wantForecast(t, call.Arguments)
			}
		}},
		{"structured output", func(t *testing.T, ctx context.Context, c openai.Client) {
			params := chatOf("auto", hello)
			params.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{
				JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "forecast", Strict: openai.Bool(true),
					Schema: forecast()}}
			wantForecast(t, last(t, must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, params)).Choices,
				1).Message.Content)
		}},
		{"completions, whole and streamed", func(t *testing.T, ctx context.Context, c openai.Client) {
			params := openai.CompletionNewParams{Model: "small", MaxTokens: openai.Int(6)}
			params.Prompt.OfString = openai.String("Once upon a time")
			if answer := must[*openai.Completion](t)(c.Completions.New(ctx, params)); answer.Usage.CompletionTokens != 6 {
				t.Errorf("an odd answer: %s", answer.RawJSON())
			}
			chunks := must[[]openai.Completion](t)(collect(c.Completions.NewStreaming(ctx, params)))
			if end := last(t, chunks, 1); last(t, end.Choices, 1).FinishReason != "length" {
				t.Errorf("the last chunk is %s", end.RawJSON())
			}
		}},
		{"headers explain the answer", func(t *testing.T, ctx context.Context, c openai.Client) {
			var raw *http.Response
			answer := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, chatOf("auto", hello),
				option.WithResponseInto(&raw), option.WithHeader("X-Model-Tier", "LARGE"),
				option.WithHeader("X-Request-ID", "req-of-mine")))
			h := raw.Header
			if h.Get("X-Model-Tier") != "large" || !strings.HasPrefix(h.Get("X-Routed-To"), "large-") ||
				h.Get("X-Request-Id") != "req-of-mine" || answer.Model != "demo-large-70b" {
				t.Errorf("the headers are %v and the model is %s", h, answer.Model)
			}
		}},
	}
}

func goResponses() []sdkCase {
	input := func(model string) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: model,
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(hello)}}
	}
	return []sdkCase{
		{"responses, kept and deleted", func(t *testing.T, ctx context.Context, c openai.Client) {
			made := must[*responses.Response](t)(c.Responses.New(ctx, input("small")))
			got := must[*responses.Response](t)(c.Responses.Get(ctx, made.ID, responses.ResponseGetParams{}))
			if made.OutputText() == "" || got.OutputText() != made.OutputText() {
				t.Errorf("made %q and got %q", made.OutputText(), got.OutputText())
			}
			if err := c.Responses.Delete(ctx, made.ID); err != nil {
				t.Fatal(err)
			}
			_, err := c.Responses.Get(ctx, made.ID, responses.ResponseGetParams{})
			checkAPIError(t, err, http.StatusNotFound, "response_not_found")
		}},
		{"responses stream", func(t *testing.T, ctx context.Context, c openai.Client) {
			events := must[[]responses.ResponseStreamEventUnion](t)(collect(c.Responses.NewStreaming(ctx, input("small"))))
			if end := last(t, events, 2).Type; events[0].Type != "response.created" || end != "response.completed" {
				t.Errorf("the stream begins with %s and ends with %s", events[0].Type, end)
			}
		}},
	}
}

func goOthers() []sdkCase {
	return []sdkCase{
		{"embeddings", func(t *testing.T, ctx context.Context, c openai.Client) {
			params := openai.EmbeddingNewParams{Model: "text-embedding-3-small"}
			params.Input.OfArrayOfStrings = []string{"a sentence", "another"}
			sum := 0.0
			for _, v := range last(t, must[*openai.CreateEmbeddingResponse](t)(c.Embeddings.New(ctx, params)).Data,
				2).Embedding {
				sum += v * v
			}
			if math.Abs(sum-1) > 1e-4 {
				t.Errorf("the square of a vector's length is %v, want 1", sum)
			}
		}},
		{"models", func(t *testing.T, ctx context.Context, c openai.Client) {
			var names []string
			for page := c.Models.ListAutoPaging(ctx); page.Next(); {
				names = append(names, page.Current().ID)
			}
			if !slices.Contains(names, "auto") || !slices.Contains(names, "demo-small-7b") {
				t.Errorf("the models are %v", names)
			}
			must[*openai.Model](t)(c.Models.Get(ctx, "demo-small-7b"))
		}},
		{"moderations", func(t *testing.T, ctx context.Context, c openai.Client) {
			params := openai.ModerationNewParams{Model: "small",
				Input: openai.ModerationNewParamsInputUnion{OfString: openai.String("I am kind")}}
			if n := len(must[*openai.ModerationNewResponse](t)(c.Moderations.New(ctx, params)).Results); n != 1 {
				t.Errorf("%d results", n)
			}
		}},
		{"transcription", func(t *testing.T, ctx context.Context, c openai.Client) {
			answer := must[*openai.AudioTranscriptionNewResponseUnion](t)(c.Audio.Transcriptions.New(ctx,
				openai.AudioTranscriptionNewParams{
					Model: "small", File: openai.File(strings.NewReader(strings.Repeat("x", 2004)), "speech.wav", "audio/wav")}))
			if !strings.Contains(answer.Text, "speech.wav holds 2004 bytes") {
				t.Errorf("heard %q", answer.Text)
			}
		}},
		{"speech", func(t *testing.T, ctx context.Context, c openai.Client) {
			voice := openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("alloy")}
			resp := must[*http.Response](t)(c.Audio.Speech.New(ctx,
				openai.AudioSpeechNewParams{Model: "small", Voice: voice, Input: hello}))
			defer resp.Body.Close()
			if b := must[[]byte](t)(io.ReadAll(resp.Body)); len(b) < 512 || resp.Header.Get("Content-Type") != "audio/mpeg" {
				t.Errorf("%d bytes of %s", len(b), resp.Header.Get("Content-Type"))
			}
		}},
		{"images", func(t *testing.T, ctx context.Context, c openai.Client) {
			answer := must[*openai.ImagesResponse](t)(c.Images.Generate(ctx, openai.ImageGenerateParams{
				Model: "small", Prompt: "A small red square", Background: openai.ImageGenerateParamsBackgroundTransparent}))
			if last(t, answer.Data, 1).B64JSON == "" {
				t.Error("no picture")
			}
		}},
	}
}

func goErrors() []sdkCase {
	return []sdkCase{
		{"a wrong key", func(t *testing.T, ctx context.Context, c openai.Client) {
			_, err := c.Models.List(ctx, option.WithAPIKey("tw-wrong"))
			checkAPIError(t, err, http.StatusUnauthorized, "invalid_api_key")
		}},
		{"an unknown model", func(t *testing.T, ctx context.Context, c openai.Client) {
			_, err := c.Chat.Completions.New(ctx, chatOf("nobody-serves-this", hello))
			if e := checkAPIError(t, err, http.StatusNotFound, "model_not_found"); e.Param != "model" ||
				e.Response.Header.Get("X-Request-Id") == "" {
				t.Errorf("the error's param is %q, its headers are %v", e.Param, e.Response.Header)
			}
			_, err = collect(c.Chat.Completions.NewStreaming(ctx, chatOf("nobody-serves-this", hello)))
			checkAPIError(t, err, http.StatusNotFound, "model_not_found")
		}},
		{"a bad value", func(t *testing.T, ctx context.Context, c openai.Client) {
			_, err := c.Chat.Completions.New(ctx, chatOf("small", hello), option.WithJSONSet("max_tokens", "many"))
			if e := checkAPIError(t, err, http.StatusBadRequest, "invalid_value"); e.Param != "max_tokens" {
				t.Errorf("the error's param is %q", e.Param)
			}
		}},
	}
}
