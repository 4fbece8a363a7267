package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tierway/engines"
	"tierway/tenants"
)

// The demo writes its configuration itself, so no message about a flag may send its user to a file.
func TestDemoErrorsNameFlagsAndNotAConfigurationFile(t *testing.T) {
	taken := takenAddress(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, `--listen "0.0.0.0:0": the demo listens only on loopback: write an address such as`},
		{[]string{"--admin-listen", "10.0.0.1:8081"}, `--admin-listen "10.0.0.1:8081": the demo listens only on loopback`},
		{[]string{"--listen", "127.0.0.1:http"}, `--listen "127.0.0.1:http": the demo listens only on loopback`},
		{[]string{"--listen", "127.0.0.1:9", "--admin-listen", "localhost:9"}, "command line: --admin-listen: "},
		{[]string{"--load", "60"}, "--load 60: write a number of requests per second from 0 to 50, such as 2; 0 turns"},
		{[]string{"--load", "-1"}, "--load -1: write a number of requests per second from 0 to 50"},
		{[]string{"--load", "NaN"}, "--load NaN: write a number of requests per second from 0 to 50"},
		{[]string{"--load", "some"}, `--load`},
		{[]string{"--listen", taken}, "(choose another address: --listen, or listen in a "},
	} {
		r := tierway(t, append([]string{"demo"}, c.args...)...)
		if r.status == 0 || !strings.Contains(r.messages, c.want) || strings.Contains(r.messages, "demo:") ||
			strings.Contains(r.messages, "config.yaml") {
			t.Errorf("%v: status %d, %s\nwant %q", c.args, r.status, r.messages, c.want)
		}
	}
}

// A user of a demo has no config.yaml: the greeting names the file that the demo has written.
func TestDemoGreetingNamesOnlyItsOwnConfigurationFile(t *testing.T) {
	text := greetingOf(t, demoGreeting{BaseURL: "http://127.0.0.1:8080/v1", ConfigFile: "/tmp/tierway-demo-1.yaml"})
	if !strings.Contains(text, "/tmp/tierway-demo-1.yaml\n") {
		t.Errorf("the greeting does not name the file:\n%s", text)
	}
	for _, text := range []string{text, must(t, "demo", "--help").out} {
		if strings.Contains(text, "config.yaml") || strings.Contains(text, " -c ") {
			t.Errorf("the demo names a file that it did not write:\n%s", text)
		}
	}
}

func TestDemoGreetingHasALoginLinkAndTheLoad(t *testing.T) {
	r := demoGreeting{UIURL: loginURL("http://127.0.0.1:8081", "a+b"), Load: 0.5}
	text := greetingOf(t, r)
	for _, want := range []string{"http://127.0.0.1:8081/#/login?code=a%2Bb\n", "link works once",
		"0.5 requests per second", "except for the background load"} {
		if !strings.Contains(text, want) {
			t.Errorf("the greeting lacks %q:\n%s", want, text)
		}
	}
	r.Load = 0
	text = greetingOf(t, r)
	if strings.Contains(text, "background") || !strings.HasSuffix(text, "line per request follows.\n") {
		t.Errorf("the greeting of a demo without a load names one:\n%s", text)
	}
}

// usualModels are names that clients have as defaults, examples and choices.
func usualModels() []string {
	return []string{"gpt-3.5-turbo", "gpt-4", "gpt-4-turbo", "gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini",
		"gpt-4.1-nano", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-codex", "gpt-5.1", "gpt-5.1-codex", "gpt-5.2", "gpt-5.5", "o1", "o3",
		"o3-mini", "o4-mini",
		"claude-opus-4-8", "claude-opus-4-1", "claude-sonnet-5", "claude-sonnet-4-5", "claude-haiku-4-5",
		"whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "tts-1", "tts-1-hd", "gpt-4o-mini-tts",
		"dall-e-2", "dall-e-3", "gpt-image-1", "text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002",
		"omni-moderation-latest"}
}

