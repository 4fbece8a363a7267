package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestModelListsHaveTheFormOfTheClientsDialect: Anthropic's SDKs need their own form of errors. One
// form of the list serves the SDKs of both vendors.
func TestModelListsHaveTheFormOfTheClientsDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		for _, id := range []string{"unknown", "org/messages-7b"} {
			got := r.do(http.MethodGet, "/v1/models/"+id, "", "Anthropic-Version", "2023-06-01")
			if got.status != http.StatusNotFound ||
				!strings.HasPrefix(got.body, `{"type":"error","error":{"type":"not_found_error"`) ||
				got.header.Get("Request-Id") == "" {
				t.Errorf("Anthropic's client gets %d %v %s", got.status, got.header, got.body)
			}
			if got := r.do(http.MethodGet, "/v1/models/"+id, ""); got.status != http.StatusNotFound ||
				!strings.HasPrefix(got.body, `{"error":{"message":`) {
				t.Errorf("OpenAI's client gets %d %s", got.status, got.body)
			}
		}
		var list struct {
			Data []struct {
				ID, Type, Lifecycle string
				DisplayName         string `json:"display_name"`
			}
			HasMore *bool  `json:"has_more"`
			FirstID string `json:"first_id"`
			LastID  string `json:"last_id"`
		}
		got := r.do(http.MethodGet, "/v1/models", "", "Anthropic-Version", "2023-06-01")
		if err := json.Unmarshal([]byte(got.body), &list); err != nil {
			t.Fatal(err)
		}
		n := len(list.Data)
		if n == 0 || list.HasMore == nil || *list.HasMore || list.FirstID != list.Data[0].ID ||
			list.LastID != list.Data[n-1].ID ||
			list.Data[0].Type != "model" || list.Data[0].Lifecycle != "active" || list.Data[0].DisplayName == "" {
			t.Errorf("the list is %s", got.body)
		}
		for _, line := range strings.Split(strings.TrimSpace(r.accessLog()), "\n") {
			if strings.Contains(line, `"dialect":"messages"`) {
				t.Errorf("the list must not be recorded with a dialect: %s", line)
			}
		}
	})
}

// TestModelsHaveTheirContext: vLLM's name of it, for tiers and aliases. auto has the longest one, unless one is
// unknown.
func TestModelsHaveTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := "auth: { required: false }\nhealth: { path: \"off\" }\nmodels: { short: small, free: classify }\ntiers:\n" +
			"  - { name: small, model: small-7b, context: 8000, workers: [ { name: a, url: \"http://127.0.0.1:1\" } ] }\n" +
			"  - { name: large, model: large-70b, %s workers: [ { name: b, url: \"http://127.0.0.1:2\" } ] }\n"
		for large, want := range map[string]map[string]int64{
			"context: 32000,": {"small": 8000, "small-7b": 8000, "short": 8000, "large": 32000, "large-70b": 32000, "auto": 32000,
				"free": 32000},
			"": {"small": 8000, "small-7b": 8000, "short": 8000, "large": 0, "large-70b": 0, "auto": 0, "free": 0},
		} {
			r := newRig(t, strings.ReplaceAll(yaml, "%s", large)+"# %s\n")
			var list struct {
				Data []struct {
					ID          string `json:"id"`
					MaxModelLen *int64 `json:"max_model_len"`
				} `json:"data"`
			}
			got := r.do(http.MethodGet, "/v1/models", "")
			if err := json.Unmarshal([]byte(got.body), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Data) != len(want) {
				t.Errorf("the list is %s", got.body)
			}
			for _, m := range list.Data {
				if n := want[m.ID]; (m.MaxModelLen == nil) != (n == 0) || n != 0 && *m.MaxModelLen != n {
					t.Errorf("%s: want %d, the list is %s", m.ID, n, got.body)
				}
			}
			if one := r.do(http.MethodGet, "/v1/models/short", ""); !strings.Contains(one.body, `"max_model_len":8000`) {
				t.Errorf("short is %s", one.body)
			}
		}
	})
}

