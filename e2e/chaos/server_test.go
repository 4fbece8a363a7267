package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"tierway/config"
	"tierway/e2e/bubble"
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
// flags and by a configuration, which warns that bounds apply to each entry separately.
func TestOneServerServesSeveralTiers(t *testing.T) {
	bubble.Run(t, "flags", func(t *testing.T) {
		engine := &manyModels{}
		engine.check(t, "--model", "a:7b=small", "--model", "b:70b=large", "--worker-urls", rig.Serve(t, engine).URL)
	})
	bubble.Run(t, "file", func(t *testing.T) {
		engine := &manyModels{}
		url := rig.Serve(t, engine).URL
		path := rig.Settings{
			"auth":  `{ required: false }`,
			"store": `{ sql: "" }`,
			"tiers": fmt.Sprintf(`[ { name: small, model: "a:7b", workers: [ { name: s, url: %q } ] },
				{ name: large, model: "b:70b", workers: [ { name: l, url: %q } ] } ]`, url, url+"/v1/"),
		}.Write(t)
		file, err := config.Load(path, os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		if all := fmt.Sprint(file.Warnings()); !strings.Contains(all, "max_inflight apply to each entry separately") {
			t.Errorf("the warnings are %s", all)
		}
		engine.check(t, "-c", path)
	})
}

// check starts a gateway with arguments and sends a request for each tier and model.
func (s *manyModels) check(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
	data, _ := rig.EnvironmentOf(t).StartCommand(t, nil, args...).Addresses()
	client := rig.NewClient(t)
	for _, model := range []string{"small", "large", "b:70b", "auto"} {
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model)
		resp, err := client.Post("http://"+data+chat.path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", model, resp.StatusCode)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"a:7b", "b:70b", "b:70b", "a:7b"}; !slices.Equal(s.models, want) {
		t.Errorf("the server received requests for %v, want %v", s.models, want)
	}
	if s.checks != 1 {
		t.Errorf("the server was checked %d times at the start, want once", s.checks)
	}
}
