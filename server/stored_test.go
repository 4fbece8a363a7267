package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// digestOfLittle is the digest of "little".
const digestOfLittle = "180ca01b95f0dfdd36fbb600e51cf6e46c8ef468de56b017847886fefaf7b6f9"

// storedYAML is a tier of two workers and the tenants of allKey and fewKey. Its last verb is more sections.
const storedYAML = `
auth: { required: %t, keys: [ { name: all, sha256: ` + digestOfKey + ` }, { name: few, sha256: ` + digestOfLittle + ` } ] }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, policy: { name: round_robin }, workers: [ { name: w0, url: %q }, { name: w1, url: %q } ] }
%s
`

// storingRig serves storedYAML with two storingEngines and more sections.
func storingRig(t *testing.T, required bool, more string) (r *rig, stores [2]*storingEngine) {
	t.Helper()
	stores = [2]*storingEngine{{name: "a"}, {name: "b"}}
	yaml := fmt.Sprintf(storedYAML, required, startServer(t, stores[0]), startServer(t, stores[1]), more)
	return newRig(t, yaml+"# %s\n"), stores
}

// requestCount returns the number of requests that the engines have received.
func requestCount(stores [2]*storingEngine) int {
	_, a := stores[0].last()
	_, b := stores[1].last()
	return a + b
}

// responsePaths are requests about the response %s. They match the paths /v1/* and /openai/* of a pool.
var responsePaths = []struct{ method, path string }{
	{"GET", "/v1/responses/%s"}, {"GET", "/v1/responses/%s?stream=true"},
	{"HEAD", "/v1/responses/%s"}, {"DELETE", "/v1/responses/%s"},
	{"PATCH", "/v1/responses/%s"}, {"POST", "/v1/responses/%s"},
	{"GET", "/v1/responses/%s/input_items"}, {"GET", "/v1/responses/%s/input_items?limit=1"},
	{"GET", "/v1/responses/%s/input_items/1"},
	{"POST", "/v1/responses/%s/cancel"}, {"GET", "/v1/responses/%s/cancel"}, {"POST", "/v1/responses/%s/whatever/comes"},
	{"GET", "/v1/responses/%s%%2Finput_items"}, {"GET", "/v1/%%72esponses/%s/input_items"},
	{"GET", "/responses/%s/input_items"}, {"GET", "/background/v1/responses/%s/input_items"},
	{"GET", "/openai/v1/responses/%s/input_items"},
}

const allPathsPool = `pools: [ { name: rest, paths: ["/v1/*", "/responses/*", "/background/*", "/openai/*"], workers: [ { name: r0, url: %q } ] } ]`

// TestAnotherTenantsResponseIsNotFoundOnAnyPath: requests of another tenant reach no engine. Requests
// of its own tenant reach the engine that stores it, until the tenant deletes it.
func TestAnotherTenantsResponseIsNotFoundOnAnyPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, required := range []bool{true, false} {
			rest := &storingEngine{name: "r"}
			r, stores := storingRig(t, required, fmt.Sprintf(allPathsPool, startServer(t, rest)))
			for range 3 { // w1 stores the second one
				r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey)
			}
			before := requestCount(stores)
			for _, request := range responsePaths {
				path := fmt.Sprintf(request.path, "resp_b1")
				a := r.do(request.method, path, "", "Authorization", fewKey)
				if _, n := rest.last(); a.status != http.StatusNotFound || requestCount(stores) != before || n != 0 {
					t.Errorf("required %v, %s %s: %d after %d requests of engines", required, request.method, path, a.status,
						requestCount(stores)-before+n)
				}
			}
			continued := fmt.Sprintf(followUp, "resp_b1")
			if a := r.post("/v1/responses", continued, "Authorization", fewKey); a.status != http.StatusNotFound ||
				!strings.Contains(a.body, `"previous_response_not_found"`) || requestCount(stores) != before {
				t.Errorf("required %v, a follow-up: %d %s", required, a.status, a.body)
			}
			for range 2 { // round_robin would use both workers
				a := r.post("/v1/responses", continued, "Authorization", allKey)
				if a.status != http.StatusOK || a.header.Get("X-Routed-To") != "w1" {
					t.Errorf("required %v, its own tenant's follow-up: %d from %q", required, a.status, a.header.Get("X-Routed-To"))
				}
			}
			for _, request := range responsePaths {
				if request.method == "DELETE" {
					continue
				}
				path := fmt.Sprintf(request.path, "resp_b1")
				a := r.do(request.method, path, "", "Authorization", allKey)
				method := strings.Replace(request.method, "HEAD", "GET", 1) // engines have no HEAD
				if got, _ := stores[1].last(); a.status != http.StatusOK || !strings.HasPrefix(got, method+" ") ||
					!strings.Contains(got, "resp_b1") || a.header.Get("X-Routed-To") != "w1" {
					t.Errorf("required %v, its own tenant's %s %s: %d from %q, the engine got %q", required, request.method, path,
						a.status,
						a.header.Get("X-Routed-To"), got)
				}
			}
			deleted := r.do("DELETE", "/v1/responses/resp_b1", "", "Authorization", allKey)
			a := r.do("GET", "/v1/responses/resp_b1", "", "Authorization", allKey)
			// Without keys an unknown response goes to the pool of the path.
			if _, n := rest.last(); deleted.status != http.StatusOK || (a.status == http.StatusNotFound) != required ||
				(n == 0) != required {
				t.Errorf("required %v, the deletion: %d, then %d %s", required, deleted.status, a.status, a.body)
			}
		}
	})
}