// TestAnthropicsClientsGetPagesOfModels: limit, after_id and before_id. OpenAI's clients get the whole list.
func TestAnthropicsClientsGetPagesOfModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine()) // auto, fake-7b, gpt-4o-mini, small
		for query, want := range map[string]string{
			"": "auto fake-7b gpt-4o-mini small", "?limit=4": "auto fake-7b gpt-4o-mini small", "?limit=3": "auto fake-7b gpt-4o-mini +",
			"?limit=1": "auto +", "?limit=1000": "auto fake-7b gpt-4o-mini small", "?after_id=fake-7b": "gpt-4o-mini small",
			"?limit=1&after_id=fake-7b": "gpt-4o-mini +", "?after_id=small": "", "?before_id=small&limit=2": "fake-7b gpt-4o-mini +",
			"?before_id=fake-7b&limit=2": "auto", "?limit=0": "400 limit", "?limit=x": "400 limit", "?limit=1001": "400 limit",
			"?after_id=other": "400 after_id", "?before_id=other": "400 before_id",
		} {
			var list struct {
				Data    []struct{ ID string }
				HasMore bool    `json:"has_more"`
				FirstID *string `json:"first_id"`
				LastID  *string `json:"last_id"`
			}
			a := r.do(http.MethodGet, "/v1/models"+query, "", "Anthropic-Version", "2023-06-01")
			if err := json.Unmarshal([]byte(a.body), &list); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, m := range list.Data {
				ids = append(ids, m.ID)
			}
			if n := len(ids); n > 0 && (*list.FirstID != ids[0] || *list.LastID != ids[n-1]) {
				t.Errorf("%s: %s", query, a.body)
			}
			if list.HasMore {
				ids = append(ids, "+")
			}
			status, param, refused := strings.Cut(want, " ")
			if refused && status == "400" {
				if a.status != http.StatusBadRequest || !strings.Contains(a.body, "parameter "+param) {
					t.Errorf("%s: %d %s", query, a.status, a.body)
				}
			} else if got := strings.Join(ids, " "); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
			if a := r.do(http.MethodGet, "/v1/models"+query, ""); a.status != http.StatusOK || strings.Count(a.body, `"id"`) != 4 {
				t.Errorf("OpenAI's client gets %d %s", a.status, a.body)
			}
		}
	})
}

// TestHeadIsGetWithoutABody on every GET route, also where the worker answers.
func TestHeadIsGetWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		var stored struct{ ID string }
		body := `{"model":"small","input":"hi","max_output_tokens":3,"store":true}`
		if err := json.Unmarshal([]byte(r.post("/v1/responses", body).body), &stored); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/v1/models", "/models", "/v1/models/small", "/v1/models/none",
			"/v1/responses/" + stored.ID, "/v1/responses/resp_none", "/livez", "/readyz"} {
			get, head := r.do(http.MethodGet, path, ""), r.do(http.MethodHead, path, "")
			if head.status != get.status || head.body != "" ||
				head.header.Get("Content-Type") != get.header.Get("Content-Type") ||
				head.header.Get("Content-Length") != get.header.Get("Content-Length") {
				t.Errorf("%s: GET %d %v, HEAD %d %v %q", path, get.status, get.header, head.status, head.header, head.body)
			}
		}
		if a := r.do(http.MethodHead, "/v1/chat/completions", ""); a.status != http.StatusMethodNotAllowed ||
			a.header.Get("Allow") != http.MethodPost {
			t.Errorf("HEAD of a POST route: %d %v", a.status, a.header)
		}
		if a := r.do(http.MethodPut, "/v1/models", ""); a.status != http.StatusMethodNotAllowed ||
			a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("PUT of a GET route: %d %v", a.status, a.header)
		}
	})
}

// TestRefusedWebSocketsNameARouteThatExists.
func TestRefusedWebSocketsNameARouteThatExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		for path, want := range map[string]string{
			"/v1/realtime?model=small": "POST to /v1/responses or /v1/chat/completions.",
			"/v1/responses":            "POST to /v1/responses.", "/chat/completions": "POST to /chat/completions.",
		} {
			a := r.do(http.MethodGet, path, "", "Upgrade", "websocket", "Connection", "Upgrade")
			if a.status != http.StatusUpgradeRequired || !strings.Contains(a.body, want) {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	})
}
