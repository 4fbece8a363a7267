package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"tierway/http1"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// fakeSender returns the answers of a function instead of using a network.
type fakeSender struct {
	answer func(ctx context.Context, r *http1.Request) (*http1.Response, error)

	mu     sync.Mutex
	sent   []*http1.Request
	closed int
}

func (f *fakeSender) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	f.mu.Lock()
	f.sent = append(f.sent, r)
	f.mu.Unlock()
	if f.answer == nil {
		return newAnswer(http.StatusOK, ""), nil
	}
	return f.answer(ctx, r)
}

func (f *fakeSender) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
}

func (f *fakeSender) last() *http1.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[len(f.sent)-1]
}

// paths returns the paths of all requests.
func (f *fakeSender) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, r := range f.sent {
		all = append(all, r.Path)
	}
	return all
}

func (f *fakeSender) count(path string) (n int) {
	for _, p := range f.paths() {
		if p == path {
			n++
		}
	}
	return n
}

func newAnswer(status int, body string) *http1.Response {
	return &http1.Response{Status: status, Header: http.Header{}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body))}
}

const canary = "sk-canary-7f3a"

func keyedSpec(url string) Spec {
	return Spec{Config: Config{Name: "small-0", URL: url, APIKeyEnv: "WORKER_KEY"}, Pool: "small", Engine: "auto",
		Key: canary}
}

func workerOver(spec Spec, f *fakeSender) *Worker {
	return newWorker(spec, func(Spec) Sender { return f }, nil)
}

func TestWorkersKeyReplacesTheClientsCredentials(t *testing.T) {
	clients := http.Header{"Authorization": {"Bearer tw-client"}, "Cookie": {"a=b"}, "X-Api-Key": {"tw-client"},
		"Proxy-Authorization": {"Basic x"}, "Accept-Encoding": {"gzip, br"}, "X-Other": {"kept"}}
	for key, want := range map[string][]string{canary: {"Bearer " + canary}, "": nil} {
		spec := keyedSpec("http://h:1/v1")
		spec.Key = key
		fake := new(fakeSender)
		answer, err := workerOver(spec, fake).Send(t.Context(),
			&http1.Request{Method: "POST", Path: "/v1/chat/completions", Header: maps.Clone(clients)})
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		got := fake.last()
		if got.Path != "/v1/chat/completions" {
			t.Errorf("sent to %s", got.Path)
		}
		if !slices.Equal(got.Header["Authorization"], want) {
			t.Errorf("Authorization %q; want %q", got.Header["Authorization"], want)
		}
		for _, name := range []string{"Cookie", "X-Api-Key", "Proxy-Authorization"} {
			if got.Header[name] != nil {
				t.Errorf("%s reached the worker", name)
			}
		}
		if got.Header.Get("Accept-Encoding") != "identity" || got.Header.Get("X-Other") != "kept" ||
			got.Header.Get("User-Agent") != "tierway" {
			t.Errorf("header %v", got.Header)
		}
	}
}

func TestClientsUserAgentIsForwarded(t *testing.T) {
	fake := new(fakeSender)
	_, err := workerOver(keyedSpec("http://h:1"), fake).Send(t.Context(),
		&http1.Request{Method: "GET", Path: "/", Header: http.Header{"User-Agent": {"OpenAI/Python"}}})
	if err != nil || fake.last().Header.Get("User-Agent") != "OpenAI/Python" {
		t.Errorf("User-Agent %q, %v", fake.last().Header.Get("User-Agent"), err)
	}
	if _, err := workerOver(keyedSpec("http://h:1"), fake).Send(t.Context(),
		&http1.Request{Method: "GET", Path: "/"}); err != nil || fake.last().Header.Get("User-Agent") != "tierway" {
		t.Errorf("no header at all: User-Agent %q, %v", fake.last().Header.Get("User-Agent"), err)
	}
}

func TestNoFormatPrintsTheKey(t *testing.T) {
	spec := keyedSpec("http://h:1")
	fleet := NewFleet(Options{})
	diff := syncAndCompare(fleet, []Spec{spec})
	w := diff.Added[0]
	var out bytes.Buffer
	values := []any{spec, &spec, []Spec{spec}, map[string]Spec{"a": spec}, struct{ S Spec }{spec}, w, diff, fleet,
		w.Spec(), w.Status()}
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("x", "value", value)
		}
		if encoded, err := json.Marshal(value); err == nil {
			out.Write(encoded)
		}
	}
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		for _, line := range strings.Split(out.String(), "\n") {
			if strings.Contains(line, canary) || strings.Contains(line, fmt.Sprintf("%x", canary)) {
				t.Errorf("the key was printed: %s", line)
			}
		}
	}
	if !strings.Contains(spec.String(), "small-0") || !strings.Contains(spec.String(), "key set") {
		t.Errorf("String() = %q", spec)
	}
	if w.String() != "small-0 (small)" || w.Spec().Key != canary {
		t.Errorf("String() = %q, key %t", w, w.Spec().Key == canary)
	}
}

func TestSpecsAndStatusesAreTheCallersCopies(t *testing.T) {
	weight := 3
	spec := keyedSpec("http://h:1")
	spec.Weight, spec.Health, spec.Models = &weight, &Health{Path: "/ping"}, []string{"m"}
	w := workerOver(spec, new(fakeSender))
	weight, spec.Health.Path, spec.Models[0] = 9, "x", "x"
	got := w.Spec()
	if *got.Weight != 3 || got.Health.Path != "/ping" || got.Models[0] != "m" {
		t.Errorf("the worker's spec changes with the caller's: %v %v", *got.Weight, got.Health)
	}
	*got.Weight, got.Health.Path, got.Models[0] = 7, "/y", "y"
	if again := w.Spec(); *again.Weight != 3 || again.Health.Path != "/ping" || again.Models[0] != "m" {
		t.Error("Spec returns the worker's own memory")
	}
	w.update(func(s *Status) { s.Models = []string{"m"} })
	w.Status().Models[0] = "z"
	if w.Status().Models[0] != "m" {
		t.Error("Status returns the worker's own memory")
	}
}

func TestUncheckedWorkerCountsAsUp(t *testing.T) {
	if s := workerOver(keyedSpec("http://h:1"), new(fakeSender)).Status(); !s.Up || !s.Since.IsZero() ||
		!s.CheckedAt.IsZero() {
		t.Errorf("status %+v", s)
	}
}
