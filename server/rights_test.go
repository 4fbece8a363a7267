package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"tierway/server/intake"
)

// rightsRig has a tier that serves everything and counts its requests. It has a tenant with the
// settings and the key "key".
func rightsRig(t *testing.T, settings string) (*rig, *atomic.Int64) {
	t.Helper()
	var hits atomic.Int64
	engine := fakeEngine()
	counted := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		hits.Add(1)
		engine.ServeHTTP(w, q)
	})
	yaml := strings.Replace(plain, "auth: { required: false }",
		fmt.Sprintf("auth: { keys: [ { name: acme, sha256: %s, %s } ] }", digestOfKey, settings), 1)
	return newRig(t, yaml, counted), &hits
}

// anyBody is a body that every inference route accepts.
const anyBody = `{"model":"small","messages":[{"role":"user","content":"hi"}],"prompt":"hi","input":"hi","query":"hi","documents":["a"],"text_1":"a","text_2":"b","max_tokens":3}`

// inferenceRoutes are the paths, with every prefix, of requests that reach an engine.
func inferenceRoutes() []string {
	var paths []string
	for _, p := range intake.Prefixes() {
		for _, rt := range intake.Routes() {
			if rt.Kind == intake.Infer || rt.Kind == intake.Optional {
				paths = append(paths, p.Path+rt.Path)
			}
		}
	}
	return paths
}

// AU-11: a request beyond the tenant's rights is rejected on every route and reaches no engine. Without
// a key, every request is rejected.
func TestRightsApplyToEveryRoute(t *testing.T) {
	for settings, want := range map[string]int{
		"priority: batch":       200,
		"tiers: []":             404,
		"models: []":            404,
		`models: ["gpt-*"]`:     404,
		"tiers: [], models: []": 404,
	} {
		t.Run(settings, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, hits := rightsRig(t, settings)
				for _, path := range inferenceRoutes() {
					hits.Store(0)
					if a := r.post(path, anyBody, "Authorization", "Bearer key"); want != 200 &&
						(a.status != want || hits.Load() != 0) || want == 200 && hits.Load() != 1 {
						t.Errorf("%s: %d after %d requests of the engine: %s", path, a.status, hits.Load(), a.body)
					}
					hits.Store(0)
					if a := r.post(path, anyBody); a.status != 401 || hits.Load() != 0 {
						t.Errorf("%s without a key: %d", path, a.status)
					}
				}
				models := r.do("GET", "/v1/models", "", "Authorization", "Bearer key")
				if shown := strings.Contains(models.body, `"small"`); shown != (want == 200) {
					t.Errorf("GET /v1/models shows %s", models.body)
				}
			})
		})
	}
}

// AU-11.
func TestAMissingModelDoesNotBypassRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hits := rightsRig(t, `models: ["gpt-*"]`)
		for _, path := range inferenceRoutes() {
			body := strings.Replace(anyBody, `"model":"small",`, "", 1)
			if a := r.post(path, body, "Authorization", "Bearer key"); a.status < 400 || a.status > 404 || hits.Load() != 0 {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	})
}

// RL: every route counts against a limit, so none bypasses it.
func TestLimitsApplyToEveryRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := inferenceRoutes()
		r, hits := rightsRig(t, "limits: { rpm: 1, burst: 1 }")
		for i, path := range paths {
			a := r.post(path, anyBody, "Authorization", "Bearer key")
			if i == 0 && a.status == 429 || i > 0 && a.status != 429 {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		if hits.Load() != 1 {
			t.Errorf("the engine had %d requests", hits.Load())
		}
	})
}
