package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// digestOfLittle is the digest of "little".
const digestOfLittle = "180ca01b95f0dfdd36fbb600e51cf6e46c8ef468de56b017847886fefaf7b6f9"

// twoTenants serves a tier of one worker, with more that a test adds, to the
// tenants of allKey and fewKey.
const twoTenants = `
auth: { required: %t, keys: [ { name: all, sha256: ` + digestOfKey + ` }, { name: few, sha256: ` + digestOfLittle + ` } ] }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, policy: { name: round_robin }, workers: [ { name: w0, url: %q }, { name: w1, url: %q } ] }
%s
`

// shelfRig serves twoTenants over two shelves, and more for what a test adds.
func shelfRig(t *testing.T, required bool, more string) (r *rig, shelves [2]*shelf) {
	t.Helper()
	shelves = [2]*shelf{{name: "a"}, {name: "b"}}
	yaml := fmt.Sprintf(twoTenants, required, served(t, shelves[0]), served(t, shelves[1]), more)
	return newRig(t, yaml+"# %s\n"), shelves
}

// asked returns how many requests the shelves have had.
func asked(shelves [2]*shelf) int {
	_, a := shelves[0].last()
	_, b := shelves[1].last()
	return a + b
}

// TestReadingAResponseChangesNothingOfIt: its model is the one that it was made by,
// which the key that made it may use.
func TestReadingAResponseChangesNothingOfIt(t *testing.T) {
	engine := &shelf{name: "a"}
	yaml := fmt.Sprintf("auth: { keys: [ { name: all, sha256: %s, models: [small] } ] }", digestOfKey)
	r := newRig(t, strings.Replace(plain, "auth: { required: false }", yaml, 1), engine)
	if a := r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for i, ask := range []struct{ method, path string }{
		{"GET", "/v1/responses/resp_a1"}, {"GET", "/v1/responses/resp_a1"}, {"GET", "/v1/responses/resp_a1?stream=true"},
		{"POST", "/v1/responses/resp_a1/cancel"}, {"GET", "/v1/responses/resp_a1/input_items"},
		{"DELETE", "/v1/responses/resp_a1"},
	} {
		if a := r.do(ask.method, ask.path, "", "Authorization", allKey); a.status != http.StatusOK {
			t.Errorf("%d. %s %s: %d %s", i+1, ask.method, ask.path, a.status, a.body)
		}
	}
	if a := r.do("GET", "/v1/responses/resp_a1", "", "Authorization", allKey); a.status != http.StatusNotFound {
		t.Errorf("after its deletion: %d %s", a.status, a.body)
	}
}

// belowResponse are requests about the response %s, in a gateway whose pool passes
// /v1/* and /openai/*.
var belowResponse = []struct{ method, path string }{
	{"GET", "/v1/responses/%s"}, {"HEAD", "/v1/responses/%s"}, {"DELETE", "/v1/responses/%s"},
	{"PATCH", "/v1/responses/%s"}, {"POST", "/v1/responses/%s"},
	{"GET", "/v1/responses/%s/input_items"}, {"GET", "/v1/responses/%s/input_items?limit=1"},
	{"GET", "/v1/responses/%s/input_items/1"},
	{"POST", "/v1/responses/%s/cancel"}, {"GET", "/v1/responses/%s/cancel"}, {"POST", "/v1/responses/%s/whatever/comes"},
	{"GET", "/v1/responses/%s%%2Finput_items"}, {"GET", "/v1/%%72esponses/%s/input_items"},
	{"GET", "/responses/%s/input_items"}, {"GET", "/background/v1/responses/%s/input_items"},
	{"GET", "/openai/v1/responses/%s/input_items"},
}

const passesAll = `pools: [ { name: rest, paths: ["/v1/*", "/responses/*", "/background/*", "/openai/*"], workers: [ { name: r0, url: %q } ] } ]`

// TestAnotherTenantsResponseIsNotFoundAnywhere: no path about it reaches an engine,
// and its own tenant's requests reach the one that holds it.
func TestAnotherTenantsResponseIsNotFoundAnywhere(t *testing.T) {
	for _, required := range []bool{true, false} {
		rest := &shelf{name: "r"}
		r, shelves := shelfRig(t, required, fmt.Sprintf(passesAll, served(t, rest)))
		for range 3 { // the second lies on w1
			r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey)
		}
		before := asked(shelves)
		for _, ask := range belowResponse {
			path := fmt.Sprintf(ask.path, "resp_b1")
			a := r.do(ask.method, path, "", "Authorization", fewKey)
			if _, n := rest.last(); a.status != http.StatusNotFound || asked(shelves) != before || n != 0 {
				t.Errorf("required %v, %s %s: %d after %d requests of engines", required, ask.method, path, a.status,
					asked(shelves)-before+n)
			}
		}
		for _, ask := range belowResponse {
			if ask.method == "DELETE" {
				continue
			}
			path := fmt.Sprintf(ask.path, "resp_b1")
			a := r.do(ask.method, path, "", "Authorization", allKey)
			if got, _ := shelves[1].last(); a.status != http.StatusOK || !strings.HasPrefix(got, ask.method+" ") ||
				!strings.Contains(got, "resp_b1") || a.header.Get("X-Routed-To") != "w1" {
				t.Errorf("required %v, its own tenant's %s %s: %d from %q, the engine got %q", required, ask.method, path, a.status,
					a.header.Get("X-Routed-To"), got)
			}
		}
	}
}

