package chaos

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// archive is an engine that stores responses and files without checking the tenant. Its streams
// send their first events and then wait.
type archive struct {
	t    *testing.T
	name string
	url  string
	left atomic.Int64 // cancelled streams

	mu   sync.Mutex
	seen []string // method, path and key of each request
}

func newArchive(t *testing.T, name string) *archive {
	t.Helper()
	a := &archive{t: t, name: name}
	a.url = rig.Serve(t, a).URL
	return a
}

func (a *archive) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		a.t.Error(err)
	}
	a.mu.Lock()
	a.seen = append(a.seen,
		strings.TrimSpace(q.Method+" "+q.URL.RequestURI()+" "+strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")))
	a.mu.Unlock()
	if strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		a.sendEvent(w,
			fmt.Sprintf(
				`{"type":"response.created","sequence_number":0,"response":{"id":"resp_%s","object":"response","status":"queued"}}`,
				a.name))
		a.sendEvent(w, `{"type":"response.output_text.delta","sequence_number":1,"delta":"Once"}`)
		if strings.Contains(string(body), "break off") {
			panic(http.ErrAbortHandler)
		}
		<-q.Context().Done()
		a.left.Add(1)
		return
	}
	if q.URL.Query().Get("stream") == "true" {
		w.Header().Set("Content-Type", "text/event-stream")
		a.sendEvent(w,
			fmt.Sprintf(
				`{"type":"response.completed","sequence_number":2,"response":{"id":"resp_%s","object":"response","status":"completed"}}`, a.name))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"resp_%s","object":"response","status":"completed","output":[]}`, a.name)
}

// sendEvent sends one event.
func (a *archive) sendEvent(w http.ResponseWriter, data string) {
	fmt.Fprintf(w, "data: %s\n\n", data)
	if err := http.NewResponseController(w).Flush(); err != nil {
		a.t.Error(err)
	}
}

// last returns the latest request and the number of requests.
func (a *archive) last() (line string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n = len(a.seen); n > 0 {
		line = a.seen[n-1]
	}
	return line, n
}

// keysOfTwo returns the setting auth with two tenants, acme and evil.
func keysOfTwo() string {
	return fmt.Sprintf("{ keys: [ { name: acme, sha256: %s }, { name: evil, sha256: %s } ] }", rig.Digest("acme-key"),
		rig.Digest("evil-key"))
}

const acme, evil = "Bearer acme-key", "Bearer evil-key"

// archiveTiers returns the setting tiers with archives as workers. more is added to each worker.
func archiveTiers(more string, all ...*archive) string {
	var list []string
	for i, a := range all {
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q%s }", i, a.url, more))
	}
	return "[ { name: small, model: sim, serves: [chat, responses], workers: [ " + strings.Join(list, ", ") + " ] } ]"
}

// TestStoredResponsesOutliveAReload: a stored response belongs to its worker's name. A reload may
// change the worker's URL, key, timeouts or health checks.
func TestStoredResponsesOutliveAReload(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		home, other, moved := newArchive(t, "a"), newArchive(t, "b"), newArchive(t, "c")
		own := rig.Settings{"auth": keysOfTwo(), "tiers": archiveTiers("", home, other)}
		r := newRig(t, 0, own, engines.Config{}, "SECOND_KEY=second")
		if got := r.post("/v1/responses", `{"model":"sim","input":"hello"}`, "Authorization",
			acme); !strings.Contains(got.Body, "resp_a") {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		base := rig.Settings{"health": `{ path: "off" }`, "policy": `{ name: round_robin }`,
			"drain": `{ accept_grace: 1ms, timeout: 5s }`, "auth": own["auth"]}
		for i, c := range []struct {
			what, key  string
			key2, tier string
			holder     *archive
		}{
			{"timeouts", "timeouts", `{ connect: 4s }`, archiveTiers("", home, other), home},
			{"health", "health", `{ path: "off", interval: 9s }`, archiveTiers("", home, other), home},
			{"key", "timeouts", `{ connect: 4s }`, archiveTiers(", api_key_env: SECOND_KEY", home, other), home},
			{"url", "timeouts", `{ connect: 4s }`, archiveTiers("", moved, other), moved},
		} {
			file := rig.Settings{c.key: c.key2, "tiers": c.tier}
			for k, v := range base {
				if file[k] == "" {
					file[k] = v
				}
			}
			if err := os.WriteFile(r.File, []byte(file.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			r.Signal(syscall.SIGHUP)
			rig.Eventually(t, func() error {
				if m, err := r.Metrics(); err != nil || m.Sum("tierway_config_generation") < float64(i+2) {
					return fmt.Errorf("the reload of %s is not done (%w): %s", c.what, err, r.Log())
				}
				return nil
			})
			for _, ask := range []struct{ method, path, body string }{
				{"POST", "/v1/responses", `{"model":"sim","input":"go on","previous_response_id":"resp_a"}`},
				{"GET", "/v1/responses/resp_a", ""}, {"POST", "/v1/responses/resp_a/cancel", ""},
			} {
				got := r.do(ask.method, ask.path, ask.body, "Authorization", acme)
				want := ask.method + " " + ask.path
				if c.what == "key" {
					want += " second"
				}
				if line, _ := c.holder.last(); got.Status != http.StatusOK || line != want {
					t.Errorf("after a change of %s, %s %s: %d, the worker got %q, want %q", c.what, ask.method, ask.path, got.Status,
						line, want)
				}
			}
		}
	})
}

// TestStreamedResponseCanBeReadDuringItsStream, and after its client has disconnected.
func TestStreamedResponseCanBeReadDuringItsStream(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		engine := newArchive(t, "a")
		r := newRig(t, 0, rig.Settings{"auth": keysOfTwo(), "tiers": archiveTiers("", engine)}, engines.Config{})
		s := r.stream("/v1/responses", `{"model":"sim","input":"hello","stream":true,"background":true}`, "Authorization",
			acme)
		s.ReadUntil("response.created")
		ask := func(when string) {
			t.Helper()
			for _, c := range []struct{ method, path, part string }{
				{"GET", "/v1/responses/resp_a", `"id":"resp_a"`},
				{"GET", "/v1/responses/resp_a?stream=true&starting_after=1", "response.completed"},
				{"POST", "/v1/responses/resp_a/cancel", `"id":"resp_a"`},
			} {
				got := r.do(c.method, c.path, "", "Authorization", acme)
				if line, _ := engine.last(); got.Status != http.StatusOK || !strings.Contains(got.Body, c.part) ||
					line != c.method+" "+c.path {
					t.Errorf("%s, %s %s: %d %s", when, c.method, c.path, got.Status, got.Body)
				}
				if got := r.do(c.method, c.path, "", "Authorization", evil); got.Status != http.StatusNotFound {
					t.Errorf("%s, another tenant's %s %s: %d %s", when, c.method, c.path, got.Status, got.Body)
				}
			}
		}
		ask("while it is made")
		s.Cancel()
		rig.Eventually(t, func() error {
			if engine.left.Load() == 0 {
				return fmt.Errorf("the engine still has its client")
			}
			return nil
		})
		ask("after its client left")
	})
}

// TestNoTenantReachesAnothersObjects on any path, nor after a restart, which loses the owners of
// responses.
func TestNoTenantReachesAnothersObjects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		engine, rest, own := newArchive(t, "a"), newArchive(t, "b"), newArchive(t, "c")
		data, admin := rig.Address(t), rig.Address(t)
		file := rig.Settings{"auth": keysOfTwo(), "health": `{ path: "off" }`, "drain": `{ accept_grace: 1ms, timeout: 5s }`,
			"tiers": archiveTiers("", engine),
			"pools": fmt.Sprintf(
				`[ { name: rest, paths: ["/v1/*"], workers: [ { name: r0, url: %q } ] }, { name: own, paths: ["/v1/files", "/v1/files/*"], tenant: acme, workers: [ { name: o0, url: %q } ] } ]`, rest.url, own.url)}
		p := rig.WorldOf(t).StartAt(t, data, admin, file.String())
		r := rigOf(t, p)
		if got := r.post("/v1/responses", `{"model":"sim","input":"hello"}`, "Authorization", acme); got.Status !=
			http.StatusOK {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		below := []struct{ method, path, body string }{
			{"GET", "/v1/responses/resp_a", ""}, {"GET", "/v1/responses/resp_a/input_items", ""},
			{"HEAD", "/v1/responses/resp_a", ""},
			{"POST", "/v1/responses/resp_a/cancel", ""}, {"GET", "/v1/responses/resp_a/whatever", ""},
			{"POST", "/v1/responses", `{"model":"sim","input":"go on","previous_response_id":"resp_a"}`},
		}
		check := func(when, key string, want int) {
			t.Helper()
			for _, ask := range below {
				_, before := engine.last()
				got := r.do(ask.method, ask.path, ask.body, "Authorization", key)
				_, after := engine.last()
				if _, n := rest.last(); got.Status != want || n != 0 || (after > before) != (want == http.StatusOK) {
					t.Errorf("%s, %s %s with %q: %d, want %d; its engine got %d requests, others %d", when, ask.method, ask.path, key,
						got.Status, want, after-before, n)
				}
			}
		}
		check("at first", acme, http.StatusOK)
		check("at first", evil, http.StatusNotFound)
		for _, ask := range []struct {
			path, key string
			want      int
		}{
			{"/v1/files", acme, 200}, {"/v1/files/file-1/content", acme, 200}, {"/v1/files", evil, 404},
			{"/v1/files/file-1/content", evil, 404},
			{"/v1/batches", acme, 404}, {"/v1/conversations/conv_1/items", acme, 404}, {"/v1/version", evil, 200},
		} {
			if got := r.do("GET", ask.path, "", "Authorization", ask.key); got.Status != ask.want {
				t.Errorf("GET %s with %q: %d, want %d", ask.path, ask.key, got.Status, ask.want)
			}
		}
		if _, n := rest.last(); n != 1 {
			t.Errorf("the shared engine got %d requests, want the one for its version", n)
		}
		rest.mu.Lock()
		rest.seen = nil
		rest.mu.Unlock()
		r.Process = p.StartAgain()
		check("after a restart", acme, http.StatusNotFound)
		check("after a restart", evil, http.StatusNotFound)
		if got := r.post("/v1/responses", below[5].body, "Authorization", acme); !strings.Contains(got.Body,
			`"code":"previous_response_not_found"`) {
			t.Errorf("the answer says %s", got.Body)
		}
	})
}

// TestCutResponsesStreamEndsWithResponseFailed: response.failed has the response's id and the next
// sequence number, for clients that read no other error.
func TestCutResponsesStreamEndsWithResponseFailed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 0, rig.Settings{"tiers": archiveTiers("", newArchive(t, "a"))}, engines.Config{})
		got := r.post("/v1/responses", `{"model":"sim","input":"break off","stream":true}`)
		all := events(got.Body)
		if len(all) != 4 || all[2].name != "error" || all[3].name != "response.failed" ||
			!strings.Contains(all[2].data, `"sequence_number":2`) ||
			!strings.HasPrefix(all[3].data,
				`{"type":"response.failed","sequence_number":3,"response":{"id":"resp_a","object":"response","status":"failed","error":{"code":"worker_error","message":`) {
			t.Errorf("the events are %q", all)
		}
	})
}

// TestActionsBelowResponsesAreForwarded: known actions are forwarded to an engine of the dialect;
// unknown ones are 404.
func TestActionsBelowResponsesAreForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		engine := newArchive(t, "a")
		r := newRig(t, 0, rig.Settings{"tiers": archiveTiers("", engine)}, engines.Config{})
		for path, want := range map[string]int{"/v1/responses/input_tokens": 200, "/v1/responses/compact": 200,
			"/responses/compact": 200, "/v1/responses/other": 404} {
			got := r.post(path, `{"model":"sim","input":"hello"}`)
			if line, _ := engine.last(); got.Status != want || want == 200 && !strings.HasPrefix(line, "POST /v1/responses/") {
				t.Errorf("POST %s: %d %s, the engine got %q", path, got.Status, got.Body, line)
			}
		}
	})
}
