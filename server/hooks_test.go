package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
)

// hookedRequests are a request of each route with a JSON body, by its path.
func hookedRequests() map[string]string {
	return map[string]string{
		"/v1/chat/completions":       `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/completions":            `{"model":"small","prompt":"Hi"}`,
		"/v1/responses":              `{"model":"small","input":"Hi"}`,
		"/v1/responses/input_tokens": `{"model":"small","input":"Hi"}`,
		"/v1/messages":               `{"model":"small","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/messages/count_tokens":  `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/embeddings":             `{"model":"small","input":"Hi"}`,
		"/v1/rerank":                 `{"model":"small","query":"Hi","documents":["a"]}`,
		"/v2/rerank":                 `{"model":"small","query":"Hi","documents":["a"]}`,
		"/v1/score":                  `{"model":"small","text_1":"Hi","text_2":"a"}`,
		"/pooling":                   `{"model":"small","input":"Hi"}`,
		"/classify":                  `{"model":"small","input":"Hi"}`,
		"/tokenize":                  `{"model":"small","prompt":"Hi"}`,
		"/detokenize":                `{"model":"small","tokens":[1]}`,
		"/v1/moderations":            `{"model":"small","input":"Hi"}`,
		"/v1/audio/speech":           `{"model":"small","input":"Hi","voice":"a"}`,
		"/v1/images/generations":     `{"model":"small","prompt":"Hi"}`,
		"/openai/deployments/small/chat/completions?api-version=1": `{"messages":[{"role":"user","content":"Hi"}]}`,
		"/batch/v1/chat/completions":                               `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/chat%2fcompletions":                                   `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/v1/messages":                                          `{"model":"small","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`,
		"/chat/completions":                                        `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
	}
}

// hookedForm returns the path and the body that a hook receives for one of hookedRequests: every spelling of a path is
// one path, and the body has the model.
func hookedForm(path, body string) (canonical, named string) {
	canonical, _, _ = strings.Cut(path, "?")
	if !strings.Contains(body, `"model"`) {
		body = strings.Replace(body, "{", `{"model":"small",`, 1)
	}
	switch {
	case strings.Contains(path, "completions") && path != "/v1/completions":
		return "/v1/chat/completions", body
	case path == "/v1/v1/messages":
		return "/v1/messages", body
	case path == "/v2/rerank":
		return "/v1/rerank", body
	}
	return canonical, body
}

// H1: a hook sees every request with a JSON body, and can reject it in the shape of its dialect.
func TestH1EveryDialectPassesTheHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, nil)
		r, engine := newHookRig(t, plain, hook.line("guard", ", transform: true"))
		for path, body := range hookedRequests() {
			hook.answerWith(says(sayAllow))
			before := len(hook.calls())
			got := r.post(path, body, "X-Request-ID", "5b0e7d0e-6a0f-4c8e-9f25-aaaaaaaaaaaa", "Authorization",
				"Bearer client-key")
			calls, sent := hook.calls(), len(engine.Requests())
			wantPath, wantBody := hookedForm(path, body)
			if len(calls) != before+1 || calls[before] != wantBody || got.header.Get("X-Tierway-Hooks") != "guard" {
				t.Errorf("%s: %d calls, header %q, %d", path, len(calls)-before, got.header.Get("X-Tierway-Hooks"), got.status)
				continue
			}
			h := hook.headers[before]
			if h.Get("X-Request-Id") != "5b0e7d0e-6a0f-4c8e-9f25-aaaaaaaaaaaa" || h.Get("X-Tenant") != "anonymous" ||
				h.Get("X-Tierway-Path") != wantPath || h.Get("Authorization") != "" {
				t.Errorf("%s: the hook receives the headers %v", path, h)
			}
			if sent == 0 {
				t.Errorf("%s: the engine received nothing: %d %s", path, got.status, got.body)
			}
			hook.answerWith(says(sayReject))
			got = r.post(path, body)
			want := `{"error":{"message":"it names a patient","type":"permission_denied","param":null,"code":"rejected_by_hook"}}`
			if strings.Contains(path, "/messages") {
				want = `"error":{"type":"permission_error","message":"it names a patient"}`
			}
			if got.status != http.StatusForbidden || !strings.Contains(got.body, want) || got.header.Get("Retry-After") != "" ||
				got.header.Get("X-Should-Retry") != "" || got.header.Get("X-Tierway-Hooks") != "guard:rejected" {
				t.Errorf("%s rejected: %d %s %v", path, got.status, got.body, got.header)
			}
			if n := len(engine.Requests()); n != sent {
				t.Errorf("%s: the engine received a rejected request", path)
			}
			changed := strings.Replace(strings.Replace(wantBody, `"Hi"`, `"Changed"`, 1), "[1]", "[77]", 1)
			hook.answerWith(says(transformTo(changed)))
			got = r.post(path, body)
			all := engine.Requests()
			if last := string(all[len(all)-1].Body); got.header.Get("X-Tierway-Hooks") != "guard:transformed" ||
				!strings.Contains(last, "Changed") && !strings.Contains(last, "77") {
				t.Errorf("%s transformed: %d %v, the engine received %s", path, got.status, got.header, last)
			}
		}
	})
}

// H1: hooks run in their order, each on the body of the earlier ones. A rejection ends the chain.
func TestH1AChainOfThreeRunsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := newHookService(t, says(transformTo(chatBody("small", "one", "")))),
			newHookService(t, says(transformTo(chatBody("small", "two", `,"max_tokens":7`)))), newHookService(t, says(sayAllow))
		r, engine := newHookRig(t, plain, first.line("a", ", transform: true"), second.line("b", ", transform: true"),
			third.line("c", ", on_reject: block400"))
		if got := r.post("/v1/chat/completions", chatBody("small", "zero", "")); got.status != 200 ||
			got.header.Get("X-Tierway-Hooks") != "a:transformed, b:transformed, c" {
			t.Fatalf("%d %v %s", got.status, got.header, got.body)
		}
		for i, s := range []*hookService{first, second, third} {
			if text := []string{"zero", "one", "two"}[i]; !strings.Contains(s.calls()[0], text) {
				t.Errorf("hook %d received %s", i, s.calls()[0])
			}
		}
		if text := sentField(t, engine, "messages"); !strings.Contains(text, "two") || sentField(t, engine,
			"max_tokens") != "7" {
			t.Errorf("the engine received %s", text)
		}
		d := r.last()
		if d.MaxTokens != 7 || len(d.Hooks) != 3 || d.Hooks[1].Result != "transformed" || d.Hooks[2].Result != "allowed" {
			t.Errorf("the record is %+v", d)
		}
		third.answerWith(says(sayReject))
		if got := r.post("/v1/chat/completions", chatBody("small", "zero", "")); got.status != 400 ||
			!strings.Contains(got.body, `"type":"invalid_request_error","param":null,"code":"rejected_by_hook"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		if got := r.post("/v1/messages", strings.Replace(chatBody("small", "zero", ""), "{", `{"max_tokens":7,`, 1)); got.status != 400 ||
			!strings.Contains(got.body, `"type":"invalid_request_error"`) {
			t.Errorf("messages: %d %s", got.status, got.body)
		}
		second.answerWith(says(sayReject))
		n := len(third.calls())
		if got := r.post("/v1/chat/completions", chatBody("small", "zero", "")); got.status != 403 ||
			len(third.calls()) != n ||
			got.header.Get("X-Tierway-Hooks") != "a:transformed, b:rejected" {
			t.Errorf("%d %v", got.status, got.header)
		}
		if d := r.last(); d.Code != "rejected_by_hook" || d.Result != decisions.Refused ||
			strings.Contains(r.accessLog(), "patient") {
			t.Errorf("the record is %+v", d)
		}
		if line := r.accessLog(); !strings.Contains(line, `"hooks":"a:transformed, b:rejected","hooks_ms":`) {
			t.Errorf("the access log has no hooks: %s", line)
		}
	})
}

// H1: a hook with on_reject: pass only records the rejection; a shadow changes nothing at all.
func TestH1PassedRejectionsAndShadowsHaveNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes, shadow := newHookService(t, says(sayReject)), newHookService(t, says(transformTo(`{"model":"gone"}`)))
		r, engine := newHookRig(t, plain, passes.line("passes", ", on_reject: pass"), shadow.line("shadow",
			", shadow: true, transform: true"))
		for _, c := range []struct{ answer, result string }{
			{transformTo(`{"model":"gone"}`), "transformed"}, {sayReject, "rejected"}, {"no JSON", "error"},
		} {
			shadow.answerWith(says(c.answer))
			got := r.post("/v1/chat/completions", chatBody("small", "zero", ""))
			if got.status != 200 || got.header.Get("X-Tierway-Hooks") != "passes:rejected, shadow:shadow" {
				t.Errorf("%s: %d %v", c.result, got.status, got.header)
			}
			if h := r.last().Hooks[1]; h.Result != c.result || !h.Shadow {
				t.Errorf("%s: the record is %+v", c.result, h)
			}
			if text := sentField(t, engine, "messages"); !strings.Contains(text, "zero") {
				t.Errorf("%s: the engine received %s", c.result, text)
			}
		}
	})
}