// TestAnIDThatTwoTenantsGotReachesNoEngine: an engine that was started again counts its
// ids anew. Which of the two responses it still holds is not known.
func TestAnIDThatTwoTenantsGotReachesNoEngine(t *testing.T) {
	r, shelves := shelfRig(t, true, "")
	respond := func(key string) {
		if a := r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", key); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for range shelves { // one response each
		respond(allKey)
	}
	for _, s := range shelves {
		s.restart()
	}
	for range shelves {
		respond(fewKey)
	}
	before := asked(shelves)
	for _, key := range []string{allKey, fewKey} {
		for _, method := range []string{"GET", "DELETE"} {
			if a := r.do(method, "/v1/responses/resp_a1", "", "Authorization", key); a.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", method, a.status, a.body)
			}
		}
		if a := r.post("/v1/responses", fmt.Sprintf(followUp, "resp_a1"), "Authorization", key); a.status !=
			http.StatusNotFound {
			t.Errorf("a request that goes on with it: %d %s", a.status, a.body)
		}
	}
	if n := asked(shelves) - before; n != 0 {
		t.Errorf("the engines were asked %d times", n)
	}
}

// TestAnUnknownResponseReachesNoEngineWhereKeysAreRequired: it may be another
// tenant's, made before the gateway started.
func TestAnUnknownResponseReachesNoEngineWhereKeysAreRequired(t *testing.T) {
	rest := &shelf{name: "r"}
	r, shelves := shelfRig(t, true, fmt.Sprintf(passesAll, served(t, rest)))
	for _, ask := range belowResponse {
		if ask.method == "POST" && !strings.Contains(ask.path, "%s/") {
			continue // a POST names an action there
		}
		path := fmt.Sprintf(ask.path, "resp_x")
		if a := r.do(ask.method, path, "", "Authorization", allKey); a.status != http.StatusNotFound ||
			ask.method != "HEAD" && !strings.Contains(a.body, "_not_found") {
			t.Errorf("%s %s: %d %s", ask.method, path, a.status, a.body)
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
	if _, n := rest.last(); n+asked(shelves) != 0 {
		t.Errorf("engines had %d requests", n+asked(shelves))
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
}

// TestAnUnknownResponsePassesWhereNoKeyIsRequired: all are one tenant there, and a
// response may have been made before the gateway started.
func TestAnUnknownResponsePassesWhereNoKeyIsRequired(t *testing.T) {
	rest := &shelf{name: "r"}
	r, _ := shelfRig(t, false, fmt.Sprintf(passesAll, served(t, rest)))
	for _, ask := range belowResponse {
		path := fmt.Sprintf(ask.path, "resp_x")
		a := r.do(ask.method, path, "")
		if got, _ := rest.last(); a.status != http.StatusOK || !strings.Contains(got, "resp_x") {
			t.Errorf("%s %s: %d, the engine got %q", ask.method, path, a.status, got)
		}
	}
	for _, path := range []string{"/v1/responses", "/openai/v1/responses"} {
		for _, more := range []string{`"previous_response_id":"resp_x"`, `"conversation":"conv_x"`} {
			if a := r.post(path, `{"model":"small","input":"hi",`+more+`}`); a.status != http.StatusOK {
				t.Errorf("%s with %s: %d %s", path, more, a.status, a.body)
			}
		}
	}
}

// TestAPassedFollowUpGoesToTheWorkerThatHoldsItsResponse.
func TestAPassedFollowUpGoesToTheWorkerThatHoldsItsResponse(t *testing.T) {
	rest := [2]*shelf{{name: "r"}, {name: "s"}}
	r, _ := shelfRig(t, true,
		fmt.Sprintf(`pools: [ { name: rest, model: rest, serves: [responses], paths: ["/openai/*"], policy: { name: round_robin },
  workers: [ { name: r0, url: %q }, { name: r1, url: %q } ] } ]`, served(t, rest[0]), served(t, rest[1])))
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
}

// TestABodyAboutAnOwnResponseNamesNoOther: what passes to the worker that holds a
// response is read for rights as everything that passes.
func TestABodyAboutAnOwnResponseNamesNoOther(t *testing.T) {
	r, shelves := shelfRig(t, true, fmt.Sprintf(passesAll, served(t, &shelf{name: "r"})))
	r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey)
	r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", fewKey)
	before := asked(shelves)
	for body, want := range map[string]int{
		`{"previous_response_id":"resp_b1"}`:      http.StatusOK,
		`{"previous_response_id":"resp_a1"}`:      http.StatusNotFound,
		`{"conversation":{"id":"conv_1"}}`:        http.StatusNotFound,
		`{"extra_key":"x"}`:                       http.StatusBadRequest,
		`{"Previous_Response_ID":"resp_a1"}`:      http.StatusBadRequest,
		`{"priority":1,"priority":2,"x":"other"}`: http.StatusBadRequest,
	} {
		a := r.post("/v1/responses/resp_b1/whatever", body, "Authorization", fewKey)
		if n := asked(shelves); a.status != want || (n > before) != (want == http.StatusOK) {
			t.Errorf("%s: %d, want %d: %s", body, a.status, want, a.body)
		}
		before = asked(shelves)
	}
}

// TestABodyAboutAStoredResponseIsSentAsItCame: it is of no dialect, so nothing is added
// to it. What no client may choose is removed as everywhere.
func TestABodyAboutAStoredResponseIsSentAsItCame(t *testing.T) {
	k := &recorder{next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"resp_1","object":"response","status":"completed","output":[]}`) //nolint:errcheck // the client may have left
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
}
