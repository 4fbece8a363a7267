package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"tierway/server/intake"
)

// rightsRig has a tier that serves everything, whose requests it counts, and a
// tenant with the given settings and the key "key".
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

// bodyOf is a request that every inference route of a dialect takes.
const anyBody = `{"model":"small","messages":[{"role":"user","content":"hi"}],"prompt":"hi","input":"hi","query":"hi","documents":["a"],"text_1":"a","text_2":"b","max_tokens":3}`

// inferenceRoutes are all routes of the table, below every prefix, whose requests
// reach an engine.
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

// AU-11: what a tenant may not use is refused on every route, and no engine
// hears of it; without a key nothing is served at all.
func TestRightsHoldOnEveryRoute(t *testing.T) {
	for settings, want := range map[string]int{
		"priority: batch":       200,
		"tiers: []":             404,
		"models: []":            404,
		`models: ["gpt-*"]`:     404,
		"tiers: [], models: []": 404,
	} {
		t.Run(settings, func(t *testing.T) {
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
	}
}

// AU-11: leaving the model out is no way around what a tenant may ask for.
func TestAMissingModelIsNeverAllowed(t *testing.T) {
	r, hits := rightsRig(t, `models: ["gpt-*"]`)
	for _, path := range inferenceRoutes() {
		body := strings.Replace(anyBody, `"model":"small",`, "", 1)
		if a := r.post(path, body, "Authorization", "Bearer key"); a.status < 400 || a.status > 404 || hits.Load() != 0 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// RL: a limit counts on every route, so that none is a way around it.
func TestLimitsHoldOnEveryRoute(t *testing.T) {
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
}

// AU-01: every refusal of a key is the same, and a key in the query is none.
func TestARefusedKeyIsAlwaysTheSameAnswer(t *testing.T) {
	r, _ := rightsRig(t, "priority: batch")
	var first string
	for _, headers := range [][]string{{}, {"Authorization", "Basic a2V5"}, {"Authorization", "Bearer "},
		{"Authorization", "Bearer nobody"},
		{"Authorization", "Bearer tw-000000000000000000000000000_000000"}, {"X-Api-Key", "nobody"}} {
		a := r.post("/v1/chat/completions?api_key=key", hello, append(headers, "X-Request-Id", "same")...)
		a.header.Del("Date")
		got := fmt.Sprint(a.status, a.header, a.body)
		if first == "" {
			first = got
		}
		if got != first || a.status != 401 || a.header.Get("Www-Authenticate") != "Bearer" {
			t.Errorf("%v: %s\nwant %s", headers, got, first)
		}
	}
}
