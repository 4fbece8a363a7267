package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
)

// missingModelRig has no tiers: it has a pool for responses, one for moderations and two for images.
func missingModelRig(t *testing.T) *rig {
	w := newServer(t, engines.New(engines.Config{Name: "fake", AnyModel: true, Seed: 1}))
	return newRig(t, fmt.Sprintf(`
auth:
  required: false
  keys: [ { name: kept, sha256: %s, models: [flux] } ]
health: { path: "off" }
pools:
  - { name: text, model: qwen, serves: [chat, responses], workers: [ { name: t0, url: %[2]q } ] }
  - { name: guard, models: [guard-1, guard-2], serves: [moderations], workers: [ { name: g0, url: %[2]q } ] }
  - { name: flux, model: flux, serves: [images], workers: [ { name: f0, url: %[2]q } ] }
  - { name: sdxl, model: sdxl, serves: [images], workers: [ { name: s0, url: %[2]q } ] }
models: { painter: sdxl }
`, digestOfKey, w.URL)+"# %s\n")
}

// TestARequestWithoutAModelGoesToTheOnlyPoolThatServesIt. If there are several, or the key is
// restricted to models, the error lists the models that the client may name.
func TestARequestWithoutAModelGoesToTheOnlyPoolThatServesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := missingModelRig(t)
		for _, c := range []struct {
			path, body string
			key        bool
			status     int
			worker     string
			want       string
		}{
			{path: "/v1/responses", body: `{"input":"hi"}`, status: http.StatusOK, worker: "t0", want: `"model":"qwen"`},
			{path: "/v1/moderations", body: `{"input":"hi"}`, status: http.StatusOK, worker: "g0", want: `"model":"guard-1"`},
			{path: "/v1/images/generations", body: `{"prompt":"a cat"}`, status: http.StatusBadRequest,
				want: "The field model is missing: send one of `flux`, `painter`, `sdxl`."},
			{path: "/v1/images/generations", body: `{"prompt":"a cat"}`, key: true, status: http.StatusBadRequest,
				want: "The field model is missing: send one of `flux`."},
			{path: "/v1/moderations", body: `{"input":"hi"}`, key: true, status: http.StatusNotFound,
				want: "No model that you may use is served on /v1/moderations. Ask the operator for access."},
			{path: "/v1/score", body: `{"text_1":"a","text_2":"b"}`, status: http.StatusNotFound,
				want: `"code":"endpoint_not_supported"`},
			{path: "/v1/chat/completions", body: `{"messages":[{"role":"user","content":"hi"}]}`, status: http.StatusBadRequest,
				want: `"param":"model"`},
		} {
			var headers []string
			if c.key {
				headers = []string{"Authorization", "Bearer key"}
			}
			got := r.post(c.path, c.body, headers...)
			if got.status != c.status || got.header.Get("X-Routed-To") != c.worker || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: %d by %q: %s", c.path, got.status, got.header.Get("X-Routed-To"), got.body)
			}
		}
	})
}

// TestAResponseWithoutAModelIsClassified if there are tiers.
func TestAResponseWithoutAModelIsClassified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTieredRig(t, "")
		for text, tier := range map[string]string{"hi": "small",
			"Implement a function in Python that sorts a list": "large"} {
			if got := r.post("/v1/responses", `{"input":"`+text+`"}`); got.status != http.StatusOK ||
				got.header.Get("X-Model-Tier") != tier {
				t.Errorf("%q is at %s: %d %s", text, got.header.Get("X-Model-Tier"), got.status, got.body)
			}
		}
	})
}
