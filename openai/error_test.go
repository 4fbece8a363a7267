package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"pgregory.net/rapid"
)

// strictOpenAI is the error body that OpenAI's specification requires.
type strictOpenAI struct {
	Error *struct {
		Message *string `json:"message"`
		Type    *string `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

// strictAnthropic is the error body of the Messages API.
type strictAnthropic struct {
	Type  string `json:"type"`
	Error *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID *string `json:"request_id"`
}

// decodeStrictly decodes b into v. Unknown members and text after the value fail the test.
func decodeStrictly(t interface{ Fatalf(string, ...any) }, b []byte, v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("%s: text after the body", b)
	}
}

func TestErrorTableIsComplete(t *testing.T) {
	openAI := map[string]bool{"invalid_request_error": true, "permission_denied": true, "timeout_error": true,
		"requests": true, "insufficient_quota": true, "server_error": true}
	// https://docs.claude.com/en/api/errors
	anthropic := map[string]bool{"invalid_request_error": true, "authentication_error": true, "permission_error": true,
		"not_found_error": true, "request_too_large": true, "rate_limit_error": true, "api_error": true,
		"timeout_error": true, "overloaded_error": true}
	seen := map[Code]bool{}
	for _, r := range table {
		if seen[r.Code] {
			t.Errorf("%s has two rows", r.Code)
		}
		seen[r.Code] = true
		if r.Status < 400 || r.Status > 599 || http.StatusText(r.Status) == "" {
			t.Errorf("%s has status %d", r.Code, r.Status)
		}
		if !openAI[r.Type] || !anthropic[r.Anthropic] {
			t.Errorf("%s has types %q and %q", r.Code, r.Type, r.Anthropic)
		}
		if !strings.HasSuffix(r.Meaning, ".") || !strings.HasSuffix(r.Remedy, ".") {
			t.Errorf("%s has no meaning or remedy in sentences", r.Code)
		}
		if r.Retry == RetryAfter && !sdksRetry(r) {
			t.Errorf("%s has RetryAfter, but SDKs do not retry its status", r.Code)
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d codes in the table", len(seen))
	}
}

func TestErrorBodies(t *testing.T) {
	tests := []struct {
		name              string
		err               Error
		openAI, anthropic string
	}{
		{"all fields", Error{Code: CodeInvalidValue, Message: `"<b>" & \ é` + "\n", Param: "messages[0].role",
			Cause: errors.New("secret")},
			`{"error":{"message":"\"<b>\" & \\ é\n","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"\"<b>\" & \\ é\n"},"request_id":"req_1"}`},
		{"defaults of the table", Error{Code: CodeInvalidAPIKey},
			`{"error":{"message":"The API key is missing, malformed or unknown.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`,
			`{"type":"error","error":{"type":"authentication_error","message":"The API key is missing, malformed or unknown."},"request_id":"req_1"}`},
		{"own type", Error{Code: CodeRateLimitExceeded, Type: "tokens", Message: "m"},
			`{"error":{"message":"m","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			`{"type":"error","error":{"type":"rate_limit_error","message":"m"},"request_id":"req_1"}`},
		{"spent budget", Error{Code: CodeInsufficientQuota, Message: "m"},
			`{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
			`{"type":"error","error":{"type":"rate_limit_error","message":"m"},"request_id":"req_1"}`},
		{"disabled tenant", Error{Code: CodeTenantDisabled, Message: "m"},
			`{"error":{"message":"m","type":"permission_denied","param":null,"code":"tenant_disabled"}}`,
			`{"type":"error","error":{"type":"permission_error","message":"m"},"request_id":"req_1"}`},
		{"engine's code", Error{Code: "odd", Status: 404, Message: "m"},
			`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"odd"}}`,
			`{"type":"error","error":{"type":"not_found_error","message":"m"},"request_id":"req_1"}`},
		{"no code", Error{Message: "m"},
			`{"error":{"message":"m","type":"server_error","param":null,"code":null}}`,
			`{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"req_1"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			unescaped := strings.NewReplacer("\n", `\n`)
			if got, want := string(tt.err.Body(Chat, "req_1")), unescaped.Replace(tt.openAI); got != want {
				t.Errorf("OpenAI\ngot  %s\nwant %s", got, want)
			}
			if got, want := string(tt.err.Body(Messages, "req_1")), unescaped.Replace(tt.anthropic); got != want {
				t.Errorf("Anthropic\ngot  %s\nwant %s", got, want)
			}
		})
	}
	if got := string((&Error{Code: CodeOverloaded, Message: "m"}).Body(Messages, "")); !strings.HasSuffix(got,
		`"request_id":null}`) {
		t.Errorf("without a request id: %s", got)
	}
}

func TestEveryBodyAndFrameIsStrictlyDecodable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := table
		message := string(rapid.SliceOf(rapid.Byte()).Draw(t, "message"))
		e := Error{Code: rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")].Code, Message: message,
			Param: rapid.String().Draw(t, "param"), Cause: errors.New("private")}
		want := strings.ToValidUTF8(string([]rune(e.message())), "\uFFFD")

		var o strictOpenAI
		body := e.Body(Chat, "id")
		decodeStrictly(t, body, &o)
		if o.Error == nil || o.Error.Type == nil || o.Error.Message == nil || *o.Error.Message != want ||
			o.Error.Code == nil || *o.Error.Code != string(e.Code) {
			t.Fatalf("%s", body)
		}
		if (o.Error.Param == nil) != (e.Param == "") {
			t.Fatalf("param of %s", body)
		}
		var a strictAnthropic
		decodeStrictly(t, e.Body(Messages, "id"), &a)
		if a.Type != "error" || a.Error == nil || a.Error.Type == "" || a.Error.Message != want || *a.RequestID != "id" {
			t.Fatalf("%s", e.Body(Messages, "id"))
		}
		for _, d := range []Dialect{Other, Chat, Completions, Responses, Messages, Audio} {
			frame := e.Frame(d)
			if !utf8.Valid(frame) || bytes.Contains(frame, []byte("private")) {
				t.Fatalf("%s", frame)
			}
			r := NewEventReader(bytes.NewReader(frame), 0)
			ev, err := r.Next()
			if err != nil {
				t.Fatalf("%q has no event: %v", frame, err)
			}
			tr, length := NewTracker(d), len(ev.Raw)
			if m := tr.Observe(ev); !m.Has(MarkError) {
				t.Fatalf("%q is marked %q", frame, m.words())
			}
			if got, ok := ErrorOf(ev.Data); !ok || got.Message != want {
				t.Fatalf("%q is read as %+v", frame, got)
			}
			if d == Responses {
				failed, err := r.Next()
				if got, ok := ErrorOf(failed.Data); err != nil || string(failed.Name) != "response.failed" || !ok ||
					got.Message != want || got.Code != string(e.Code) {
					t.Fatalf("the last event of %q is read as %+v: %v", frame, got, err)
				}
				length += len(failed.Raw)
				tr.Observe(failed)
			}
			if length != len(frame) || tr.Proven() || tr.Finished() {
				t.Fatalf("%q has more events, or proves an end", frame)
			}
		}
	})
}

func TestFramesOfTheDialects(t *testing.T) {
	e := Error{Code: CodeWorkerError, Message: "cut"}
	const object = `{"message":"cut","type":"server_error","param":null,"code":"worker_error"}`
	for d, want := range map[Dialect]string{
		Other:       "data: {\"error\":" + object + "}\n\n",
		Chat:        "data: {\"error\":" + object + "}\n\n",
		Completions: "data: {\"error\":" + object + "}\n\n",
		Responses: "event: error\ndata: {\"type\":\"error\",\"code\":\"worker_error\",\"message\":\"cut\",\"param\":null," +
			"\"sequence_number\":0,\"error\":" + object + "}\n\n" +
			"event: response.failed\ndata: " +
			"{\"type\":\"response.failed\",\"sequence_number\":1,\"response\":{\"id\":\"\",\"object\":\"response\"," +
			"\"status\":\"failed\",\"error\":{\"code\":\"worker_error\",\"message\":\"cut\"},\"incomplete_details\":null,\"output\":[],\"usage\":null}}\n\n",
		Messages: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"cut\"}}\n\n",
	} {
		if got := string(e.Frame(d)); got != want {
			t.Errorf("%v\ngot  %s\nwant %s", d, got, want)
		}
	}
}

func TestFramesRaiseInOpenAIGo(t *testing.T) {
	for _, d := range []Dialect{Chat, Completions, Responses} {
		res := &http.Response{Header: http.Header{},
			Body: io.NopCloser(bytes.NewReader((&Error{Code: CodeWorkerError}).Frame(d)))}
		s := ssestream.NewStream[map[string]any](ssestream.NewDecoder(res), nil)
		if s.Next() {
			t.Errorf("%v: the SDK reads the frame as a chunk: %v", d, s.Current())
		}
		var raised *ssestream.StreamError
		if !errors.As(s.Err(), &raised) {
			t.Errorf("%v: the SDK's error is %v", d, s.Err())
		}
	}
}

func TestStatusAndRetry(t *testing.T) {
	tests := []struct {
		name   string
		err    Error
		status int
		never  bool
	}{
		{"table", Error{Code: CodeOverloaded}, 503, false},
		{"own status", Error{Code: CodeWorkerError, Status: 500}, 500, false},
		{"success status is ignored", Error{Code: CodeWorkerError, Status: 200}, 502, false},
		{"unknown code", Error{Code: "odd"}, 500, false},
		{"unknown code with a status", Error{Code: "odd", Status: 422}, 422, false},
		{"worker's 401", Error{Code: CodeWorkerAuthFailed}, 502, true},
		{"attempts of the gateway used up", Error{Code: CodeWorkerError, NoRetry: true}, 502, true},
		{"wait of a minute", Error{Code: CodeRateLimitExceeded, RetryAfter: time.Minute}, 429, false},
		{"disabled tenant", Error{Code: CodeTenantDisabled}, 403, true},
		{"spent budget", Error{Code: CodeInsufficientQuota}, 429, true},
		{"request larger than its limit", Error{Code: CodeRateLimitExceeded, Type: "tokens", NoRetry: true}, 429, true},
		{"database unavailable", Error{Code: CodeAuthBackendUnavailable, RetryAfter: time.Second}, 503, false},
		{"limits unavailable", Error{Code: CodeRatelimitUnavailable, RetryAfter: time.Second}, 503, false},
		{"wait longer than SDKs accept", Error{Code: CodeRateLimitExceeded, RetryAfter: time.Minute + 1}, 429, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.HTTPStatus(); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			if tt.err.NeverRetry() != tt.never {
				t.Errorf("NeverRetry %v", !tt.never)
			}
		})
	}
}

func TestUnknownCodeHasTheTypesOfItsStatus(t *testing.T) {
	for status, want := range map[int][2]string{
		400: {"invalid_request_error", "invalid_request_error"}, 401: {"invalid_request_error", "authentication_error"},
		403: {"permission_denied", "permission_error"}, 404: {"invalid_request_error", "not_found_error"},
		422: {"invalid_request_error", "invalid_request_error"}, 429: {"requests", "rate_limit_error"},
		500: {"server_error", "api_error"}, 503: {"server_error", "overloaded_error"}, 504: {"server_error", "timeout_error"},
		200: {"server_error", "api_error"},
	} {
		if r := rowOf("odd", status); r.Type != want[0] || r.Anthropic != want[1] {
			t.Errorf("%d: %q and %q, want %q", status, r.Type, r.Anthropic, want)
		}
	}
}

func TestErrorTextHasTheCauseButTheBodyHasNot(t *testing.T) {
	cause := errors.New("connection refused")
	e := &Error{Code: CodeWorkerError, Message: "worker a failed", Cause: cause}
	if got, want := e.Error(), "worker_error: worker a failed: connection refused"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(e, cause) {
		t.Error("the cause is not wrapped")
	}
	if bytes.Contains(e.Body(Chat, ""), []byte("refused")) {
		t.Error("the body contains the cause")
	}
}

func TestErrorOfReadsTheErrorsOfEveryEngine(t *testing.T) {
	tests := []struct {
		name, data string
		want       EngineError
	}{
		{"OpenAI", `{"error":{"message":"m","type":"invalid_request_error","param":"model","code":"model_not_found"}}`,
			EngineError{400, "invalid_request_error", "model_not_found", "m", "model"}},
		{"old vLLM", `{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`,
			EngineError{400, "BadRequestError", "", "m", ""}},
		{"vLLM", `{"error":{"message":"m","type":"NotFoundError","param":"model","code":404}}`,
			EngineError{404, "NotFoundError", "", "m", "model"}},
		{"vLLM's key check", `{"error":"Unauthorized"}`, EngineError{500, "", "", "Unauthorized", ""}},
		{"SGLang", `{"error":{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}}`,
			EngineError{400, "BadRequestError", "", "m", ""}},
		{"SGLang overloaded",
			`{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","param":null,"code":503}`,
			EngineError{503, "SERVICE_UNAVAILABLE", "", "The request queue is full.", ""}},
		{"llama.cpp",
			`{"error":{"code":400,"message":"m","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}`,
			EngineError{400, "exceed_context_size_error", "", "m", ""}},
		{"llama.cpp's error field", `{"code":500,"message":"m","type":"server_error"}`,
			EngineError{500, "server_error", "", "m", ""}},
		{"message with a success code", `{"code":200,"message":"m"}`, EngineError{}},
		{"Ollama", `{"error":{"message":"m","type":"api_error","param":null,"code":null}}`,
			EngineError{500, "api_error", "", "m", ""}},
		{"Ollama's own API", `{"error":"model 'x' not found"}`, EngineError{500, "", "", "model 'x' not found", ""}},
		{"Anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"r"}`,
			EngineError{503, "overloaded_error", "", "m", ""}},
		{"Responses", `{"type":"error","code":"rate_limit_exceeded","message":"m","param":null,"sequence_number":1}`,
			EngineError{429, "", "rate_limit_exceeded", "m", ""}},
		{"Responses failed",
			`{"type":"response.failed","response":{"id":"r","status":"failed","error":{"code":"server_error","message":"m"}}}`,
			EngineError{500, "", "server_error", "m", ""}},
		{"status as text", `{"error":{"code":"503","message":"m"}}`, EngineError{503, "", "", "m", ""}},
		{"status with text", `{"error":{"code":"429 Too Many Requests","message":"m"}}`, EngineError{429, "", "", "m", ""}},
		{"word that begins with digits", `{"error":{"code":"400x","message":"m"}}`, EngineError{500, "", "400x", "m", ""}},
		{"code around the error", `{"code":429,"error":{"message":"m","type":"x"}}`, EngineError{429, "x", "", "m", ""}},
		{"inner code wins", `{"error":{"code":404},"status":500,"message":"outer"}`, EngineError{404, "", "", "outer", ""}},
		{"success code is ignored", `{"error":{"code":200,"message":"m"}}`, EngineError{500, "", "", "m", ""}},
		{"escapes", `{"error":{"message":"a\u00e9\n\"b\"","type":"rate_limit_error"}}`,
			EngineError{429, "rate_limit_error", "", "aé\n\"b\"", ""}},
		{"FastAPI", `{"detail":"Not Found"}`, EngineError{500, "", "", "Not Found", ""}},
		{"FastAPI's checks", `{"detail":[{"loc":["body"],"msg":"m"}]}`,
			EngineError{422, "unprocessable_entity", "", `[{"loc":["body"],"msg":"m"}]`, ""}},
		{"Google", `[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]`,
			EngineError{429, "RESOURCE_EXHAUSTED", "", "m", ""}},
		{"Google without a code", `[{"error":{"message":"m","status":"UNAVAILABLE"}},{"error":{"message":"n"}}]`,
			EngineError{503, "UNAVAILABLE", "", "m", ""}},
		{"an array of errors", `{"success":false,"error":[{"code":2016,"message":"m"},{"message":"n"}]}`,
			EngineError{500, "", "", "m", ""}},
		{"an array of texts", `{"error":["m","n"]}`, EngineError{500, "", "", "m", ""}},
		{"errors", `{"errors":[{"code":"x","message":"m"}]}`, EngineError{500, "", "x", "m", ""}},
		{"Baidu", `{"error_code":336003,"error_msg":"m","id":"x"}`, EngineError{500, "", "", "m", ""}},
		{"no error of Baidu", `{"error_code":0,"error_msg":""}`, EngineError{}},
		{"TGI", `{"error":"Model is overloaded","error_type":"overloaded"}`,
			EngineError{503, "overloaded", "", "Model is overloaded", ""}},
		{"NestJS", `{"statusCode":400,"error":"Bad Request","message":"m"}`, EngineError{400, "", "", "Bad Request: m", ""}},
		{"a code beside its message", `{"error":"invalid_request","error_description":"m"}`,
			EngineError{400, "", "invalid_request", "m", ""}},
		{"a text in the message", `{"error":"Bad Request","message":"Bad Request: m"}`,
			EngineError{500, "", "", "Bad Request: m", ""}},
		{"FastAPI's object", `{"detail":{"error":{"message":"m","code":"c"}}}`, EngineError{500, "", "c", "m", ""}},
		{"FastAPI's flat object", `{"detail":{"message":"m","code":404}}`, EngineError{404, "", "", "m", ""}},
		{"a message alone", `{"message":"m"}`, EngineError{}},
		{"no errors", `{"errors":[],"data":[]}`, EngineError{}},
		{"an array of data", `[{"index":0,"score":1}]`, EngineError{}},
		{"an empty array", `[]`, EngineError{}},
		{"a flag", `{"error":true,"message":"m"}`, EngineError{500, "", "", "m", ""}},
		{"null", `{"error":null,"message":"m"}`, EngineError{}},
		{"a chunk", `{"object":"chat.completion.chunk","choices":[{"delta":{"content":"error"}}]}`, EngineError{}},
		{"cut", `{"error":{"message":"m"`, EngineError{}},
		{"no object", `"error"`, EngineError{}},
		{"errors in errors", strings.Repeat(`{"error":`, 1e5) + "1" + strings.Repeat("}", 1e5), EngineError{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := ErrorOf([]byte(tt.data))
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want != EngineError{}) {
				t.Errorf("ok %v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

func TestErrorTypesMapToStatuses(t *testing.T) {
	for word, want := range map[string]int{
		"invalid_request_error": 400, "BadRequestError": 400, "context_length_exceeded": 400, "authentication_error": 401,
		"PermissionDeniedError": 403, "permission_error": 403, "NotFoundError": 404, "request_too_large": 413,
		"UnprocessableEntityError": 422, "rate_limit_error": 429, "tokens": 429, "insufficient_quota": 429,
		"not_supported_error": 501, "unavailable_error": 503, "overloaded_error": 503, "timeout_error": 504,
		"server_error": 500, "InternalServerError": 500, "": 500, "error": 500,
	} {
		if got := statusOf(word); got != want {
			t.Errorf("%q maps to %d, want %d", word, got, want)
		}
	}
	if got := statusOf("odd", "model_not_found"); got != 404 {
		t.Errorf("a type without a status hides its code: %d", got)
	}
}