// H2: a hook that fails costs a request at most its timeout; on_error decides what follows.
func TestH2AFailingHookBlocksOrPasses(t *testing.T) {
	failures := map[string]struct {
		answer http.HandlerFunc
		result string
		took   time.Duration
	}{
		"slow": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout", 200 * time.Millisecond},
		"slow body": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"action":`))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "timeout", 200 * time.Millisecond},
		"500":                  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "error", 0},
		"404":                  {http.NotFound, "error", 0},
		"redirect":             {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, "error", 0},
		"no content":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "error", 0},
		"bad JSON":             {says(`{"action":"allow"`), "error", 0},
		"two values":           {says(sayAllow + sayAllow), "error", 0},
		"an array":             {says(`["allow"]`), "error", 0},
		"unknown action":       {says(`{"action":"permit"}`), "error", 0},
		"no action":            {says(`{}`), "error", 0},
		"an action twice":      {says(`{"action":"reject","action":"allow"}`), "error", 0},
		"an action, two cases": {says(`{"action":"allow","Action":"reject"}`), "error", 0},
		"a body twice": {says(`{"action":"transform","body":{"model":"small"},"b\u006fdy":` + chatBody("small", "text", "") + `}`),
			"error", 0},
		"allow with a body": {says(`{"action":"allow","body":` + chatBody("small", "[name]", "") + `}`), "error", 0},
		"nested deeply": {says(`{"x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `,"action":"allow"}`), "error",
			0},
		"no body":     {says(`{"action":"transform"}`), "error", 0},
		"a null body": {says(transformTo("null")), "error", 0},
		"empty":       {says(""), "error", 0},
		"long": {func(w http.ResponseWriter, _ *http.Request) {
			for piece := strings.Repeat("a", 1<<20); ; { // 1 GB
				if _, err := w.Write([]byte(piece)); err != nil {
					return
				}
			}
		}, "error", 0},
		"cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "error", 0},
	}
	for name, c := range failures {
		synctest.Test(t, func(t *testing.T) {
			hook := newHookService(t, c.answer)
			r, engine := newHookRig(t, "max_body_bytes: 1MiB\n"+plain, hook.line("guard", ", transform: true"))
			began := time.Now()
			got := r.post("/v1/chat/completions", chatBody("small", "secret-text", ""))
			if took := time.Since(began); got.status != 503 || !strings.Contains(got.body, `"code":"hook_unavailable"`) ||
				got.header.Get("Retry-After") == "" || got.header.Get("X-Tierway-Hooks") != "guard:"+c.result || took != c.took {
				t.Errorf("%s, block: %d %s %v after %v", name, got.status, got.body, got.header, took)
			}
			if n := len(engine.Requests()); n != 0 {
				t.Errorf("%s, block: the engine received %d requests", name, n)
			}
			if d := r.last(); d.Hooks[0].Error == "" || d.Hooks[0].Result != c.result || d.Result != decisions.Failed {
				t.Errorf("%s: the record is %+v", name, d)
			}
			if text := r.accessLog() + r.logs.String(); strings.Contains(text, "secret-text") {
				t.Errorf("%s: a log has the prompt: %s", name, text)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			hook := newHookService(t, c.answer)
			r, engine := newHookRig(t, "max_body_bytes: 1MiB\n"+plain, hook.line("guard", ", transform: true, on_error: pass"))
			began := time.Now()
			got := r.post("/v1/chat/completions", chatBody("small", "text", ""))
			if took := time.Since(began); got.status != 200 || took != c.took || len(engine.Requests()) != 1 ||
				got.header.Get("X-Tierway-Hooks") != "guard:"+c.result {
				t.Errorf("%s, pass: %d %s %v after %v", name, got.status, got.body, got.header, took)
			}
			if d := r.last(); d.OverheadMs > 100 {
				t.Errorf("%s: the time of the hook counts as the gateway's own: %v ms", name, d.OverheadMs)
			}
		})
	}
}

// H2: after five failures in a row a hook is not called for five seconds, and then one call tries it.
func TestH2ABreakerSparesAFailingHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		r, _ := newHookRig(t, withAdmins(plain), hook.line("guard", ""))
		for range 8 {
			r.post("/v1/chat/completions", chatBody("small", "text", ""))
		}
		began := time.Now()
		got := r.post("/v1/chat/completions", chatBody("small", "text", ""))
		if n := len(hook.calls()); n != 5 || got.status != 503 || got.header.Get("X-Tierway-Hooks") != "guard:open" ||
			time.Since(began) != 0 {
			t.Errorf("%d calls, %d %v after %v", n, got.status, got.header, time.Since(began))
		}
		if !strings.Contains(r.logs.String(), "a hook's breaker is open") {
			t.Errorf("the log does not tell: %s", r.logs.String())
		}
		if states := r.hookStates(); len(states) != 1 || states[0].Breaker != "open" || states[0].OpenUntil == nil {
			t.Errorf("the hooks are %+v", states)
		}
		item := attentionOn(adminRigOf(r).overview(), "hook guard")
		want := "no answer within 200ms. Until its service answers, requests are rejected with 503 hook_unavailable."
		if !strings.HasPrefix(item, "Its breaker is open until 20") || !strings.Contains(item, want) {
			t.Errorf("the item is %s", item)
		}
		hook.answerWith(says(sayAllow))
		time.Sleep(6 * time.Second)
		if got := r.post("/v1/chat/completions", chatBody("small", "text", "")); got.status != 200 {
			t.Errorf("after five seconds: %d %s", got.status, got.body)
		}
	})
}

