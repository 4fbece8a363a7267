package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/decisions"
	"tierway/engines/chaos"
	"tierway/server/admin"
)

// hookService is a service of type http.
type hookService struct {
	url string

	mu      sync.Mutex
	answer  http.HandlerFunc // reads no body
	bodies  []string
	headers []http.Header
}

// newHookService serves answers on the test's network.
func newHookService(t *testing.T, answer http.HandlerFunc) *hookService {
	s := &hookService{answer: answer}
	s.url = startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies, s.headers = append(s.bodies, string(body)), append(s.headers, r.Header.Clone())
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	})) + "/check?mode=strict"
	return s
}

// answerWith changes the answer of later calls.
func (s *hookService) answerWith(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// calls returns the bodies that the service has received.
func (s *hookService) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.bodies...)
}

// says returns a handler with a constant answer.
func says(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }
}

const (
	sayAllow  = `{"action":"allow"}`
	sayReject = `{"action":"reject","reason":"it names\u0007\n a patient"}`
)

// transformTo returns an answer that replaces the body.
func transformTo(body string) string { return `{"action":"transform","body":` + body + `}` }

// hookLine returns the entry of a hook in config.yaml.
func (s *hookService) line(name, more string) string {
	return fmt.Sprintf("{ name: %s, url: %q%s }", name, s.url, more)
}

// newHookRig is a rig with hooks in front of an engine that accepts every request.
func newHookRig(t *testing.T, yaml string, lines ...string) (*rig, *chaos.Recorder) {
	t.Helper()
	engine := chaos.Record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",`+
			`"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}))
	return newRig(t, "hooks: [ "+strings.Join(lines, ", ")+" ]\n"+yaml, engine), engine
}

// last returns the record of the last request.
func (r *rig) last() *decisions.Decision { return r.recorded().Last(1)[0] }

// sentModel returns the field of the last body that the engine has received.
func sentField(t *testing.T, engine *chaos.Recorder, field string) string {
	t.Helper()
	all := engine.Requests()
	if len(all) == 0 {
		return ""
	}
	var v map[string]json.RawMessage
	if err := json.Unmarshal(all[len(all)-1].Body, &v); err != nil {
		t.Fatal(err)
	}
	return string(v[field])
}

// leaveAfter posts a request whose client leaves after a time.
func (r *rig) leaveAfter(d time.Duration, path, body string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if resp, err := r.net.transport.RoundTrip(req); err == nil {
		r.t.Errorf("the client got %d", resp.StatusCode)
	}
}

// hookStates returns the hooks of the admin API.
func (r *rig) hookStates() []admin.HookState {
	r.t.Helper()
	got := adminRigOf(r).ops(http.StatusOK, http.MethodGet, "/admin/hooks", "")
	return decode[struct {
		Items []admin.HookState `json:"items"`
	}](r.t, got).Items
}

// withAdmins returns a configuration with the admins of an adminRig.
func withAdmins(yaml string) string {
	return fmt.Sprintf("admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }\n",
		digestHex("ops"), digestHex("eyes")) + yaml
}
