package sdk_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
)

const (
	openaiGo = "github.com/openai/openai-go/v3"
	// suiteTime bounds building and running the suite; a build from nothing
	// takes most of it.
	suiteTime = 8 * time.Minute
	// recordedModel is the name that the recorder's pool is sent.
	recordedModel = "recorded-model"
)

// suitePackages returns the packages of openai-go with tests that need a server.
func suitePackages() []string {
	return []string{openaiGo, openaiGo + "/responses", openaiGo + "/conversations", openaiGo + "/realtime"}
}

// answeredByTheGateway returns the requests that the gateway does not forward, with the reason.
func answeredByTheGateway() map[string]string {
	return map[string]string{
		"GET /v1":                    "the suite's probe whether anything listens; not below /v1/*",
		"GET /v1/models":             "the catalogue is the gateway's own",
		"GET /v1/models/gpt-4o-mini": "the catalogue is the gateway's own",
	}
}

// routedPaths returns the paths that are routed by model, which the gateway rewrites. Requests to other
// paths pass through unchanged.
func routedPaths() []string {
	return []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/input_tokens",
		"/v1/responses/compact", "/v1/embeddings", "/v1/moderations",
		"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech",
		"/v1/images/generations", "/v1/images/edits", "/v1/images/variations"}
}

// TestOpenAIGoSuiteIsForwardedByteForByte runs openai-go's own tests twice, against a recorder and
// through the gateway, and compares the recorded requests.
func TestOpenAIGoSuiteIsForwardedByteForByte(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	s := buildSuite(ctx, t)
	var direct, behind recorder
	directURL, behindURL := startEngine(t, &direct), startEngine(t, &behind)
	p := gateway.Serve(t, fmt.Sprintf(`
auth: { required: false }
drain: { accept_grace: 10ms, timeout: 5s }
retry: { attempts: 1 }
pools:
  - name: all
    model: %s
    models: [gpt-4o-mini]
    serves: [chat, completions, responses, embeddings, moderations, images, audio]
    paths: ["/v1/*"]
    workers: [ { name: recorder, url: %q } ]
models: { "*": all }
`, recordedModel, behindURL))

	var results [2]suiteResult
	var runs sync.WaitGroup
	for i, base := range []string{directURL + "/v1", p.BaseURL} {
		runs.Go(func() { results[i] = s.run(ctx, base) })
	}
	runs.Wait()
	for i, way := range []string{"direct", "through the gateway"} {
		if r := results[i]; r.err != nil || len(r.passed) == 0 || len(r.failed)+len(r.skipped) > 0 {
			t.Errorf("%s: %d passed, failed: %v, skipped: %v, error: %v\n%s", way, len(r.passed), r.failed, r.skipped, r.err,
				r.log)
		}
	}
	if !slices.Equal(results[0].passed, results[1].passed) {
		t.Errorf("other tests passed directly (%d) than through the gateway (%d)", len(results[0].passed),
			len(results[1].passed))
	}
	own, forwarded, complaints := compare(direct.take(), behind.take())
	const shown = 6 // a fault that changes one request often changes all of them
	for _, c := range complaints[:min(shown, len(complaints))] {
		t.Error(c)
	}
	if n := len(complaints) - shown; n > 0 {
		t.Errorf("and %d more", n)
	}
	for name := range answeredByTheGateway() {
		if own[name] == 0 {
			t.Errorf("%s stands in the table of what the gateway answers and was never sent", name)
		}
	}
	if forwarded == 0 {
		t.Error("the suite sent nothing")
	}
	t.Logf("openai-go suite: %d tests direct, %d through the gateway; %d requests equal byte for byte but for the "+
		"model; %d answered by the gateway: %v",
		len(results[0].passed), len(results[1].passed), forwarded, total(own), own)
}