// H2: all hooks of a request together take at most hooks_timeout, and at most 64 calls of a hook are in flight.
func TestH2TheTimeAndTheCallsOfHooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(w http.ResponseWriter, r *http.Request) { time.Sleep(900 * time.Millisecond); says(sayAllow)(w, r) }
		a, b, c := newHookService(t, slow), newHookService(t, slow), newHookService(t, says(sayAllow))
		r, _ := newHookRig(t, plain, a.line("a", ", timeout: 1s"), b.line("b", ", timeout: 1s, on_error: pass"),
			c.line("c", ", on_error: pass"))
		began := time.Now()
		if got := r.post("/v1/chat/completions", chatBody("small", "text", "")); got.status != 200 ||
			got.header.Get("X-Tierway-Hooks") != "a, b:timeout, c:timeout" ||
			time.Since(began) != time.Second || len(c.calls()) != 0 {
			t.Errorf("%d %v after %v", got.status, got.header, time.Since(began))
		}
		results := make(chan string)
		for range 70 {
			go func() {
				got := r.post("/v1/chat/completions", chatBody("small", "text", ""))
				first, _, _ := strings.Cut(got.header.Get("X-Tierway-Hooks"), ",")
				results <- fmt.Sprint(got.status, " ", first)
			}()
		}
		count := map[string]int{}
		for range 70 {
			count[<-results]++
		}
		if count["200 a"] != 64 || count["503 a:busy"] != 6 {
			t.Errorf("the results are %v", count)
		}
	})
}

