package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// GetData sends a GET request without a key to the data plane and returns the status and the
// body of the response. Status 0 means that no complete response came. It may be called on any
// goroutine.
func (p *Process) GetData(path string) (status int, answer string) {
	return p.send(http.MethodGet, strings.TrimSuffix(p.BaseURL, "/v1")+path, "", "")
}

// GetStatus is GetData without the body.
func (p *Process) GetStatus(path string) int {
	status, _ := p.GetData(path)
	return status
}

// Admin sends a request to the admin plane with an admin key and returns the status and the
// body of the response. Status 0 means that no complete response came. body is JSON or empty.
// It may be called on any goroutine.
func (p *Process) Admin(method, path, body, key string) (status int, answer string) {
	return p.send(method, p.AdminURL+path, body, key)
}

func (p *Process) send(method, url, body, key string) (status int, answer string) {
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
	resp, err := p.launcher.client().Do(r)
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

// RunCommand runs the program with args until it exits and returns its standard output. The
// test fails unless the exit status is 0.
func RunCommand(t testing.TB, args ...string) string {
	t.Helper()
	p := StartCommand(t, nil, args...)
	if p.ExitStatus() != 0 {
		t.Fatalf("tierway %s: %s", strings.Join(args, " "), p.Log())
	}
	return p.Stdout()
}