// Some clients offer only the names of the list.
func TestADemoListsAndServesTheUsualModels(t *testing.T) {
	d := startDemo(t)
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(d.send(t, http.MethodGet, d.BaseURL+"/models", d.Key, "")), &list); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range list.Data {
		listed = append(listed, m.ID)
	}
	for _, name := range usualModels() {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not among the models %v", name, listed)
		}
	}
	// Versions of these and names of the future need no entry.
	for _, name := range append(usualModels(), "gpt-4o-2024-08-06", "gpt-4o-mini-2024-07-18", "gpt-3.5-turbo-0125",
		"gpt-6.2-sol", "o4-mini-2025-04-16", "o5", "chatgpt-4o-latest", "codex-mini-latest", "claude-opus-4-8[1m]",
		"claude-haiku-4-5-20251001", "claude-3-5-haiku-20241022", "claude-sonnet-4-20250514", "gpt-image-1-mini",
		"text-moderation-latest", "text-embedding-4", "qwen3.5-plus") {
		answer := d.send(t, http.MethodPost, d.BaseURL+"/chat/completions", d.Key,
			`{"model":"`+name+`","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`)
		if !strings.Contains(answer, `"finish_reason":"length"`) {
			t.Errorf("%s: %s", name, answer)
		}
	}
}