// No header and no path of a client makes a call fail, and no client can open the breaker with them.
func TestH2NoClientCanMakeCallsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, grpc := newHookService(t, says(sayAllow)), newProcessor(t)
		r, engine := newHookRig(t, plain, web.line("web", ""), strings.Replace(grpc.line(""), "guard", "grpc", 1))
		body := `{"messages":[{"role":"user","content":"Hi"}]}`
		for i := range 8 {
			r.post("/openai/deployments/small%0A%0D%00%FF/chat/completions", body)
			r.post("/v1/chat/completions", `{"model":"\ud800\u0000x","messages":[]}`)
			got := r.post("/openai/deployments/small/chat/completions", body, "Traceparent", "\xff\xfe", "Tracestate", "é=1",
				"X-Session-ID", "\xff", "User-Agent", "\xff")
			if got.status != 200 || got.header.Get("X-Tierway-Hooks") != "web, grpc" || len(engine.Requests()) != i+1 {
				t.Fatalf("%d %v %s", got.status, got.header, got.body)
			}
			if h := web.headers[len(web.headers)-1]; h.Get("Traceparent") != "" || h.Get("Tracestate") != "" {
				t.Errorf("the hook receives %v", h)
			}
		}
	})
}

// A client that leaves ends the call of a hook. The rig checks that nothing of the request is left.
func TestH2ALeavingClientEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		hook := newHookService(t, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(ended)
		})
		r, engine := newHookRig(t, "hooks_timeout: 60s\n"+plain, hook.line("guard", ", timeout: 60s"))
		began := time.Now()
		r.leaveAfter(100*time.Millisecond, "/v1/chat/completions", chatBody("small", "text", ""))
		<-ended
		synctest.Wait()
		if took := time.Since(began); took > time.Second || len(engine.Requests()) != 0 {
			t.Errorf("the call ended after %v", took)
		}
		if d := r.last(); d.Result != decisions.ClientGone || d.Hooks[0].Result != "cancelled" {
			t.Errorf("the record is %+v", d)
		}
	})
}
