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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"tierway/decisions"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// watchRig is a rig that counts what reaches its engines.
type watchRig struct {
	*rig.Rig

	mu    sync.Mutex     // guards asked
	asked map[string]int // POST requests that reached an engine, by id
}

// newRig starts n engines, each behind front unless that is nil.
func newRig(t *testing.T, n int, c engines.Config, front func(http.Handler) http.Handler) *watchRig {
	t.Helper()
	base := rig.Settings{"store": `{ sql: "" }`, "models": `{ auto: classify }`}
	r := &watchRig{asked: map[string]int{}, Rig: rig.New(t, n, c, base)}
	r.Key = rig.TenantKey
	for _, w := range r.Workers {
		var h http.Handler = w.Handler
		if front != nil {
			h = front(h)
		}
		w.Front = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPost {
				r.mu.Lock()
				r.asked[req.Header.Get("X-Request-Id")]++
				r.mu.Unlock()
			}
			h.ServeHTTP(w, req)
		})
	}
	r.Listen()
	return r
}

// beside returns the path of a file in the folder of the configuration.
func (r *watchRig) beside(name string) string { return filepath.Join(filepath.Dir(r.File), name) }

// checkSums returns an error unless the started requests of a scrape are the sum of those ended and in
// flight.
func checkSums(m gateway.Samples) error {
	started, ended, now := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"),
		m.Sum("tierway_inflight")
	if started != ended+now {
		return fmt.Errorf("%v requests have started, %v have ended and %v are in flight", started, ended, now)
	}
	return nil
}

// post posts a body to the data plane. The response must have a status.
func (r *watchRig) post(status int, path, body string, headers ...string) rig.Reply {
	r.T.Helper()
	got := r.Post(path, body, headers...)
	if got.Err != nil || got.Status != status {
		r.T.Fatalf("POST %s is %d (%v), want %d: %s", path, got.Status, got.Err, status, got.Body)
	}
	return got
}

// manage sends a request to the admin plane with its key. The response must have a status.
func (r *watchRig) manage(status int, method, path, body string) string {
	r.T.Helper()
	got, answer := r.Admin(method, path, body, rig.AdminKey)
	if got != status {
		r.T.Fatalf("%s %s is %d, want %d: %s", method, path, got, status, answer)
	}
	return answer
}

// readRecords reads records, one per line. Each must be complete.
func readRecords(t *testing.T, from io.Reader) (all []decisions.Decision) {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20) // a record of a thousand candidates has less
	for lines.Scan() {
		var d decisions.Decision
		strict := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&d); err != nil || d.SchemaVersion != decisions.SchemaVersion || d.RequestID == "" {
			t.Errorf("a line is not a record: %v\n%s", err, lines.Text())
		}
		all = append(all, d)
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return all
}

// readRecordFiles reads the file of records and its rotated files, oldest first.
func (r *watchRig) readRecordFiles(file string) (all []decisions.Decision, files int) {
	r.T.Helper()
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
			r.T.Fatal(err)
		}
		defer f.Close()
		all = append(all, readRecords(r.T, f)...)
	}
	return all, len(paths)
}

// command runs the program until it exits, with the admin key in its environment.
func command(t *testing.T, input string, args ...string) (out, problem string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, gateway.Binary(t), args...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "TIERWAY_ADMIN_KEY="+rig.AdminKey)
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
