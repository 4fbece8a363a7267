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
		for _, line := range strings.Split(strings.TrimSpace(r.access.String()), "\n") {
			if strings.Contains(line, `"dialect":"messages"`) {
				t.Errorf("the list must not be recorded with a dialect: %s", line)
			}
		}
	})
}
