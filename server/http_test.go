package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keyedYAML has two tenants. The tenant few has only the tier small and the class background.
const keyedYAML = `
auth:
  keys:
    - { name: all, sha256: 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683 } # key
    - { name: few, sha256: 180ca01b95f0dfdd36fbb600e51cf6e46c8ef468de56b017847886fefaf7b6f9, tiers: [small], models: [small, fake-7b, auto], priority: background } # little
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
  - { name: large, model: big, workers: [ { name: big, url: "http://127.0.0.1:1" } ] }
pools:
  - { name: other, paths: ["/v9/*", "/v9/deep/*", "/exact"], workers: [ { name: elsewhere, url: "http://127.0.0.1:2" } ] }
models: { "gpt-4*": large }
cors: { origins: ["https://app.example"], max_age: 10m }
max_body_bytes: 4096
`

const (
	allKey  = "Bearer key"
	fewKey  = "Bearer little"
	hello   = `{"model":"small","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`
	helloTo = `","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`
)

// errorOf parses an error body of either dialect and rejects unknown fields.
func errorOf(t *testing.T, a httpAnswer) (kind, code, message string) {
	t.Helper()
	var b struct {
		Type      string  `json:"type"`
		RequestID *string `json:"request_id"`
		Error     struct {
			Type    string  `json:"type"`
			Code    *string `json:"code"`
			Param   *string `json:"param"`
			Message string  `json:"message"`
		} `json:"error"`
	}
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		t.Fatalf("%d %q is no error body: %v", a.status, a.body, err)
	}
	if got := a.header.Get("Content-Type"); got != "application/json; charset=utf-8" {
		t.Errorf("an error of type %q", got)
	}
	if b.Error.Code != nil {
		code = *b.Error.Code
	}
	return b.Type + b.Error.Type, code, b.Error.Message
}

func TestEveryErrorHasTheFormOfItsDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, keyedYAML, fakeEngine())
		for _, c := range []struct {
			name, method, path, body string
			headers                  []string
			status                   int
			code                     string
		}{
			{"no key", "POST", "/v1/chat/completions", hello, []string{"Authorization", ""}, 401, "invalid_api_key"},
			{"another scheme", "POST", "/v1/chat/completions", hello, []string{"Authorization", "Basic key"}, 401,
				"invalid_api_key"},
			{"an unknown key", "POST", "/v1/chat/completions", hello, []string{"Authorization", "Bearer unknown"}, 401,
				"invalid_api_key"},
			{"a key in the query", "POST", "/v1/chat/completions?api_key=key", hello, []string{"Authorization", ""}, 401,
				"invalid_api_key"},
			{"no such model", "POST", "/v1/chat/completions", `{"model":"unknown` + helloTo, nil, 404, "model_not_found"},
			{"another tenant's model", "POST", "/v1/chat/completions", `{"model":"big` + helloTo,
				[]string{"Authorization", fewKey}, 404, "model_not_found"},
			{"a dialect that the tier lacks", "POST", "/v1/images/generations", `{"model":"small","prompt":"x"}`, nil, 404,
				"endpoint_not_supported"},
			{"an unknown path", "POST", "/v1/nothing", hello, nil, 404, "unknown_url"},
			{"a slash at the end", "POST", "/v1/chat/completions/", hello, nil, 404, "unknown_url"},
			{"dots in a passed path", "POST", "/v9/../v1/x", hello, nil, 404, "unknown_url"},
			{"another method", "GET", "/v1/chat/completions", "", nil, 405, "method_not_allowed"},
			{"a body too large", "POST", "/v1/chat/completions", `{"model":"small","x":"` + strings.Repeat("x", 5000) + `"}`, nil,
				413, "request_too_large"},
			{"two models", "POST", "/v1/chat/completions", `{"model":"small","Model":"big` + helloTo, nil, 400, "ambiguous_json"},
			{"two values", "POST", "/v1/chat/completions", hello + "{}", nil, 400, "invalid_json"},
			{"deep JSON", "POST", "/v1/chat/completions", `{"x":` + strings.Repeat("[", 100), nil, 400, "json_too_deep"},
			{"a wrong value", "POST", "/v1/chat/completions", `{"max_tokens":-2,"model":"small` + helloTo, nil, 400,
				"invalid_value"},
			{"no messages", "POST", "/v1/chat/completions", `{"model":"small"}`, nil, 400, "missing_field"},
			{"another type of body", "POST", "/v1/chat/completions", hello, []string{"Content-Type", "text/plain"}, 415,
				"unsupported_media_type"},
			{"an unknown encoding", "POST", "/v1/chat/completions", hello, []string{"Content-Encoding", "br"}, 415,
				"unsupported_encoding"},
			{"a WebSocket", "GET", "/v1/responses", "", []string{"Upgrade", "websocket"}, 426, "websocket_not_supported"},
			{"a WebSocket of an alias", "GET", "/responses", "", []string{"Upgrade", "websocket"}, 426,
				"websocket_not_supported"},
			{"a WebSocket of no route", "GET", "/v1/realtime?model=small", "", []string{"Upgrade", "websocket"}, 426,
				"websocket_not_supported"},
			{"a WebSocket of chats", "GET", "/v1/chat/completions", "", []string{"Upgrade", "websocket"}, 426,
				"websocket_not_supported"},
			{"a WebSocket with POST", "POST", "/v1/responses", "", []string{"Upgrade", "websocket"}, 426,
				"websocket_not_supported"},
			{"an unknown response", "GET", "/v1/responses/resp_1", "", nil, 404, "response_not_found"},
		} {
			t.Logf("case %v", c.name)
			headers := append([]string{"Authorization", allKey}, c.headers...)
			a := r.do(c.method, c.path, c.body, headers...)
			kind, code, message := errorOf(t, a)
			if a.status != c.status || code != c.code || kind == "" || message == "" {
				t.Errorf("%d %s", a.status, a.body)
			}
			if (a.status == 401) != (a.header.Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("WWW-Authenticate %q with %d", a.header.Get("WWW-Authenticate"), a.status)
			}
			if c.status == 405 && a.header.Get("Allow") != "POST" {
				t.Errorf("Allow %q", a.header.Get("Allow"))
			}
			if a.header.Get("X-Request-Id") == "" {
				t.Error("no request id")
			}

			path := strings.Replace(c.path, "chat/completions", "messages", 1)
			if path == c.path {
				continue
			}
			t.Logf("case %v in the Anthropic shape", c.name)
			a = r.do(c.method, path, c.body, append([]string{"Authorization", allKey}, c.headers...)...)
			if kind, _, _ := errorOf(t, a); a.status != c.status || !strings.HasPrefix(kind, "error") {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	})
}

func TestATenantSeesAndReachesOnlyItsModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, keyedYAML, fakeEngine())
		list := func(key string) (ids []string) {
			var b struct{ Data []struct{ ID string } }
			if err := json.Unmarshal([]byte(r.do("GET", "/v1/models", "", "Authorization", key).body), &b); err != nil {
				t.Fatal(err)
			}
			for _, m := range b.Data {
				ids = append(ids, m.ID)
			}
			return ids
		}
		if got := strings.Join(list(allKey), " "); got != "auto big fake-7b large small" {
			t.Errorf("all: %s", got)
		}
		if got := strings.Join(list(fewKey), " "); got != "auto fake-7b small" {
			t.Errorf("few: %s", got)
		}
		for id, want := range map[string]int{"small": 200, "gpt-4-turbo": 200, "unknown": 404} {
			if a := r.do("GET", "/v1/models/"+id, "", "Authorization", allKey); a.status != want {
				t.Errorf("/v1/models/%s: %d %s", id, a.status, a.body)
			}
		}
		if a := r.do("GET", "/v1/models/gpt-4-turbo", "", "Authorization", fewKey); a.status != 404 {
			t.Errorf("another tenant's model: %d %s", a.status, a.body)
		}
		a := r.post("/v1/chat/completions", hello, "Authorization", fewKey, "X-Model-Tier", "large")
		if a.status != 200 || a.header.Get("X-Model-Tier") != "small" ||
			!strings.Contains(a.header.Get("X-Tier-Reason"), "clamped") {
			t.Errorf("a header above the tenant: %d %s %s", a.status, a.header.Get("X-Model-Tier"),
				a.header.Get("X-Tier-Reason"))
		}
	})
}

func TestAKeptAliveConnectionHasNoDeadlineOfItsLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(keyedYAML, "cors:", "timeouts: { client_stall: 20ms }\ncors:", 1), fakeEngine())
		client := &http.Client{Transport: &http.Transport{DialContext: r.net.Dial, MaxConnsPerHost: 1}}
		defer client.CloseIdleConnections()
		send := func(method, path, body string) (status int, reused bool) {
			ctx := httptrace.WithClientTrace(t.Context(),
				&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
			req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", allKey)
			req.Header.Set("Origin", "https://app.example")
			req.Header.Set("Access-Control-Request-Method", "POST")
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			return resp.StatusCode, reused
		}
		for _, next := range []string{"GET /livez", "GET /readyz", "OPTIONS /v1/chat/completions", "GET /v1/models"} {
			if status, _ := send("POST", "/v1/chat/completions", hello); status != 200 {
				t.Fatalf("the chat: %d", status)
			}
			// The deadline of the last answer must pass.
			<-time.After(60 * time.Millisecond)
			method, path, _ := strings.Cut(next, " ")
			if status, reused := send(method, path, ""); status >= 300 || !reused {
				t.Errorf("%s: %d, on the same connection: %v", next, status, reused)
			}
		}
	})
}

func TestPingsAreNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunk = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n"
		engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			// a test's own worker
			io.WriteString(w, "event: ping\ndata: {}\n\n"+chunk+"event: ping\ndata: {}\n\ndata: [DONE]\n\n")
		})
		a := newRig(t, plain, engine).post("/v1/chat/completions",
			`{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if a.body != chunk+"data: [DONE]\n\n" {
			t.Errorf("%q", a.body)
		}
	})
}

func TestLlamaCppUsageComesFromItsTimings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent sharedText
		engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			sent.set(string(b))
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`+"\n\n"+ // a test's own worker
				`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":2,"prompt_n":3,"predicted_n":1}}`+"\n\ndata: [DONE]\n\n")
		})
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: llamacpp", 1), engine)
		a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if strings.Contains(sent.get(), "stream_options") || !strings.Contains(a.body, `"timings"`) ||
			!strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("sent %s, got %s", sent.get(), a.body)
		}
		if line := r.accessLog(); !strings.Contains(line, `"prompt_tokens":5,"cached_tokens":2,"output_tokens":1`) {
			t.Errorf("the access log has %s", line)
		}
	})
}
