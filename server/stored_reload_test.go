package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tierway/config"
)

// storingEngine is an engine that stores responses. Each POST /v1/responses makes one, and each request
// below that path finds one. It records its requests with their keys.
type storingEngine struct {
	name string

	mu   sync.Mutex
	made int
	seen []string
}

func (s *storingEngine) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := q.Method + " " + q.URL.RequestURI()
	if key, ok := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer "); ok {
		line += " " + key
	}
	s.seen = append(s.seen, line)
	id := strings.TrimPrefix(q.URL.Path, "/v1/responses/")
	if q.Method == http.MethodPost && q.URL.Path == "/v1/responses" {
		s.made++
		id = fmt.Sprintf("resp_%s%d", s.name, s.made)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%q,"object":"response","status":"completed","output":[],"choices":[]}`, id)
}

// last returns the latest request and the number of requests.
func (s *storingEngine) last() (line string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = len(s.seen); n > 0 {
		line = s.seen[n-1]
	}
	return line, n
}

// restart makes the engine start its IDs at 1 again.
func (s *storingEngine) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = 0
}

const followUp = `{"model":"small","input":"go on","previous_response_id":%q}`

// TestAStoredResponseSurvivesAReload: a response belongs to the worker with that name, whatever a
// reload changes in URL, health or key.
func TestAStoredResponseSurvivesAReload(t *testing.T) {
	const yaml = `
auth: { required: false }
%s
tiers:
  - { name: small, model: fake-7b, policy: { name: round_robin }, workers: [ { name: w0, url: %q%s }, { name: w1, url: %q } ] }
`
	const off = `health: { path: "off" }`
	for what, c := range map[string]struct {
		top, worker string
		moved       bool
		key         string
	}{
		"timeouts.connect":  {top: off + "\ntimeouts: { connect: 3s }"},
		"health":            {top: `health: { path: "off", interval: 9s }`},
		"a worker's health": {top: off, worker: `, health: { path: "off", timeout: 1s }`},
		"a key":             {top: off, worker: ", api_key_env: NEW", key: " second"},
		"a URL":             {top: off, moved: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home, other, next := &storingEngine{name: "a"}, &storingEngine{name: "b"}, &storingEngine{name: "c"}
				homeURL, otherURL, nextURL := startServer(t, home), startServer(t, other), startServer(t, next)
				r, from := newReloadRig(t, fmt.Sprintf(yaml, off, homeURL, "", otherURL)+"# %s\n")
				r.source = func() (*config.File, error) {
					return config.Parse("config.yaml", []byte(from.text), func(name string) (string, bool) {
						return "second", name == "NEW"
					})
				}
				if a := r.post("/v1/responses", `{"model":"small","input":"hi"}`); !strings.Contains(a.body, "resp_a1") {
					t.Fatalf("%d %s", a.status, a.body)
				}
				if c.moved {
					homeURL, home = nextURL, next
				}
				from.write(fmt.Sprintf(yaml, c.top, homeURL, c.worker, otherURL))
				r.reload()
				for _, chatBody := range []struct{ method, path, body string }{
					{"POST", "/v1/responses", fmt.Sprintf(followUp, "resp_a1")},
					{"POST", "/v1/responses", fmt.Sprintf(followUp, "resp_a1")},
					{"GET", "/v1/responses/resp_a1", ""},
					{"POST", "/v1/responses/resp_a1/cancel", ""},
					{"DELETE", "/v1/responses/resp_a1", ""},
				} {
					a := r.do(chatBody.method, chatBody.path, chatBody.body)
					got, _ := home.last()
					if want := chatBody.method + " " + chatBody.path + c.key; a.status != http.StatusOK ||
						a.header.Get("X-Routed-To") != "w0" ||
						got != want {
						t.Errorf("%s %s: %d from %q, the engine got %q, want %q", chatBody.method, chatBody.path, a.status,
							a.header.Get("X-Routed-To"), got, want)
					}
				}
			})
		})
	}
}

// TestAResponseOfARemovedWorkerIsNotFound, even if a worker of another pool has its name now.
func TestAResponseOfARemovedWorkerIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yaml = `
auth: { keys: [ { name: acme, sha256: ` + digestOfKey + ` } ] }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ { name: %s, url: %q } ] }
  - { name: large, model: big, workers: [ { name: %s, url: %q } ] }
`
		home, other := &storingEngine{name: "a"}, &storingEngine{name: "b"}
		homeURL, otherURL := startServer(t, home), startServer(t, other)
		r, from := newReloadRig(t, fmt.Sprintf(yaml, "w0", homeURL, "w1", otherURL)+"# %s\n")
		made := r.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", "Bearer key")
		if !strings.Contains(made.body, "resp_a1") {
			t.Fatalf("%d %s", made.status, made.body)
		}
		from.write(fmt.Sprintf(yaml, "w2", homeURL, "w0", otherURL))
		r.reload()
		_, before := home.last()
		if a := r.do("GET", "/v1/responses/resp_a1", "", "Authorization", "Bearer key"); a.status != http.StatusNotFound {
			t.Errorf("GET: %d %s", a.status, a.body)
		}
		if a := r.post("/v1/responses", fmt.Sprintf(followUp, "resp_a1"), "Authorization", "Bearer key"); a.status !=
			http.StatusNotFound {
			t.Errorf("a follow-up: %d %s", a.status, a.body)
		}
		if _, n := home.last(); n != before {
			t.Errorf("the engine got %d requests", n-before)
		}
		if _, n := other.last(); n != 0 {
			t.Errorf("the worker with the name got %d requests", n)
		}
	})
}