// compare returns the number of requests that the gateway answered itself, by name, the number of
// forwarded requests, and all differences.
func compare(direct, behind []recorded) (own map[string]int, forwarded int, complaints []string) {
	own = map[string]int{}
	missing := map[string]int{} // by fingerprint; below zero: too many
	for _, r := range direct {
		if answeredByTheGateway()[r.route()] != "" {
			own[r.route()]++
			continue
		}
		if where, _, _ := strings.Cut(r.target, "?"); slices.Contains(routedPaths(), where) {
			renamed, err := r.withModel(recordedModel)
			if err != nil {
				complaints = append(complaints, fmt.Sprintf("%s: %v", r.route(), err))
			}
			r = renamed
		}
		missing[r.fingerprint()]++
		forwarded++
	}
	for _, r := range behind {
		for _, secret := range []string{"Authorization", "X-Api-Key", "Cookie"} {
			if r.header.Get(secret) != "" {
				complaints = append(complaints, fmt.Sprintf("%s: the worker got the client's %s", r.route(), secret))
			}
		}
		missing[r.fingerprint()]--
	}
	for _, f := range slices.Sorted(maps.Keys(missing)) {
		switch n := missing[f]; {
		case n > 0:
			complaints = append(complaints, fmt.Sprintf("%d requests were sent directly and not forwarded like this:\n%s", n, f))
		case n < 0:
			complaints = append(complaints, fmt.Sprintf("%d forwarded requests equal no sent request:\n%s", -n, f))
		}
	}
	return own, forwarded, complaints
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// startEngine serves a handler until the test ends and returns its URL.
func startEngine(t *testing.T, h http.Handler) string {
	t.Helper()
	s, err := engines.Start(h, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s.URL
}

// suite holds openai-go's tests, compiled once for both runs.
type suite struct {
	binaries, folders []string // one a package; tests run in their package's folder
}

// suiteResult is the result of one run.
type suiteResult struct {
	passed, failed, skipped []string
	log                     string // of what failed
	err                     error
}

// buildSuite compiles the tests in the module that pins them.
func buildSuite(ctx context.Context, t *testing.T) *suite {
	t.Helper()
	root, err := gateway.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if pinned, used := versionOf(ctx, t, filepath.Join(root, "e2e", "openaigo")), versionOf(ctx, t, root); pinned != used {
		t.Fatalf(
			"the suite is pinned at %s and the tests use %s: the versions in go.mod and e2e/openaigo/go.mod have to be equal",
			pinned, used)
	}
	command := func(args ...string) string {
		c := exec.CommandContext(ctx, "go", append(args, suitePackages()...)...)
		c.Dir = filepath.Join(root, "e2e", "openaigo")
		var out, messages bytes.Buffer
		c.Stdout, c.Stderr = &out, &messages
		if err := c.Run(); err != nil {
			t.Fatalf("go %v: %v\n%s%s", args, err, &out, &messages)
		}
		return out.String()
	}
	command("test", "-c", "-o", dir+string(os.PathSeparator))
	s := &suite{folders: strings.Fields(command("list", "-f", "{{.Dir}}"))}
	for line := range strings.Lines(command("list", "-f", "{{.Name}} {{.ImportPath}}")) {
		_, pkg, _ := strings.Cut(strings.TrimSpace(line), " ")
		name := path.Base(pkg)
		if pkg == openaiGo {
			name = path.Base(path.Dir(pkg)) // a version's folder lends its name to nothing
		}
		s.binaries = append(s.binaries, filepath.Join(dir, name+".test"))
	}
	return s
}

// versionOf returns the version of openai-go that a module requires.
func versionOf(ctx context.Context, t *testing.T, module string) string {
	t.Helper()
	c := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", openaiGo)
	c.Dir = module
	out, err := c.Output()
	if err != nil {
		t.Fatalf("asking %s for its openai-go: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// clocked are the tests of openai-go that fail if the machine is busy: a call must return within 30 ms after its
// deadline. They send nothing to a server.
const clocked = "^TestContextDeadline"

// run runs the packages one after the other.
func (s *suite) run(ctx context.Context, base string) (r suiteResult) {
	for i, binary := range s.binaries {
		c := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=5m", "-test.skip="+clocked)
		c.Dir = s.folders[i]
		c.Env = append(os.Environ(), "TEST_API_BASE_URL="+base)
		out, err := c.CombinedOutput()
		name := filepath.Base(binary)
		r.read(name, out)
		if err != nil {
			r.err = fmt.Errorf("running %s: %w", name, err)
		}
	}
	slices.Sort(r.passed)
	return r
}

// read collects the results of the top-level tests and the output of the failed ones.
func (r *suiteResult) read(name string, out []byte) {
	said := ""
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(line, "---") {
			if !strings.HasPrefix(line, "===") {
				said += line
			}
			continue
		}
		test := name + " " + fields[2]
		switch fields[1] {
		case "PASS:":
			r.passed = append(r.passed, test)
		case "SKIP:":
			r.skipped = append(r.skipped, test)
		default:
			r.failed = append(r.failed, test)
			r.log += line + said
		}
		said = ""
	}
}