func TestADisaggregatedDemoHasWorkersOfBothStages(t *testing.T) {
	d := startDemo(t, "--disaggregated")
	file, err := os.ReadFile(d.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	must(t, "check", "-c", d.ConfigFile)
	for line, n := range map[string]int{"handover: nixl": 1, "role: prefill": 2, "role: decode": 2, "- { name: medium-": 4,
		"url:": 9} {
		if got := strings.Count(string(file), line); got != n {
			t.Errorf("%q is %d times in the file, not %d times:\n%s", line, got, n, file)
		}
	}
	for _, text := range []string{"hi", strings.Repeat("a long prompt ", 2000)} {
		answer := d.send(t, http.MethodPost, d.BaseURL+"/chat/completions", d.Key,
			`{"model":"medium","max_tokens":3,"messages":[{"role":"user","content":"`+text+`"}]}`)
		if !strings.Contains(answer, `"completion_tokens":3`) || strings.Contains(answer, engines.WrongAnswer) {
			t.Errorf("%s", answer)
		}
	}
	if text := greetingOf(t, d.demoGreeting); !strings.Contains(text, "prefill engine") {
		t.Errorf("the greeting does not show the hand-over:\n%s", text)
	}
}

// Each line of the greeting that sets variables can be pasted, and its variables are what clients read.
func TestTheVariablesOfTheGreetingReachTheDemo(t *testing.T) {
	d := startDemo(t)
	set := map[string]string{}
	for line := range strings.Lines(greetingOf(t, d.demoGreeting)) {
		if assignments, ok := strings.CutPrefix(line, "export "); ok {
			for _, one := range strings.Fields(assignments) {
				name, value, _ := strings.Cut(one, "=")
				set[name] = value
			}
		}
	}
	const chat = `{"model":"auto","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`
	for _, row := range []struct{ url, key, below, want string }{
		{"OPENAI_BASE_URL", "OPENAI_API_KEY", "/chat/completions", `"object":"chat.completion"`},
		{"ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "/v1/messages", `"type":"message"`},
		{"BASE_URL", "API_KEY", "/chat/completions", `"object":"chat.completion"`},
		// The base URL of the other kind of client.
		{"OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1/messages", `"type":"message"`},
		{"ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "/chat/completions", `"object":"chat.completion"`},
	} {
		if set[row.url] == "" || set[row.key] == "" {
			t.Errorf("the greeting does not set %s and %s", row.url, row.key)
			continue
		}
		answer := d.send(t, http.MethodPost, set[row.url]+row.below, set[row.key], chat)
		if !strings.Contains(answer, row.want) {
			t.Errorf("%s%s: %s", row.url, row.below, answer)
		}
	}
}

func greetingOf(t *testing.T, g demoGreeting) string {
	t.Helper()
	var out bytes.Buffer
	if err := g.print(&out, false); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestAStoppedDemoLogsNoFault stops a demo that reads the events of all its engines, during its load.
func TestAStoppedDemoLogsNoFault(t *testing.T) {
	for _, load := range []string{"0", "50"} {
		t.Run(load, func(t *testing.T) {
			d := startDemo(t, "--load", load)
			for read := 0; read < 7; {
				state := d.get(t, "/admin/workers")
				read = strings.Count(state, `"state":"partial"`) + strings.Count(state, `"state":"complete"`)
			}
			if err := d.stop(); err != nil || d.messages.Len() > 0 {
				t.Errorf("%v\n%s", err, d.messages.String())
			}
		})
	}
}

func TestADemoRemovesItsConfigurationFileWhenItStops(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	chosen := filepath.Join(t.TempDir(), "chosen.yaml")
	for name, args := range map[string][]string{"temporary": nil, "chosen": {"--config", chosen}} {
		t.Run(name, func(t *testing.T) {
			d := startDemo(t, args...)
			info, err := os.Stat(d.ConfigFile)
			if err != nil {
				t.Fatal(err)
			}
			if args != nil && d.ConfigFile != chosen || info.Mode().Perm() != 0o600 {
				t.Errorf("%s with the mode %v", d.ConfigFile, info.Mode())
			}
			text, err := os.ReadFile(d.ConfigFile)
			if err != nil || bytes.Contains(text, []byte(tenants.TenantPrefix)) {
				t.Errorf("%v, or the file has a key:\n%s", err, text)
			}
			if err := d.stop(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(filepath.Dir(d.ConfigFile)); err != nil || len(left) > 0 {
				t.Errorf("the demo left %v, %v", left, err)
			}
		})
	}
}

func TestADemoKeepsAnExistingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	write(t, path, "mine")
	r := tierway(t, "demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--config", path)
	if text, err := os.ReadFile(path); r.status == 0 || err != nil || string(text) != "mine" ||
		!strings.Contains(r.messages, "--config \""+path+"\": the file exists") {
		t.Errorf("status %d, %s\n%q, %v", r.status, r.messages, text, err)
	}
}

func TestAnEditedDemoConfigurationIsReloaded(t *testing.T) {
	d := startDemo(t)
	text, err := os.ReadFile(d.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	write(t, d.ConfigFile, string(text)+"classifier: { default: large }\n")
	answer := d.call(t, http.MethodPost, "/admin/reload")
	if !strings.Contains(answer, `"generation":2`) || !strings.Contains(answer, "classifier.default") {
		t.Errorf("the reload returned %s", answer)
	}
}

// runningDemo is a demo in this process.
type runningDemo struct {
	demoGreeting
	messages bytes.Buffer // of the demo; read them after stop only
	cancel   context.CancelFunc
	ended    chan error
}

// startDemo returns when the demo listens. The demo ends with the test.
func startDemo(t *testing.T, args ...string) *runningDemo {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &runningDemo{cancel: cancel, ended: make(chan error, 1)}
	t.Cleanup(func() { d.stop() }) // only some tests check the end
	greeting, out := io.Pipe()
	c := root(out, &d.messages)
	c.SetArgs(append([]string{"demo", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...))
	go func() {
		err := c.ExecuteContext(ctx)
		out.CloseWithError(err)
		d.ended <- err
		close(d.ended)
	}()
	if err := json.NewDecoder(greeting).Decode(&d.demoGreeting); err != nil {
		t.Fatal(err)
	}
	return d
}

// stop ends the demo as a signal does. The first call returns its error.
func (d *runningDemo) stop() error {
	d.cancel()
	return <-d.ended
}

func (d *runningDemo) get(t *testing.T, path string) string { return d.call(t, http.MethodGet, path) }

// call returns the answer of the admin API.
func (d *runningDemo) call(t *testing.T, method, path string) string {
	t.Helper()
	return d.send(t, method, d.AdminURL+path, d.AdminKey, "")
}

func (d *runningDemo) send(t *testing.T, method, url, key, body string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+key)
	q.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
