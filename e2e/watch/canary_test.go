package watch

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines/chaos"
)

// TestTelemetryHasNoSecretsAndNoPrompts: OB-01, OB-02, OB-04: words are planted as prompts, answers,
// keys and passwords, in successful and in failed requests. None of them appears in the gateway's
// telemetry.
func TestTelemetryHasNoSecretsAndNoPrompts(t *testing.T) {
	c := newCanary(t)
	c.start()
	c.createKeys()
	c.sendPrompts()
	c.sendFailures()
	c.sendBadKeys()
	c.sendBroken()
	c.runOperators()
	c.WaitUntilIdle()
	c.searchEverything()
}

// sendPrompts sends requests in every dialect with planted texts in every part.
func (c *canary) sendPrompts() {
	c.T.Helper()
	for path, body := range c.bodies() {
		for _, stream := range []string{"false", "true"} {
			got := c.Post(path, strings.Replace(body, `"stream":false`, `"stream":`+stream, 1), c.credentials()...)
			if got.Err != nil || got.Status != http.StatusOK {
				c.T.Errorf("%s is %d (%v): %s", path, got.Status, got.Err, got.Body)
			}
			c.search(c.T, "the answer of "+path, got.Body+fmt.Sprint(got.Header), true)
		}
	}
	got := c.Post("/v1/chat/completions?api_key="+c.secret("key in a query")+"&q="+c.text("query"),
		rig.Chat("any-"+"model", c.text("prompt"), `"stream":false`), c.credentials()...)
	if !strings.Contains(got.Body, c.spoken) {
		c.T.Errorf("the engine's answer is missing: %s", got.Body)
	}
	c.search(c.T, "the answer to a request with a query", got.Body, true)
}

// bodies returns request bodies by path, with a planted text in every part that can hold text.
func (c *canary) bodies() map[string]string {
	picture := base64.StdEncoding.EncodeToString([]byte(c.text("picture")))
	parts :=
		fmt.Sprintf(`[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":"https://example.com/%s.png"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]`,
			c.text("text of a part"), c.text("URL of a picture"), picture)
	tools :=
		fmt.Sprintf(`[{"type":"function","function":{"name":"look","description":%q,"parameters":{"type":"object","properties":{%q:{"type":"string"}}}}}]`,
			c.text("description of a tool"), c.text("parameter of a tool"))
	return map[string]string{
		"/v1/chat/completions": fmt.Sprintf(`{"model":"auto","stream":false,"user":%q,"metadata":{"a":%q},"prompt_cache_key":%q,"stop":[%q],"tools":%s,"messages":[
			{"role":"system","content":%q},{"role":"user","content":%q},
			{"role":"assistant","content":null,"tool_calls":[{"id":%q,"type":"function","function":{"name":"look","arguments":%q}}]},
			{"role":"tool","tool_call_id":"x","content":%q},{"role":"user","content":%s}]}`,
			c.text("user"), c.text("metadata"), c.text("cache key"), c.text("stop word"), tools, c.text("system prompt"),
			c.text("prompt"),
			c.text("id of a call"), `{"q":"`+c.text("arguments of a call")+`"}`, c.text("result of a tool"), parts),
		"/v1/completions": fmt.Sprintf(`{"model":"sim","stream":false,"prompt":%q,"suffix":%q}`,
			c.text("prompt of a completion"), c.text("suffix")),
		"/v1/messages": fmt.Sprintf(`{"model":"auto","stream":false,"max_tokens":50,"metadata":{"user_id":%q},"system":[{"type":"text","text":%q}],"messages":[{"role":"user","content":[{"type":"text","text":%q}]}]}`,
			c.text("user of a message"), c.text("system prompt of a message"), c.text("prompt of a message")),
		"/v1/responses": fmt.Sprintf(`{"model":"auto","stream":false,"instructions":%q,"input":[{"role":"user","content":[{"type":"input_text","text":%q}]}]}`,
			c.text("instructions"), c.text("input of a response")),
		"/v1/embeddings": fmt.Sprintf(`{"model":"sim","input":[%q]}`, c.text("input of an embedding")),
		"/v1/rerank": fmt.Sprintf(`{"model":"sim","query":%q,"documents":[%q]}`, c.text("query of a ranking"),
			c.text("document")),
		"/v1/messages/count_tokens": fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":%q}]}`,
			c.text("prompt that is counted")),
	}
}

