package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// conversationEngine is an engine that stores conversations and does not check their tenants. It records its
// requests.
type conversationEngine struct {
	name string

	mu   sync.Mutex
	made int
	seen []string
}

func (c *conversationEngine) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, q.Method+" "+q.URL.RequestURI())
	w.Header().Set("Content-Type", "application/json")
	if q.Method == http.MethodPost && q.URL.Path == "/v1/conversations" {
		c.made++
		answer := fmt.Sprintf(`{"metadata":{"id":"conv_metadata"},"object":"conversation","id":"conv_%s%d"}`, c.name, c.made)
		_, _ = io.WriteString(w, answer) // the client may have left
		return
	}
	_, _ = io.WriteString(w, `{"id":"resp_1","object":"response","status":"completed","output":[]}`)
}

func (c *conversationEngine) last() (line string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.seen); n > 0 {
		line = c.seen[n-1]
	}
	return line, n
}

// conversationYAML has a pool for conversations with two workers: tenant is its tenant, keys tells whether
// keys are required.
func conversationYAML(keys bool, tenant string, urls ...any) string {
	return fmt.Sprintf(`
auth: { required: %v, keys: [ { name: all, sha256: `+digestOfKey+` }, { name: few, sha256: `+digestOfLittle+` } ] }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, policy: { name: round_robin }, workers: [ { name: s0, url: %q } ] }
pools:
  - { name: agents, model: agent, %s serves: [responses], paths: ["/v1/conversations", "/v1/conversations/*", "/openai/*"],
      policy: { name: round_robin }, workers: [ { name: w0, url: %q }, { name: w1, url: %q } ] }
`, append([]any{keys, urls[0], tenant}, urls[1:]...)...)
}

// TestConversationStaysAtItsWorker: requests about a conversation, and responses that continue it, go to the
// worker that created it. No engine receives another tenant's request.
func TestConversationStaysAtItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keys := range []bool{true, false} {
			tenant := ""
			if keys {
				tenant = "tenant: all,"
			}
			all := [3]*conversationEngine{{name: "s"}, {name: "a"}, {name: "b"}}
			r := newRig(t, conversationYAML(keys, tenant, startServer(t, all[0]), startServer(t, all[1]),
				startServer(t, all[2]))+"# %s\n")
			for range 2 {
				a := r.post("/v1/conversations", `{"metadata":{"topic":"x"}}`, "Authorization", allKey)
				if a.status != http.StatusOK || !strings.Contains(a.body, `"id":"conv_`) {
					t.Fatalf("keys %v: %d %s", keys, a.status, a.body)
				}
			}
			requests := []struct{ method, path, body string }{
				{"GET", "/v1/conversations/conv_b1", ""}, {"POST", "/v1/conversations/conv_b1", `{"metadata":{}}`},
				{"GET", "/v1/conversations/conv_b1/items?limit=1", ""}, {"POST", "/v1/conversations/conv_b1/items", `{"items":[]}`},
				{"GET", "/openai/v1/conversations/conv_b1", ""},
				{"POST", "/v1/responses", `{"model":"agent","input":"hi","conversation":"conv_b1"}`},
				{"POST", "/v1/responses", `{"model":"agent","input":"hi","conversation":{"id":"conv_b1"}}`},
				{"POST", "/openai/v1/responses", `{"model":"agent","input":"hi","conversation":"conv_b1"}`},
				{"DELETE", "/v1/conversations/conv_b1/items/i", ""}, {"DELETE", "/v1/conversations/conv_b1", ""},
			}
			count := func() (n int) {
				for _, engine := range all {
					_, one := engine.last()
					n += one
				}
				return n
			}
			before := count()
			for _, q := range requests {
				a := r.do(q.method, q.path, q.body, "Authorization", fewKey)
				if a.status != http.StatusNotFound || count() != before {
					t.Errorf("keys %v, another tenant's %s %s %s: %d %s, %d requests of engines", keys, q.method, q.path, q.body,
						a.status, a.body, count()-before)
				}
			}
			for _, q := range requests {
				for range 2 { // round_robin would use both workers
					if q.method == "DELETE" {
						break
					}
					a := r.do(q.method, q.path, q.body, "Authorization", allKey)
					want := q.method + " " + q.path
					if q.path == "/openai/v1/responses" { // a path of Azure's clients
						want = q.method + " /v1/responses"
					}
					if got, _ := all[2].last(); a.status != http.StatusOK || got != want ||
						a.header.Get("X-Routed-To") != "w1" {
						t.Errorf("keys %v, %s %s %s: %d %s from %q, the engine got %q", keys, q.method, q.path, q.body, a.status, a.body,
							a.header.Get("X-Routed-To"), got)
					}
				}
			}
			if a := r.do("GET", "/v1/conversations/conv_b1/responses/resp_x", "", "Authorization", allKey); a.status !=
				http.StatusNotFound {
				t.Errorf("a path with two ids: %d %s", a.status, a.body)
			}
			for i, path := range []string{"/v1/conversations/conv_b1/items/i", "/v1/conversations/conv_b1"} {
				a := r.do("DELETE", path, "", "Authorization", allKey)
				if got, _ := all[2].last(); a.status != http.StatusOK || got != "DELETE "+path {
					t.Errorf("DELETE %s: %d %s, the engine got %q", path, a.status, a.body, got)
				}
				if _, responses := r.proxy.Remembered(); i == 0 && responses < 2 {
					t.Error("the deletion of an item makes the gateway forget the conversation")
				}
			}
			seen := map[string]bool{}
			for range 2 { // an unknown conversation of a private pool: the engines decide
				a := r.do("GET", "/v1/conversations/conv_b1", "", "Authorization", allKey)
				seen[a.header.Get("X-Routed-To")] = a.status == http.StatusOK
			}
			if !seen["w0"] || !seen["w1"] {
				t.Errorf("keys %v: after its deletion the conversation is at %v", keys, seen)
			}
		}
	})
}

