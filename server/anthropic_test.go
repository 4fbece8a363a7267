package server

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tierway/config"
)

// anthropicServer answers like a server of Anthropic's API: every path needs its own key and a version.
type anthropicServer struct {
	mu       sync.Mutex
	paths    map[string]int
	versions map[string]bool // of the API, of messages
	bodies   []string        // of messages
	faults   []string
}

func (s *anthropicServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	version := r.Header.Get("Anthropic-Version")
	if key := r.Header.Get("X-Api-Key"); key != "worker-key" || version == "" || r.Header["Authorization"] != nil {
		s.faults = append(s.faults, r.URL.Path+" with the key "+key+", the version "+version+" and the Authorization "+
			r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch r.URL.Path {
	case "/v1/models":
		io.WriteString(w, `{"data":[{"type":"model","id":"claude-x","display_name":"X"}],"has_more":false}`)
	case "/v1/messages":
		s.versions[version] = true
		s.bodies = append(s.bodies, string(body))
		io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","stop_reason":"end_turn",`+
			`"content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":3,"output_tokens":1}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// newAnthropicRig serves a tier of a server of Anthropic's API.
func newAnthropicRig(t *testing.T, keys string) (*rig, *anthropicServer) {
	t.Helper()
	s := &anthropicServer{paths: map[string]int{}, versions: map[string]bool{}}
	url := startServer(t, s)
	yaml := func(key string) string {
		return `
store: { sql: "" }
classifier: { preset: none }
auth: { required: false }
health: { interval: 100ms, timeout: 100ms }
tiers:
  - name: small
    model: claude-x
    engine: anthropic` + keys + `
    workers: [ { name: w0, url: "` + url + `"` + key + ` } ]
# %s
`
	}
	r := newRigWith(t, yaml(""), func(o *Options) {
		file, err := config.Parse("test.yaml", []byte(yaml(", api_key_env: CLAUDE_KEY")),
			func(string) (string, bool) { return "worker-key", true })
		if err != nil {
			t.Fatal(err)
		}
		o.Config = file
	})
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.faults) > 0 {
			t.Errorf("requests were refused: %s", s.faults)
		}
	})
	return r, s
}

func TestAnthropicServerGetsItsKeyAndVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newAnthropicRig(t, "")
		r.runControl()
		w := r.member("w0").Worker
		waitUntil(t, "check that passes", func() bool { return w.Status().Passed > 1 })
		const body = `{"model":"small","max_tokens":9,"system":"s","messages":[{"role":"user","content":"hi"}]}`
		for _, headers := range [][]string{
			{"Authorization", "Bearer client", "X-Api-Key", "client"},
			{"Anthropic-Version", "2024-02-02", "Cookie", "a=b"},
		} {
			if a := r.post("/v1/messages", body, headers...); a.status != http.StatusOK || !strings.Contains(a.body, "msg_1") {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if a := r.post("/v1/chat/completions", streamedHello); a.status != http.StatusNotFound ||
			!strings.Contains(a.body, "endpoint_not_supported") {
			t.Errorf("a chat gets %d %s", a.status, a.body)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := slices.Sorted(maps.Keys(s.versions)); !slices.Equal(got, []string{"2023-06-01", "2024-02-02"}) {
			t.Errorf("the versions are %q", got)
		}
		if want := strings.Replace(body, `"small"`, `"claude-x"`, 1); s.bodies[0] != want {
			t.Errorf("without inject_cache_control the body is %s", s.bodies[0])
		}
		delete(s.paths, "/v1/models")
		delete(s.paths, "/v1/messages")
		if len(s.paths) > 0 {
			t.Errorf("the server was asked for %v", s.paths)
		}
		if models := w.Status().Models; !slices.Equal(models, []string{"claude-x"}) {
			t.Errorf("the models are %q", models)
		}
	})
}

func TestPromptsOfMessagesAreMarkedForTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newAnthropicRig(t, "\n    inject_cache_control: true")
		for _, c := range [][2]string{
			{`{"model":"small","max_tokens":9,"system":"s","messages":[{"role":"user","content":"hi"}]}`,
				`{"model":"claude-x","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],` +
					`"messages":[{"role":"user","content":"hi"}]}`},
			{`{"model":"small","max_tokens":9,"tools":[{"name":"f","input_schema":{},"cache_control":{"type":"ephemeral"}}],` +
				`"system":"s","messages":[{"role":"user","content":"hi"}]}`,
				`{"model":"claude-x","max_tokens":9,"tools":[{"name":"f","input_schema":{},"cache_control":{"type":"ephemeral"}}],` +
					`"system":"s","messages":[{"role":"user","content":"hi"}]}`},
		} {
			if a := r.post("/v1/messages", c[0]); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
			s.mu.Lock()
			if got := s.bodies[len(s.bodies)-1]; got != c[1] {
				t.Errorf("the server got  %s\nwant %s", got, c[1])
			}
			s.mu.Unlock()
		}
	})
}