// TestAnAmbiguousResponseIDReachesNoEngine: a restarted engine reuses its IDs. If two tenants got the same ID, through
// one gateway or two, no gateway knows which response the engine still has.
func TestAnAmbiguousResponseIDReachesNoEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, more := range []string{"", sharedStore(t)} {
			stores := [2]*storingEngine{{name: "a"}, {name: "b"}}
			yaml := fmt.Sprintf(storedYAML, true, startServer(t, stores[0]), startServer(t, stores[1]), more) + "\n# %s\n"
			all := []*rig{newRig(t, yaml)}
			if more != "" {
				all = append(all, newRig(t, yaml), newRig(t, yaml))
			}
			respond := func(r *rig, key string) {
				if a := r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", key); a.status != http.StatusOK {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			for range stores { // one response each
				respond(all[0], allKey)
			}
			for _, s := range stores {
				s.restart()
			}
			for range stores {
				respond(all[len(all)/2], fewKey)
			}
			before := requestCount(stores)
			for i, r := range all {
				for _, key := range []string{allKey, fewKey} {
					for _, q := range [][3]string{{"GET", "/v1/responses/resp_a1", ""}, {"DELETE", "/v1/responses/resp_a1", ""},
						{"POST", "/v1/responses", fmt.Sprintf(followUp, "resp_a1")}} {
						if a := r.do(q[0], q[1], q[2], "Authorization", key); a.status != http.StatusNotFound {
							t.Errorf("gateway %d of %d, %s %s: %d %s", i, len(all), q[0], q[1], a.status, a.body)
						}
					}
				}
			}
			if n := requestCount(stores) - before; n != 0 {
				t.Errorf("%d gateways: the engines got %d requests", len(all), n)
			}
		}
	})
}

// TestAnUnknownResponseIsNotFoundIfKeysAreRequired: it may be another tenant's, from before the
// gateway's start.
func TestAnUnknownResponseIsNotFoundIfKeysAreRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rest := &storingEngine{name: "r"}
		r, stores := storingRig(t, true, fmt.Sprintf(allPathsPool, startServer(t, rest)))
		for _, request := range responsePaths {
			if request.method == "POST" && !strings.Contains(request.path, "%s/") {
				continue // a POST names an action there
			}
			path := fmt.Sprintf(request.path, "resp_x")
			if a := r.do(request.method, path, "", "Authorization", allKey); a.status != http.StatusNotFound ||
				request.method != "HEAD" && !strings.Contains(a.body, "_not_found") {
				t.Errorf("%s %s: %d %s", request.method, path, a.status, a.body)
			}
		}
		for _, path := range []string{"/v1/responses", "/batch/v1/responses", "/v1/responses/input_tokens",
			"/v1/responses/compact", "/openai/v1/responses", "/openai/v1/responses/compact"} {
			for body, code := range map[string]string{
				`{"model":"small","input":"hi","previous_response_id":"resp_x"}`:                         "previous_response_not_found",
				`{"model":"small","input":"hi","previous_response\u005fid":"resp_x"}`:                    "previous_response_not_found",
				`{"model":"small","input":"hi","conversation":"conv_x"}`:                                 "conversation_not_found",
				`{"model":"small","input":"hi","conversation":{"id":"conv_x"}}`:                          "conversation_not_found",
				`{"model":"small","input":"hi","previous_response_id":"resp_x","conversation":"conv_x"}`: "previous_response_not_found",
			} {
				if a := r.post(path, body, "Authorization", allKey); a.status != http.StatusNotFound ||
					!strings.Contains(a.body, `"code":"`+code+`"`) {
					t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
				}
			}
		}
		if _, n := rest.last(); n+requestCount(stores) != 0 {
			t.Errorf("the engines got %d requests", n+requestCount(stores))
		}
		for _, body := range []string{`{"model":"small","input":"hi","previous_response_id":null}`,
			`{"model":"small","input":"hi","previous_response_id":"","conversation":null}`,
			`{"model":"small","input":"my previous_response_id"}`} {
			for _, path := range []string{"/v1/responses", "/openai/v1/responses"} {
				if a := r.post(path, body, "Authorization", allKey); a.status != http.StatusOK {
					t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
				}
			}
		}
	})
}

