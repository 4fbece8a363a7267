package watch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tierway/decisions"
	"tierway/e2e/gateway"
)

// chat is the body of a request for a chat whose only turn is text; more are
// further members in JSON.
func chat(model, text string, more ...string) string {
	turn := `"messages":[{"role":"user","content":` + quoted(text) + `}]`
	return "{" + strings.Join(append([]string{`"model":` + quoted(model), turn}, more...), ",") + "}"
}

// quoted is text in JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string always has an encoding
	return string(b)
}

// reply is an answer that was read as far as it came.
type reply struct {
	id     string // the request's
	status int
	header http.Header
	body   string
	err    error // of asking, or of reading
}

// url is a path of the data plane.
func (r *rig) url(path string) string { return strings.TrimSuffix(r.BaseURL, "/v1") + path }

// request makes a request of the data plane with the tenant's key and an id of its
// own, a UUID; headers are name and value in turn, of which an empty value leaves
// the header out.
func (r *rig) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, r.url(path), strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		req, _ = http.NewRequest(http.MethodGet, "/", nil) // asking it fails
		return req
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + tenantKey},
		"X-Request-Id": {fmt.Sprintf("00000000-0000-4000-8000-%012x", r.ids.Add(1))}}
	for i := 0; i+1 < len(headers); i += 2 {
		if req.Header.Del(headers[i]); headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return req
}

// send sends a request and reads its answer. It may be called on any goroutine.
func (r *rig) send(req *http.Request) reply {
	got := reply{id: req.Header.Get("X-Request-Id")}
	resp, err := r.client.Do(req)
	if err != nil {
		got.err = err
		return got
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got.status, got.header, got.body, got.err = resp.StatusCode, resp.Header, string(body), err
	return got
}

// try posts a body and reads the answer. It may be called on any goroutine.
func (r *rig) try(path, body string, headers ...string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.send(r.request(ctx, http.MethodPost, path, body, headers...))
}

// post is try whose answer has to have a status.
func (r *rig) post(status int, path, body string, headers ...string) reply {
	r.t.Helper()
	got := r.try(path, body, headers...)
	if got.err != nil || got.status != status {
		r.t.Fatalf("POST %s is %d (%v), want %d: %s", path, got.status, got.err, status, got.body)
	}
	return got
}

// manage asks the admin plane as its admin. The answer has to have a status.
func (r *rig) manage(status int, method, path, body string) string {
	r.t.Helper()
	got, answer := r.Admin(method, path, body, adminKey)
	if got != status {
		r.t.Fatalf("%s %s is %d, want %d: %s", method, path, got, status, answer)
	}
	return answer
}

// readRecords reads records, one a line. Each has to be whole.
func readRecords(t *testing.T, from io.Reader) (all []decisions.Decision) {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20) // a record of a thousand candidates has less
	for lines.Scan() {
		var d decisions.Decision
		strict := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&d); err != nil || d.SchemaVersion != decisions.SchemaVersion || d.RequestID == "" {
			t.Errorf("a line is no record: %v\n%s", err, lines.Text())
		}
		all = append(all, d)
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return all
}

// recorded reads the file of records with those that were put aside, oldest first.
func (r *rig) recorded(file string) (all []decisions.Decision, files int) {
	r.t.Helper()
	paths := []string{r.beside(file)}
	for i := 1; ; i++ {
		older := fmt.Sprintf("%s.%d", r.beside(file), i)
		if _, err := os.Stat(older); err != nil {
			break
		}
		paths = append(paths, older)
	}
	for _, path := range slices.Backward(paths) {
		f, err := os.Open(path)
		if err != nil {
			r.t.Fatal(err)
		}
		defer f.Close()
		all = append(all, readRecords(r.t, f)...)
	}
	return all, len(paths)
}

// command runs the program to its end with the admin's key in its environment.
func command(t *testing.T, input string, args ...string) (out, problem string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, gateway.Binary(t), args...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "TIERWAY_ADMIN_KEY="+adminKey)
	c.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("tierway %s: %v", strings.Join(args, " "), err)
	}
	return stdout.String(), stderr.String(), c.ProcessState.ExitCode()
}