// sendFailures sends requests that fail in the gateway, in the engine or in between.
func (c *canary) sendFailures() {
	c.T.Helper()
	const path = "/v1/chat/completions"
	prompt := func() string { return c.text("prompt of a failure") }
	for _, how := range []string{"", " in a stream", " in a header", " as no JSON", " as a refusal", " with its key",
		" as a refusal with its key", " with its headers"} {
		for _, stream := range []string{"false", "true"} {
			got := c.Post(path, rig.Chat("sim", echoing+how+prompt(), `"stream":`+stream), c.credentials()...)
			c.search(c.T, "an engine's error"+how, got.Body+fmt.Sprint(got.Header), true)
		}
	}
	for _, body := range []string{
		`{"model":"sim","messages":[{"role":"user","content":"` + prompt(), // cut off
		`{"model":"sim","messages":"` + prompt() + `"}`, `{"model":"sim","messages":[{"role":"` + prompt() +
			`","content":"x"}]}`,
		`{"model":["` + prompt() + `"]}`, `{"model":"` + prompt() + `","messages":[{"role":"user","content":"x"}]}`, prompt(),
		`{"model":"sim","stream":"` + prompt() + `","messages":[]}`, `{"model":"sim","max_tokens":"` + prompt() +
			`","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"sim","priority":"` + prompt() + `","messages":[{"role":"user","content":"x"}]}`,
		`{"` + prompt() + `":1,"model":"sim"}`,
		rig.Chat("sim", "x", `"model":"`+prompt()+`"`),
	} {
		got := c.Post(path, body, c.credentials("X-Model-Tier", prompt(), "X-Request-Priority", prompt())...)
		// Some requests succeed, and the error for an unknown model has its name.
		own := got.Status == http.StatusOK || got.Status == http.StatusNotFound
		c.search(c.T, "the refusal of "+path, got.Body+fmt.Sprint(got.Header), own)
	}
	for _, at := range []string{"/v1/" + prompt(), "/v1/responses/" + prompt(), "/v1/models/" + prompt(),
		"/" + prompt() + "?" + prompt()} {
		got := c.Send(c.Request(c.T.Context(), http.MethodGet, at, "", c.credentials()...))
		c.search(c.T, "the refusal of a path", got.Body, true)
	}
	c.Post("/v1/audio/transcriptions", prompt(),
		c.credentials("Content-Type", "multipart/form-data; boundary="+prompt())...)
	c.Post(path, rig.Chat("sim", "x"), c.credentials("Content-Type", prompt(), "Content-Encoding", prompt())...)
	for _, k := range []chaos.Fault{{Kind: chaos.Reset}, {Kind: chaos.Reset, After: 2}, {Kind: chaos.Garbage},
		{Kind: chaos.Malformed, After: 1}, {Kind: chaos.ErrorEvent, After: 1}} {
		for _, w := range c.Workers {
			if err := w.Set(k); err != nil {
				c.T.Fatal(err)
			}
		}
		c.Post(path, rig.Chat("sim", prompt(), `"stream":true`), c.credentials()...)
	}
	for _, w := range c.Workers {
		if err := w.Set(); err != nil {
			c.T.Fatal(err)
		}
	}
}

// sendBadKeys sends requests with invalid keys of every kind.
func (c *canary) sendBadKeys() {
	c.T.Helper()
	for _, headers := range [][]string{
		{"Authorization", "Bearer " + c.bad}, {"Authorization", c.bad},
		{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+c.bad))},
		{"Authorization", "Bearer " + c.bad + " " + c.bad}, {"Authorization", "", "X-Api-Key", c.bad},
		{"Authorization", "Bearer tw-" + c.bad}, {"Authorization", "Bearer tw-adm-" + c.bad + "-000000"},
		{"Authorization", "Bearer " + c.key + " "}, {"Authorization", "Bearer " + rig.AdminKey},
		{"Authorization", "", "Api-Key", c.bad}, {"Authorization", "Bearer " + c.key, "X-Api-Key", c.bad},
	} {
		got := c.Post("/v1/chat/completions", rig.Chat("sim", c.text("stranger's prompt")),
			append([]string{"Cookie", "k=" + c.cookie}, headers...)...)
		c.search(c.T, "the refusal of a key", got.Body+fmt.Sprint(got.Header), got.Status == http.StatusOK)
	}
	for _, key := range []string{c.bad, c.key, "tw-adm-" + c.bad} {
		for _, path := range []string{"/admin/config", "/admin/decisions/stream", "/admin/" + c.bad, "/admin/status?key=" +
			c.bad} {
			_, told := c.Admin(http.MethodGet, path, "", key)
			c.search(c.T, "the refusal of an operator", told, false)
		}
	}
}