// TestAnUnknownResponseIsForwardedIfNoKeyIsRequired: without keys there is one tenant, and the response
// may be from before the gateway's start.
func TestAnUnknownResponseIsForwardedIfNoKeyIsRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rest := &storingEngine{name: "r"}
		r, _ := storingRig(t, false, fmt.Sprintf(allPathsPool, startServer(t, rest)))
		for _, request := range responsePaths {
			path := fmt.Sprintf(request.path, "resp_x")
			a := r.do(request.method, path, "")
			if got, _ := rest.last(); a.status != http.StatusOK || !strings.Contains(got, "resp_x") {
				t.Errorf("%s %s: %d, the engine got %q", request.method, path, a.status, got)
			}
		}
		for _, path := range []string{"/v1/responses", "/openai/v1/responses"} {
			for _, more := range []string{`"previous_response_id":"resp_x"`, `"conversation":"conv_x"`} {
				if a := r.post(path, `{"model":"small","input":"hi",`+more+`}`); a.status != http.StatusOK {
					t.Errorf("%s with %s: %d %s", path, more, a.status, a.body)
				}
			}
		}
	})
}

func TestAPassthroughFollowUpGoesToTheWorkerOfItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rest := [2]*storingEngine{{name: "r"}, {name: "s"}}
		r, _ := storingRig(t, true,
			fmt.Sprintf(`pools: [ { name: rest, model: rest, serves: [responses], paths: ["/openai/*"], policy: { name: round_robin },
  workers: [ { name: r0, url: %q }, { name: r1, url: %q } ] } ]`, startServer(t, rest[0]), startServer(t, rest[1])))
		for range 2 {
			r.post("/v1/responses", `{"model":"rest","input":"hi"}`, "Authorization", allKey)
		}
		for range 4 {
			a := r.post("/openai/v1/responses", `{"model":"rest","input":"hi","previous_response_id":"resp_s1"}`, "Authorization",
				allKey)
			if a.status != http.StatusOK || a.header.Get("X-Routed-To") != "r1" {
				t.Errorf("%d from %s: %s", a.status, a.header.Get("X-Routed-To"), a.body)
			}
		}
		if a := r.post("/openai/v1/responses", `{"model":"rest","input":"hi","previous_response_id":"resp_s1"}`,
			"Authorization", fewKey); a.status != http.StatusNotFound {
			t.Errorf("another tenant's: %d %s", a.status, a.body)
		}
	})
}

// TestABodyAboutAResponseIsCheckedForRights: it must not name another tenant's response.
func TestABodyAboutAResponseIsCheckedForRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stores := storingRig(t, true, fmt.Sprintf(allPathsPool, startServer(t, &storingEngine{name: "r"})))
		r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey)
		r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", fewKey)
		before := requestCount(stores)
		for body, want := range map[string]int{
			`{"previous_response_id":"resp_b1"}`:      http.StatusOK,
			`{"previous_response_id":"resp_a1"}`:      http.StatusNotFound,
			`{"conversation":{"id":"conv_1"}}`:        http.StatusNotFound,
			`{"extra_key":"x"}`:                       http.StatusBadRequest,
			`{"Previous_Response_ID":"resp_a1"}`:      http.StatusBadRequest,
			`{"priority":1,"priority":2,"x":"other"}`: http.StatusBadRequest,
		} {
			a := r.post("/v1/responses/resp_b1/whatever", body, "Authorization", fewKey)
			if n := requestCount(stores); a.status != want || (n > before) != (want == http.StatusOK) {
				t.Errorf("%s: %d, want %d: %s", body, a.status, want, a.body)
			}
			before = requestCount(stores)
		}
	})
}

// TestABodyAboutAStoredResponseGetsNoAdditions: it has no dialect. Fields that clients may not set are
// removed.
func TestABodyAboutAStoredResponseGetsNoAdditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &recorder{next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w,
				`{"id":"resp_1","object":"response","status":"completed","output":[]}`) //nolint:errcheck // the client may have left
		})}
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: vllm", 1), k)
		r.post("/v1/responses", `{"model":"small","input":"x"}`)
		for body, want := range map[string]string{
			`{}`: `{}`, `{"reason":"late"}`: `{"reason":"late"}`, `text`: `text`, ``: ``,
			`{"kv_transfer_params":{"remote_host":"10.0.0.9"},"a":1}`: `{"a":1}`,
			`{"priority":-9}`: `{"priority":20}`,
		} {
			for _, c := range [][2]string{{http.MethodPost, "/batch/v1/responses/resp_1/cancel"},
				{http.MethodGet, "/batch/v1/responses/resp_1"}} {
				a := r.do(c[0], c[1], body, "Content-Type", "application/json")
				if _, got := k.last(); a.status != http.StatusOK || got != want {
					t.Errorf("%s %s: %d %s; the worker got %q", c[0], body, a.status, a.body, got)
				}
			}
		}
	})
}
