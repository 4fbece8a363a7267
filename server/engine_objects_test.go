package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// objectPaths are requests for objects that engines store. They match the paths /v1/* and /openai/* of a pool.
var objectPaths = []struct{ method, path string }{
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

// TestStoredObjectsNeedAPoolOfOneTenant: engines do not separate tenants. If keys are required,
// requests for stored objects reach only a pool with one tenant.
func TestStoredObjectsNeedAPoolOfOneTenant(t *testing.T) {
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
			synctest.Test(t, func(t *testing.T) {
				rest := &storingEngine{name: "r"}
				r, _ := storingRig(t, c.required,
					fmt.Sprintf(`pools: [ { name: rest, paths: ["/v1/*", "/openai/*"], workers: [ { name: r0, url: %q } ]%s } ]`,
						startServer(t, rest), c.tenant))
				for _, request := range objectPaths {
					for key, want := range c.want {
						_, before := rest.last()
						a := r.do(request.method, request.path, "", "Authorization", key)
						if a.status == http.StatusMethodNotAllowed {
							a.status = http.StatusNotFound // the path has a route for another method
						}
						if _, n := rest.last(); a.status != want || (n > before) != (want == 200) {
							t.Errorf("%s %s with %q: %d, want %d; the engine got %d", request.method, request.path, key, a.status, want,
								n-before)
						}
					}
				}
				for _, request := range []struct {
					method, path string
				}{{"GET", "/v1/version"}, {"POST", "/v1/pooling"}, {"GET", "/openai/v1/version"}} {
					want := 200
					if c.tenant != "" {
						want = c.want[fewKey]
					}
					if a := r.do(request.method, request.path, "", "Authorization", fewKey); a.status != want {
						t.Errorf("%s %s: %d, want %d", request.method, request.path, a.status, want)
					}
				}
			})
		})
	}
}

// TestARejectedObjectPathIsLoggedWithItsReason: the operator reads why a path of the pool is not
// forwarded.
func TestARejectedObjectPathIsLoggedWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := storingRig(t, true,
			fmt.Sprintf(`pools: [ { name: rest, paths: ["/v1/*"], workers: [ { name: r0, url: %q } ] } ]`, startServer(t,
				&storingEngine{})))
		a := r.do("GET", "/v1/files", "", "Authorization", allKey)
		if _, code, _ := errorOf(t, a); code != "unknown_url" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if line := r.accessLog(); !strings.Contains(line, "engines keep files without tenants: set tenant of the pool rest") {
			t.Errorf("the access log has %s", line)
		}
	})
}

// TestAPoolOfOneTenantServesNoOther, neither by model name, path nor list. Its tenant may continue
// conversations that the gateway does not know.
func TestAPoolOfOneTenantServesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &storingEngine{name: "o"}
		r, stores := storingRig(t, true,
			fmt.Sprintf(
				`pools: [ { name: own, model: own-7b, serves: [chat, responses, embeddings], paths: ["/v9/*", "/openai/*"], tenant: all, workers: [ { name: o0, url: %q } ] } ]`, startServer(t, own)))
		responses := func(model, more string) string { return fmt.Sprintf(`{"model":%q,"input":"hi"%s}`, model, more) }
		for _, request := range []struct{ method, path, body string }{
			{"POST", "/v1/responses", responses("own-7b", "")},
			{"POST", "/v1/embeddings", responses("own-7b", "")}, {"GET", "/v1/models/own-7b", ""}, {"GET", "/v9/x", ""},
			{"POST", "/v1/responses", responses("own-7b", `,"previous_response_id":"resp_x"`)},
			{"POST", "/v1/responses", responses("own-7b", `,"conversation":"conv_x"`)},
			{"POST", "/openai/v1/responses", responses("own-7b", `,"previous_response_id":"resp_x"`)},
			{"GET", "/openai/v1/responses/resp_x", ""}, {"GET", "/openai/v1/responses/resp_x/input_items", ""},
		} {
			_, before := own.last()
			if a := r.do(request.method, request.path, request.body, "Authorization", fewKey); a.status != http.StatusNotFound {
				t.Errorf("another tenant's %s %s %s: %d %s", request.method, request.path, request.body, a.status, a.body)
			}
			if _, n := own.last(); n != before {
				t.Errorf("the engine got another tenant's %s %s", request.method, request.path)
			}
			if a := r.do(request.method, request.path, request.body, "Authorization", allKey); a.status != http.StatusOK {
				t.Errorf("its tenant's %s %s %s: %d %s", request.method, request.path, request.body, a.status, a.body)
			}
		}
		for key, want := range map[string]bool{allKey: true, fewKey: false} {
			if a := r.do("GET", "/v1/models", "", "Authorization", key); strings.Contains(a.body, "own-7b") != want {
				t.Errorf("the models of %s: %s", key, a.body)
			}
		}
		if n := requestCount(stores); n != 0 {
			t.Errorf("the tier got %d requests", n)
		}
	})
}

// TestActionsBelowResponsesAreForwardedOr404: such an action is no response, so a 405 with the methods
// of a response would be wrong.
func TestActionsBelowResponsesAreForwardedOr404(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			engine := &storingEngine{name: "a"}
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
	})
}

// TestCountingInputTokensCostsNothing: it counts as a request and costs no tokens, as counting on
// /v1/messages.
func TestCountingInputTokensCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			writeNow(t, w, `{"object":"response.input_tokens","input_tokens":900}`)
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
		if line := r.accessLog(); strings.Contains(line, `"completion_tokens":9`) || !strings.Contains(line, `"status":200`) {
			t.Errorf("the access log has %s", line)
		}
		if a := r.post("/v1/responses", `{"model":"small","max_output_tokens":900,"input":"hi"}`, "Authorization",
			"Bearer key"); a.status != http.StatusTooManyRequests {
			t.Errorf("an answer of 900 tokens: %d", a.status)
		}
	})
}
