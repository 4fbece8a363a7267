package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Data asks a path of the data plane, without a key, and returns the status and
// the body of the answer; 0 means that nobody answered. It may be called on any
// goroutine.
func (p *Process) Data(path string) (status int, answer string) {
	return ask(http.MethodGet, strings.TrimSuffix(p.BaseURL, "/v1")+path, "", "")
}

// Get is Data for who wants the status alone.
func (p *Process) Get(path string) int {
	status, _ := p.Data(path)
	return status
}

// Admin sends a request to the admin plane with an admin key, and returns the
// status and the body of the answer; 0 means that nobody answered. A body that is
// not empty is JSON. It may be called on any goroutine.
func (p *Process) Admin(method, path, body, key string) (status int, answer string) {
	return ask(method, p.AdminURL+path, body, key)
}

func ask(method, url, body, key string) (status int, answer string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, string(b)
	}
	return resp.StatusCode, string(b)
}

// Command runs the program with arguments to its end and returns what it wrote to
// standard output. The test fails unless it ends with status 0.
func Command(t testing.TB, args ...string) string {
	t.Helper()
	p := Begin(t, nil, args...)
	if p.Status() != 0 {
		t.Fatalf("tierway %s: %s", strings.Join(args, " "), p.Log())
	}
	return p.Printed()
}
