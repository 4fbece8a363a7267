package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// keptPaths are requests for objects that engines keep, which a pool with the paths
// /v1/* and /openai/* would pass.
var keptPaths = []struct{ method, path string }{
	{"GET", "/v1/files"}, {"POST", "/v1/files"}, {"GET", "/v1/files/file-1/content"}, {"GET", "/v1/f%69les/file-1"},
	{"GET", "/v1/files%2Ffile-1"}, {"GET", "/v1/Files"}, {"GET", "/openai/v1/files"}, {"POST", "/v1/uploads"},
	{"POST", "/v1/batches"}, {"GET", "/v1/batches"}, {"POST", "/v1/batches/batch_1/cancel"},
	{"GET", "/v1/messages/batches"},
	{"POST", "/v1/conversations"}, {"GET", "/v1/conversations/conv_1/items"}, {"DELETE", "/v1/conversations/conv_1"},
	{"GET", "/v1/vector_stores"}, {"GET", "/v1/assistants"}, {"POST", "/v1/threads"}, {"GET", "/v1/fine_tuning/jobs"},
	{"GET", "/v1/videos/video_1/content"},
	{"GET", "/v1/responses"}, {"GET", "/v1/chat/completions"}, {"GET", "/v1/chat/completions/chatcmpl-1"},
	{"POST", "/v1/chat/completions/chatcmpl-1"},
}

// TestEnginesKeepObjectsForOneTenantOnly: where keys are required, an engine that
// serves several tenants is asked for none, because it does not tell them apart.
func TestEnginesKeepObjectsForOneTenantOnly(t *testing.T) {
	for _, c := range []struct {
		name     string
		required bool
		tenant   string
		want     map[string]int // by key
	}{
		{"a pool of all", true, "", map[string]int{allKey: 404, fewKey: 404, "": 401}},
		{"a pool of one", true, ", tenant: all", map[string]int{allKey: 200, fewKey: 404, "": 401}},
		{"a pool of all, without keys", false, "", map[string]int{allKey: 200, fewKey: 200, "": 200}},
		{"a pool of one, without keys", false, ", tenant: all", map[string]int{allKey: 200, fewKey: 404, "": 404}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rest := &shelf{name: "r"}
			r, _ := shelfRig(t, c.required,
				fmt.Sprintf(`pools: [ { name: rest, paths: ["/v1/*", "/openai/*"], workers: [ { name: r0, url: %q } ]%s } ]`,
					served(t, rest), c.tenant))
			for _, ask := range keptPaths {
				for key, want := range c.want {
					_, before := rest.last()
					a := r.do(ask.method, ask.path, "", "Authorization", key)
					if a.status == http.StatusMethodNotAllowed {
						a.status = http.StatusNotFound // the path has a route for another method
					}
					if _, n := rest.last(); a.status != want || (n > before) != (want == 200) {
						t.Errorf("%s %s with %q: %d, want %d; the engine got %d", ask.method, ask.path, key, a.status, want, n-before)
					}
				}
			}
			for _, ask := range []struct {
				method, path string
			}{{"GET", "/v1/version"}, {"POST", "/v1/pooling"}, {"GET", "/openai/v1/models"}} {
				want := 200
				if c.tenant != "" {
					want = c.want[fewKey]
				}
				if a := r.do(ask.method, ask.path, "", "Authorization", fewKey); a.status != want {
					t.Errorf("%s %s: %d, want %d", ask.method, ask.path, a.status, want)
				}
			}
		})
	}
}

// TestWhatIsKeptWithoutTenantsIsLogged: the operator reads why a path of the pool
// does not pass.
func TestWhatIsKeptWithoutTenantsIsLogged(t *testing.T) {
	r, _ := shelfRig(t, true,
		fmt.Sprintf(`pools: [ { name: rest, paths: ["/v1/*"], workers: [ { name: r0, url: %q } ] } ]`, served(t, &shelf{})))
	a := r.do("GET", "/v1/files", "", "Authorization", allKey)
	if _, code, _ := errorOf(t, a); code != "unknown_url" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if line := r.logged(); !strings.Contains(line, "engines keep files without tenants: set tenant of the pool rest") {
		t.Errorf("the line: %s", line)
	}
}

// TestAPoolOfOneTenantServesNoOther: by no name, path or list, and its tenant may
// continue what the gateway does not know.
func TestAPoolOfOneTenantServesNoOther(t *testing.T) {
	own := &shelf{name: "o"}
	r, shelves := shelfRig(t, true,
		fmt.Sprintf(
			`pools: [ { name: own, model: own-7b, serves: [chat, responses, embeddings], paths: ["/v9/*", "/openai/*"], tenant: all, workers: [ { name: o0, url: %q } ] } ]`, served(t, own)))
	responses := func(model, more string) string { return fmt.Sprintf(`{"model":%q,"input":"hi"%s}`, model, more) }
	for _, ask := range []struct{ method, path, body string }{
		{"POST", "/v1/responses", responses("own-7b", "")},
		{"POST", "/v1/embeddings", responses("own-7b", "")}, {"GET", "/v1/models/own-7b", ""}, {"GET", "/v9/x", ""},
		{"POST", "/v1/responses", responses("own-7b", `,"previous_response_id":"resp_x"`)},
		{"POST", "/v1/responses", responses("own-7b", `,"conversation":"conv_x"`)},
		{"POST", "/openai/v1/responses", responses("own-7b", `,"previous_response_id":"resp_x"`)},
		{"GET", "/openai/v1/responses/resp_x", ""}, {"GET", "/openai/v1/responses/resp_x/input_items", ""},
	} {
		_, before := own.last()
		if a := r.do(ask.method, ask.path, ask.body, "Authorization", fewKey); a.status != http.StatusNotFound {
			t.Errorf("another tenant's %s %s %s: %d %s", ask.method, ask.path, ask.body, a.status, a.body)
		}
		if _, n := own.last(); n != before {
			t.Errorf("the engine got another tenant's %s %s", ask.method, ask.path)
		}
		if a := r.do(ask.method, ask.path, ask.body, "Authorization", allKey); a.status != http.StatusOK {
			t.Errorf("its tenant's %s %s %s: %d %s", ask.method, ask.path, ask.body, a.status, a.body)
		}
	}
	for key, want := range map[string]bool{allKey: true, fewKey: false} {
		if a := r.do("GET", "/v1/models", "", "Authorization", key); strings.Contains(a.body, "own-7b") != want {
			t.Errorf("the models of %s: %s", key, a.body)
		}
	}
	if n := asked(shelves); n != 0 {
		t.Errorf("the tier got %d requests", n)
	}
}

