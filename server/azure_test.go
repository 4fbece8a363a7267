package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines/chaos"
)

// TestAzuresClientsUseTheSameRoutes has the requests of AzureOpenAI of OpenAI's SDKs for Python, Node and Go, and of
// their clients with a base URL of Azure's v1 API. A name in the path replaces the body's.
func TestAzuresClientsUseTheSameRoutes(t *testing.T) {
	const chat, embed = `{"model":"fake-7b","messages":[{"role":"user","content":"hi"}],"max_tokens":2}`,
		`{"model":"fake-7b","input":"hi"}`
	synctest.Test(t, func(t *testing.T) {
		keys := "auth: { keys: [ { name: acme, sha256: " + digestOfKey + " } ] }"
		yaml := strings.Replace(plain, "auth: { required: false }", keys, 1)
		yaml = strings.Replace(yaml, `"gpt-4o-mini": small`, `"gpt-4o-mini": small, "org/gpt": small`, 1)
		recorder := chaos.Record(fakeEngine())
		r := newRig(t, yaml, recorder)
		const version = "?api-version=2024-10-21"
		for _, c := range []struct {
			path, body string
			worker     string // the path at the worker
			model      string // in the worker's body
		}{
			{"/openai/deployments/small/chat/completions" + version, chat, "/v1/chat/completions", "fake-7b"},
			{"/openai/deployments/gpt-4o-mini/chat/completions" + version, strings.Replace(chat, "fake-7b", "other", 1),
				"/v1/chat/completions", "fake-7b"},
			{"/openai/deployments/fake-7b/chat/completions", strings.Replace(chat, "fake-7b", "other", 1),
				"/v1/chat/completions", "fake-7b"},
			{"/openai/deployments/small/chat/completions", strings.Replace(chat, `"model":"fake-7b",`, "", 1),
				"/v1/chat/completions", "fake-7b"},
			{"/openai/deployments/org/gpt/chat/completions" + version, chat, "/v1/chat/completions", "fake-7b"},
			{"/openai/deployments/org%2Fgpt/chat/completions" + version, chat, "/v1/chat/completions", "fake-7b"},
			{"/openai/deployments/small/completions" + version, `{"prompt":"hi","max_tokens":2}`, "/v1/completions", "fake-7b"},
			{"/openai/deployments/small/embeddings" + version, embed, "/v1/embeddings", "fake-7b"},
			{"/openai/deployments/small/images/generations" + version, `{"prompt":"a cat","size":"1x1"}`,
				"/v1/images/generations", "fake-7b"},
			{"/openai/deployments/small/audio/speech" + version, `{"input":"hi","voice":"a"}`, "/v1/audio/speech", "fake-7b"},
			{"/openai/responses" + version, `{"model":"small","input":"hi","max_output_tokens":2}`, "/v1/responses", "fake-7b"},
			{"/openai/v1/chat/completions", chat, "/v1/chat/completions", "fake-7b"},
			{"/openai/v1/chat/completions?api-version=preview&x=1", chat, "/v1/chat/completions?x=1", "fake-7b"},
			{"/openai/v1/responses", `{"model":"small","input":"hi","max_output_tokens":2}`, "/v1/responses", "fake-7b"},
		} {
			before := len(recorder.Requests())
			got := r.post(c.path, c.body, "Api-Key", "key")
			sent := recorder.Requests()[before:]
			if got.status != http.StatusOK || len(sent) != 1 {
				t.Errorf("%s: %d %s, %d requests of the engine", c.path, got.status, got.body, len(sent))
				continue
			}
			if body := string(sent[0].Body); sent[0].URL != c.worker || !strings.Contains(body, `"model":"`+c.model+`"`) ||
				strings.Count(body, `"model"`) != 1 {
				t.Errorf("%s: the engine gets %s %s", c.path, sent[0].URL, body)
			}
			if a := r.post(c.path, c.body, "Api-Key", "wrong"); a.status != http.StatusUnauthorized {
				t.Errorf("%s with a wrong key: %d", c.path, a.status)
			}
		}
		if got := r.post("/openai/deployments/small/audio/transcriptions"+version, form, "Api-Key", "key", "Content-Type",
			"multipart/form-data; boundary=b"); got.status != http.StatusOK {
			t.Errorf("a form: %d %s", got.status, got.body)
		}
		for _, path := range []string{"/openai/models" + version, "/openai/v1/models", "/openai/v1/models/small"} {
			if got := r.do(http.MethodGet, path, "", "Api-Key", "key"); got.status != http.StatusOK {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		for path, want := range map[string]string{
			"/openai/deployments/none/chat/completions": "model_not_found", "/openai/deployments/small": "unknown_url",
			"/openai/deployments//chat/completions": "unknown_url",
			"/openai/deployments/small/none":        "unknown_url", "/openai/realtime": "unknown_url",
		} {
			got := r.post(path, chat, "Api-Key", "key")
			if got.status != http.StatusNotFound || !strings.Contains(got.body, want) {
				t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
			}
		}
		long := strings.Repeat("x", 257)
		for _, name := range []string{"a%0d%0ab", "a%00", "a%7f", "%ff", long} {
			for kind, body := range map[string]string{"application/json": chat, "multipart/form-data; boundary=b": form} {
				path := "/openai/deployments/" + name + "/chat/completions"
				if body == form {
					path = "/openai/deployments/" + name + "/audio/transcriptions"
				}
				got := r.post(path, body, "Api-Key", "key", "Content-Type", kind)
				if got.status != http.StatusBadRequest || !strings.Contains(got.body, "model must be a name") {
					t.Errorf("%s: %d %s", path, got.status, got.body)
				}
			}
		}
	})
}

// TestDeploymentsOfAPoolPassThrough: a pool of a service with Azure's API keeps the deployments that are no models of
// the gateway.
func TestDeploymentsOfAPoolPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		azure := chaos.Record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"from":"azure"}`))
		}))
		pools := "pools: [ { name: azure, paths: ['/openai/*'], workers: [ { name: a, url: %q } ] } ]\n"
		r := newRig(t, plain+fmt.Sprintf(pools, startServer(t, azure)), fakeEngine())
		for path, passed := range map[string]bool{
			"/openai/deployments/mine/chat/completions?api-version=1": true,
			"/openai/deployments/small/chat/completions":              false,
			"/openai/files": true,
		} {
			before := len(azure.Requests())
			got := r.post(path, `{"messages":[{"role":"user","content":"hi"}],"max_tokens":2}`)
			sent := azure.Requests()[before:]
			if got.status != http.StatusOK || (len(sent) == 1) != passed || passed && sent[0].URL != path {
				t.Errorf("%s: %d %s, the pool got %+v", path, got.status, got.body, sent)
			}
		}
	})
}
