package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// manyModels is one server with several models, like Ollama and llama-swap.
type manyModels struct {
	mu     sync.Mutex
	models []string // models of the requests, in order
	checks int
}

func (s *manyModels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/health" {
		s.checks++
		return
	}
	var body struct{ Model string }
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&body) != nil {
		http.NotFound(w, r)
		return
	}
	s.models = append(s.models, body.Model)
	fmt.Fprintf(w,
		`{"id":"c1","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"finish_reason":"stop",`+
			`"message":{"role":"assistant","content":"Yes."}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`, body.Model)
}

// TestOneServerServesSeveralTiers starts a gateway in front of one server with two models, by
// flags and by a configuration. `tierway check` warns that bounds apply to each entry separately.
func TestOneServerServesSeveralTiers(t *testing.T) {
	t.Parallel()
	engine := &manyModels{}
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	file := rig.Settings{
		"auth":  `{ required: false }`,
		"store": `{ sql: "" }`,
		"tiers": fmt.Sprintf(
			`[ { name: small, model: "a:7b", workers: [ { name: s, url: %q } ] }, { name: large, model: "b:70b", workers: [ { name: l, url: %q } ] } ]`, server.URL, server.URL+"/v1/"),
	}.Write(t)
	check := gateway.StartCommand(t, nil, "check", "-c", file)
	if status := check.ExitStatus(); status != 0 ||
		!strings.Contains(check.Log()+check.Stdout(), "max_inflight apply to each entry separately") {
		t.Errorf("check: status %d: %s%s", status, check.Stdout(), check.Log())
	}
	listen := []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
	for name, args := range map[string][]string{
		"flags": append([]string{"serve", "--model", "a:7b=small", "--model", "b:70b=large", "--worker-urls", server.URL},
			listen...),
		"file": append([]string{"serve", "-c", file}, listen...),
	} {
		t.Run(name, func(t *testing.T) {
			engine.mu.Lock()
			engine.models, engine.checks = nil, 0
			engine.mu.Unlock()
			p := gateway.StartCommand(t, nil, args...)
			data, _ := p.Addresses()
			for _, model := range []string{"small", "large", "b:70b", "auto"} {
				body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model)
				resp, err := http.Post("http://"+data+chat.path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: status %d", model, resp.StatusCode)
				}
			}
			engine.mu.Lock()
			defer engine.mu.Unlock()
			if want := []string{"a:7b", "b:70b", "b:70b", "a:7b"}; !slices.Equal(engine.models, want) {
				t.Errorf("the server received requests for %v, want %v", engine.models, want)
			}
			if engine.checks != 1 {
				t.Errorf("the server was checked %d times at the start, want once", engine.checks)
			}
		})
	}
}
