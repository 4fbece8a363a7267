package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnyHeaderMayHaveTheKey: clients send a token of their own in Authorization beside the key of the gateway. The
// first header with a key of the gateway counts.
func TestAnyHeaderMayHaveTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := rightsRig(t, "priority: batch")
		for _, headers := range [][]string{
			{"X-Api-Key", "key"}, {"Api-Key", "key"}, {"Authorization", "Bearer key"}, {"Authorization", "bearer  key"},
			{"Authorization", "Bearer sk-ant-oat01-own", "X-Api-Key", "key"},
			{"Authorization", "Bearer sk-ant-oat01-own", "Api-Key", "key"},
			{"Authorization", "Bearer key", "X-Api-Key", "sk-ant-own"},
			{"Authorization", "Bearer", "X-Api-Key", "key"}, {"Authorization", "Bearer ", "X-Api-Key", "key"},
			{"Authorization", "", "X-Api-Key", "key"}, {"Authorization", "Basic a2V5OmtleQ==", "X-Api-Key", "key"},
			{"Authorization", "Bearer key", "X-Api-Key", ""}, {"X-Api-Key", "", "Api-Key", "key"},
			{"X-Api-Key", "own", "Api-Key", "key"},
		} {
			if got := r.post("/v1/chat/completions", hello, headers...); got.status != http.StatusOK {
				t.Errorf("%q: %d %s", headers, got.status, got.body)
			}
			if got := r.do(http.MethodGet, "/v1/models", "", headers...); got.status != http.StatusOK {
				t.Errorf("the models with %q: %d %s", headers, got.status, got.body)
			}
		}
		for _, headers := range [][]string{{"Authorization", "Bearer"}, {"Authorization", "Bearer "}, {"X-Api-Key", ""},
			{"Authorization", "Bearer own", "X-Api-Key", "own", "Api-Key", "own"}, {"X-Goog-Api-Key", "key"},
			{"Cookie", "key"}} {
			if got := r.post("/v1/chat/completions", hello, headers...); got.status != http.StatusUnauthorized {
				t.Errorf("%q: %d %s", headers, got.status, got.body)
			}
		}
	})
}

// TestARefusedKeyIsNotRetried in every dialect, and the answer names the headers. Claude Code and Codex repeat a 401
// for half a minute otherwise.
func TestARefusedKeyIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := rightsRig(t, "priority: batch")
		for _, path := range append(inferenceRoutes(), "/v1/nothing", "/v1/responses/resp_1") {
			time.Sleep(time.Minute) // the limit of wrong keys
			got := r.post(path, anyBody, "X-Api-Key", "wrong")
			if got.status != http.StatusUnauthorized || got.header.Get("X-Should-Retry") != "false" ||
				!strings.Contains(got.body, "Authorization: Bearer") || !strings.Contains(got.body, "x-api-key") {
				t.Errorf("%s: %d, x-should-retry %q: %s", path, got.status, got.header.Get("X-Should-Retry"), got.body)
			}
		}
	})
}