// TestConversationsOfASharedPoolAreRefused: its engines do not separate tenants.
func TestConversationsOfASharedPoolAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := [3]*conversationEngine{{name: "s"}, {name: "a"}, {name: "b"}}
		r := newRig(t, conversationYAML(true, "", startServer(t, all[0]), startServer(t, all[1]), startServer(t, all[2]))+
			"# %s\n")
		for _, q := range []struct{ method, path, body, code string }{
			{"POST", "/v1/conversations", "{}", "unknown_url"}, {"GET", "/v1/conversations/conv_a1", "", "unknown_url"},
			{"POST", "/v1/responses", `{"model":"agent","input":"hi","conversation":"conv_a1"}`, "conversation_not_found"},
		} {
			a := r.do(q.method, q.path, q.body, "Authorization", allKey)
			if a.status != http.StatusNotFound || !strings.Contains(a.body, q.code) {
				t.Errorf("%s %s: %d %s", q.method, q.path, a.status, a.body)
			}
		}
		for _, engine := range all {
			if line, n := engine.last(); n != 0 {
				t.Errorf("an engine got %s", line)
			}
		}
	})
}

// TestAnswerToANewConversationIsRelayedUnchanged, whatever the engine sends.
func TestAnswerToANewConversationIsRelayedUnchanged(t *testing.T) {
	for what, c := range map[string]struct {
		status int
		body   string
		known  bool
	}{
		"an object":              {200, `{"id":"conv_1","object":"conversation"}`, true},
		"a creation":             {201, `{"id":"conv_1"}`, true},
		"a long object":          {200, `{"id":"conv_1","x":"` + strings.Repeat("y", 2*64<<10) + `"}`, false},
		"no JSON":                {200, "conv_1", false},
		"an object without id":   {200, `{"object":"conversation"}`, false},
		"an id of another type":  {200, `{"id":7}`, false},
		"an empty body":          {200, "", false},
		"an error":               {400, `{"id":"conv_1","error":{"message":"no"}}`, false},
		"a redirect":             {302, `{"id":"conv_1"}`, false},
		"an error of the engine": {200, `{"error":{"message":"no"}}`, false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.body)
				})
				r := newRig(t, conversationYAML(true, "tenant: all,", startServer(t, engine), startServer(t, engine),
					startServer(t, engine))+"# %s\n")
				a := r.post("/v1/conversations", "{}", "Authorization", allKey)
				_, n := r.proxy.Remembered()
				if a.status != c.status || a.body != c.body || (n == 1) != c.known {
					t.Errorf("%d with %d bytes, want %d with %d; %d are known", a.status, len(a.body), c.status, len(c.body), n)
				}
			})
		})
	}
}