// TestActionsBelowResponsesPassOrAreNotFound: a POST there is no response, whose
// other methods a 405 would name.
func TestActionsBelowResponsesPassOrAreNotFound(t *testing.T) {
	const pathsOnly = `
auth: { required: false }
health: { path: "off" }
pools: [ { name: rest, paths: [%q], workers: [ %%s ] } ]
`
	const tierOnly = `
auth: { required: false }
health: { path: "off" }
tiers: [ { name: small, model: fake-7b, serves: [%s], workers: [ %%s ] } ]
`
	const body = `{"model":"small","input":"hi"}`
	for _, c := range []struct{ name, yaml, method, path, got, code string }{
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "POST", "/v1/responses/input_tokens",
			"POST /v1/responses/input_tokens", ""},
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "POST", "/responses/input_tokens", "POST /v1/responses/input_tokens",
			""},
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "POST", "/v1/responses/compact", "POST /v1/responses/compact", ""},
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "POST", "/v1/responses/other", "", "unknown_url"},
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "POST", "/v1/responses/other/more", "", "unknown_url"},
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "PUT", "/v1/responses/resp_1", "", "method_not_allowed"},
		{"a tier", fmt.Sprintf(tierOnly, "responses"), "POST", "/v1/responses/resp_1/input_items", "", "method_not_allowed"},
		{"a tier of chat", fmt.Sprintf(tierOnly, "chat"), "POST", "/v1/responses/input_tokens", "", "unknown_url"},
		{"a tier of chat", fmt.Sprintf(tierOnly, "chat"), "POST", "/v1/responses/compact", "", "unknown_url"},
		{"paths", fmt.Sprintf(pathsOnly, "/v1/*"), "POST", "/v1/responses/input_tokens", "POST /v1/responses/input_tokens",
			""},
		{"paths", fmt.Sprintf(pathsOnly, "/v1/*"), "POST", "/v1/responses/compact", "POST /v1/responses/compact", ""},
		{"paths", fmt.Sprintf(pathsOnly, "/v1/*"), "POST", "/v1/responses/other", "POST /v1/responses/other", ""},
		{"another path", fmt.Sprintf(pathsOnly, "/v9/*"), "POST", "/v1/responses/compact", "", "unknown_url"},
	} {
		engine := &shelf{name: "a"}
		r := newRig(t, c.yaml, engine)
		a := r.do(c.method, c.path, body)
		if got, _ := engine.last(); got != c.got || (a.status == http.StatusOK) != (c.code == "") {
			t.Errorf("%s, %s %s: %d, the engine got %q, want %q", c.name, c.method, c.path, a.status, got, c.got)
		}
		if c.code != "" && c.method != "HEAD" {
			if _, code, _ := errorOf(t, a); code != c.code ||
				(a.header.Get("Allow") != "") != (a.status == http.StatusMethodNotAllowed) {
				t.Errorf("%s, %s %s: %d %s, Allow %q", c.name, c.method, c.path, a.status, code, a.header.Get("Allow"))
			}
		}
	}
}

// TestCountingInputTokensCostsNothing: it is charged as a request and never as
// tokens, as counting on /v1/messages is.
func TestCountingInputTokensCostsNothing(t *testing.T) {
	counts := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		say(t, w, `{"object":"response.input_tokens","input_tokens":900}`)
	})
	keys := fmt.Sprintf("auth: { keys: [ { name: acme, sha256: %s, limits: { tpm: 100 } } ] }", digestOfKey)
	r := newRig(t, strings.Replace(plain, "auth: { required: false }", keys, 1), counts)
	for range 3 {
		a := r.post("/v1/responses/input_tokens", `{"model":"small","max_output_tokens":900,"input":"`+
			strings.Repeat("word ", 500)+`"}`, "Authorization", "Bearer key")
		if a.status != http.StatusOK || a.body != `{"object":"response.input_tokens","input_tokens":900}` {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if line := r.logged(); strings.Contains(line, `"completion_tokens":9`) || !strings.Contains(line, `"status":200`) {
		t.Errorf("the lines: %s", line)
	}
	if a := r.post("/v1/responses", `{"model":"small","max_output_tokens":900,"input":"hi"}`, "Authorization",
		"Bearer key"); a.status != http.StatusTooManyRequests {
		t.Errorf("an answer of 900 tokens: %d", a.status)
	}
}