// searchEverything searches all telemetry of the gateway for planted words.
func (c *canary) searchEverything() {
	c.T.Helper()
	_, metrics := c.Admin(http.MethodGet, "/metrics", "", "")
	c.search(c.T, "/metrics", metrics, false)
	c.searchAdminAPI()
	rig.Eventually(c.T, func() error {
		if n, spans := c.Sum("tierway_trace_queue"), c.Sum("tierway_trace_spans_total", `result="exported"`); n != 0 ||
			spans == 0 {
			return fmt.Errorf("%v spans wait for export, %v are exported", n, spans)
		}
		return nil
	})
	c.Stop() // writes all buffered records
	c.search(c.T, "a span", c.collector.received(), false)
	c.search(c.T, "the log", c.Log(), false)
	c.search(c.T, "the access log", c.Stdout(), false)
	c.checkLogsUnforged()
	for _, name := range []string{"decisions.jsonl", database, database + "-wal"} {
		b, err := os.ReadFile(filepath.Clean(c.beside(name)))
		if errors.Is(err, os.ErrNotExist) && name != database {
			continue // the write-ahead log was merged into the database
		}
		if err != nil || len(b) == 0 {
			c.T.Fatalf("%s has %d bytes: %v", name, len(b), err)
		}
		c.search(c.T, name, string(b), false)
	}
	for _, w := range c.Workers {
		for _, got := range w.Recorder.Requests() {
			for _, what := range []string{c.key, c.bad, c.cookie, rig.AdminKey} {
				if strings.Contains(fmt.Sprint(got.Header), what) {
					c.T.Errorf("a worker received the %s: %v", c.words[what], got.Header)
				}
			}
			if _, there := got.Header["Baggage"]; there {
				c.T.Errorf("a worker received the client's baggage: %v", got.Header)
			}
		}
	}
	if spans, lines := strings.Count(c.collector.received(), "tierway.request_id"), len(c.AccessLines()); spans != lines ||
		lines < 50 {
		c.T.Errorf("%d requests are traced, %d have access lines", spans, lines)
	}
	c.T.Logf("%d plants in %d requests; %d bytes of spans in %d exports", len(c.words), len(c.AccessLines()),
		len(c.collector.received()), c.collector.exports)
}

// streamed returns the events of all kept records in the stream of decisions.
func (c *canary) streamed() string {
	c.T.Helper()
	s := c.follow("0")
	defer s.end()
	for range int(c.Sum("tierway_decisions_kept")) {
		s.next()
	}
	return s.raw.String()
}

// searchAdminAPI searches the responses to all GET requests of the admin API.
func (c *canary) searchAdminAPI() {
	c.T.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(c.manage(http.StatusOK, http.MethodGet, "/admin/openapi.json", "")), &doc); err !=
		nil {
		c.T.Fatal(err)
	}
	searched := 0
	named := strings.NewReplacer("{tier}", "small")
	for path, methods := range doc.Paths {
		if path = named.Replace(path); methods["get"] == nil || strings.Contains(path, "{") ||
			strings.HasSuffix(path, "/stream") {
			continue
		}
		status, told := c.Admin(http.MethodGet, path, "", rig.AdminKey)
		if status != http.StatusOK {
			c.T.Errorf("GET %s is %d: %s", path, status, told)
		}
		c.search(c.T, "GET "+path, told, false)
		searched++
	}
	for _, path := range []string{"/admin/decisions?limit=1000", "/admin/workers/w0", "/admin/tenants/acme",
		"/admin/tenants/acme/keys", "/admin/tenants/made", "/admin/tenants/made/keys"} {
		c.search(c.T, "GET "+path, c.manage(http.StatusOK, http.MethodGet, path, ""), false)
	}
	c.search(c.T, "an export of decisions", c.export(), false)
	for _, d := range readRecords(c.T, strings.NewReader(c.export())) {
		c.search(c.T, "a record", c.manage(http.StatusOK, http.MethodGet, "/admin/decisions/"+d.RequestID, ""), false)
	}
	c.search(c.T, "the stream of decisions", c.streamed(), false)
	if searched < 12 {
		c.T.Errorf("only %d answers were searched", searched)
	}
}
