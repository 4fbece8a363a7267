package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// runOperators explains, replays and reloads with planted words in the requests.
func (c *canary) runOperators() {
	c.T.Helper()
	order := func(status int, path, body string) string {
		c.T.Helper()
		got, told := c.Admin(http.MethodPost, path, body, rig.AdminKey)
		if got != status {
			c.T.Errorf("POST %s is %d, want %d: %s", path, got, status, told)
		}
		c.search(c.T, "the answer of "+path, told, false)
		return told
	}
	word := func() string { return c.text("word of an operator") }
	explained := rig.Chat("auto", c.text("explained prompt"), `"user":`+rig.Quoted(word()))
	draft := "# " + word() + "\n" + c.Config.With(rig.Settings{"policy": "{ name: least_load } # " + word()}).String()
	order(200, "/admin/route/explain", `{"request":`+explained+`,"headers":{"X-Session-Id":`+rig.Quoted(word())+`}}`)
	order(200, "/admin/route/explain", `{"request":`+explained+`,"draft":`+rig.Quoted(draft)+`}`)
	order(200, "/admin/route/replay", `{"draft":`+rig.Quoted(draft)+`}`)
	order(422, "/admin/route/explain", `{"request":`+explained+`,"headers":{"Authorization":"Bearer `+c.bad+`"}}`)
	c.sendMisplacedSecrets(explained)
	c.reloadInvalid()
	c.runCommands(explained, draft)
}

// sendMisplacedSecrets sends drafts with secrets in wrong places.
func (c *canary) sendMisplacedSecrets(explained string) {
	c.T.Helper()
	word := func() string { return c.secret("secret in a draft") }
	for _, secret := range []string{
		`store: { redis: "redis://:` + word() + `@127.0.0.1:1" }`,
		`tiers: [ { name: small, workers: [ { name: w0, url: "http://me:` + word() + `@127.0.0.1:1" } ] } ]`,
		`tiers: [ { name: small, workers: [ { name: w0, api_key: ` + word() + ` } ] } ]`,
		`store: { sql: "postgres://me:` + word() + `@127.0.0.1:1/tierway" }`,
		`auth: { keys: [ { name: acme, sha256: ` + word() + ` } ] }`,
	} {
		for _, path := range []string{"/admin/route/explain", "/admin/route/replay"} {
			body := `{"draft":` + rig.Quoted(secret)
			if strings.HasSuffix(path, "explain") {
				body += `,"request":` + explained
			}
			_, told := c.Admin(http.MethodPost, path, body+"}", rig.AdminKey)
			c.search(c.T, "the answer of "+path+" to a draft with a secret", told, false)
		}
	}
}

// reloadInvalid makes the gateway reload an invalid file with a planted word.
func (c *canary) reloadInvalid() {
	c.T.Helper()
	good, err := os.ReadFile(c.File)
	if err != nil {
		c.T.Fatal(err)
	}
	bad := string(good) + "\nredis_password: " + c.secret("password in a file that is refused") + "\n"
	if err := os.WriteFile(c.File, []byte(bad), 0o600); err != nil {
		c.T.Fatal(err)
	}
	c.Signal(syscall.SIGHUP)
	rig.Eventually(c.T, func() error {
		if c.Sum("tierway_config_reloads_total", `result="rejected"`) != 1 {
			return fmt.Errorf("the file was not rejected")
		}
		return nil
	})
	status, answer := c.Admin(http.MethodPost, "/admin/reload", "", rig.AdminKey)
	if status != http.StatusUnprocessableEntity {
		c.T.Errorf("the reload of a bad file got %d", status)
	}
	c.search(c.T, "the answer of a reload", answer, false)
	if err := os.WriteFile(c.File, good, 0o600); err != nil {
		c.T.Fatal(err)
	}
}

// createKeys creates a tenant with a key, a second key and an admin key through the admin API, and
// uses them. Each key is shown only in the response that creates it.
func (c *canary) createKeys() {
	c.T.Helper()
	secret := func(path, body string) string {
		c.T.Helper()
		var made struct {
			Secret string `json:"secret"`
		}
		if err := json.Unmarshal([]byte(c.manage(http.StatusCreated, http.MethodPost, path, body)), &made); err != nil ||
			made.Secret == "" {
			c.T.Fatalf("POST %s returns no key: %v", path, err)
		}
		c.keys[made.Secret] = true
		return c.plant(made.Secret, "key that was made by "+path)
	}
	for _, key := range []string{secret("/admin/tenants", `{"name":"made","issue_key":true}`),
		secret("/admin/tenants/made/keys", "{}")} {
		c.post(http.StatusOK, "/v1/chat/completions", rig.Chat("sim", "hello"), "Authorization", "Bearer "+key)
	}
	admin := secret("/admin/admins", `{"name":"another","role":"viewer"}`)
	if status, told := c.Admin(http.MethodGet, "/admin/status", "", admin); status != http.StatusOK {
		c.T.Errorf("with the created admin key, /admin/status is %d: %s", status, told)
	}
}

// runCommands runs commands of the program against the gateway and on its files.
func (c *canary) runCommands(explained, draft string) {
	c.T.Helper()
	dir := c.T.TempDir()
	file := filepath.Join(dir, "draft.yaml")
	if err := os.WriteFile(file, []byte(draft), 0o600); err != nil {
		c.T.Fatal(err)
	}
	for _, args := range [][]string{
		{"explain", "--live", "--api", c.AdminURL, "-f", "-"},
		{"explain", "--live", "--api", c.AdminURL, "-f", "-", "--draft", file, "--json"},
		{"replay", "--live", "--api", c.AdminURL, "--draft", file},
		{"replay", "-c", c.File, "--decisions", c.beside("decisions.jsonl"), "--draft", draft, "--changes"},
		{"check", "-c", c.File},
	} {
		out, problem, _ := command(c.T, explained, args...)
		c.search(c.T, "tierway "+args[0], out+problem, false)
	}
	wrong := filepath.Join(dir, "wrong.yaml")
	misplaced := rig.Settings{"store": `{ sql: "postgres://me:` + c.secret("password of a wrong file") + `@h h/x" }`,
		"telemetry": `{ otlp: "http://me:` + c.secret("password of a wrong collector") + `@h:1" }`,
		"redis":     `"redis://:` + c.secret("password of a wrong Redis") + `@h:1"`, "auth": "{ keys: [ { name: acme, key: " +
			c.secret("key in a wrong file") + " } ] }",
		"tiers": `[ { name: small, model: sim, workers: [ { name: w0, url: "http://me:` +
			c.secret("password of a wrong worker") + `@h:1" } ] } ]`}
	if err := os.WriteFile(wrong, []byte(misplaced.String()), 0o600); err != nil {
		c.T.Fatal(err)
	}
	out, problem, code := command(c.T, "", "check", "-c", wrong)
	if c.search(c.T, "tierway check", out+problem, false); code != 1 {
		c.T.Errorf("tierway check of a wrong file ends with %d: %s", code, out+problem)
	}
}

// TestPasswordsOfUnavailableStoresAreNotLogged: the database, Redis and the collector are never
// available, and the log reports all three.
func TestPasswordsOfUnavailableStoresAreNotLogged(t *testing.T) {
	t.Parallel() // its end waits for the database for some seconds
	c := newCanary(t)
	c.Config = rig.Settings{
		"admin": `{ keys: [ { name: tests, sha256: ` + rig.Digest(rig.AdminKey) + ` } ] }`,
		"auth":  "{ keys: [ { name: acme, sha256: " + rig.Digest(c.key) + ", limits: { rpm: 1000 } } ] }",
		"store": fmt.Sprintf("{ sql: %q, redis: %q }", "postgres://someone:"+c.secret("password of PostgreSQL")+
			"@127.0.0.1:1/tierway", "redis://:"+c.secret("password of Redis")+"@127.0.0.1:1"),
		"tiers":     c.Tiers("api_key_env: WORKER_KEY", ""),
		"telemetry": `{ otlp: "http://127.0.0.1:1" }`,
		"log":       "{ level: debug }",
		"drain":     "{ accept_grace: 1ms, timeout: 1s }",
		"health":    `{ path: "off" }`,
	}
	c.Attach(gateway.Start(t, c.Config.String(), c.env...))
	for range 20 {
		got := c.Post("/v1/chat/completions", rig.Chat("sim", c.text("prompt")), "Authorization", "Bearer "+c.key)
		c.search(t, "an answer without a database", got.Body+fmt.Sprint(got.Header), true)
		got = c.Post("/v1/chat/completions", rig.Chat("sim", c.text("prompt")), "Authorization", "Bearer "+c.bad)
		c.search(t, "a refusal without a database", got.Body+fmt.Sprint(got.Header), false)
	}
	for _, path := range []string{"/admin/config", "/admin/status", "/admin/audit", "/admin/decisions", "/admin/tenants",
		"/metrics"} {
		_, told := c.Admin(http.MethodGet, path, "", rig.AdminKey)
		c.search(t, "GET "+path, told, false)
	}
	for _, about := range []string{"database unavailable", "Redis unavailable", "spans lost"} {
		c.WaitFor("the log line "+about, func() bool { return strings.Contains(c.Log(), about) })
	}
	c.Stop()
	c.search(t, "the log", c.Log(), false)
	c.search(t, "the access log", c.Stdout(), false)
}

// TestSecretInAnInvalidVariableIsNotLogged: invalid OTEL_* variables cause a warning without their
// values.
func TestSecretInAnInvalidVariableIsNotLogged(t *testing.T) {
	c := newCanary(t)
	secret := func() string { return c.secret("secret in a variable") }
	for _, env := range [][]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://someone:" + secret() + "@127.0.0.1:1"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=someone:" + secret() + "@127.0.0.1:1"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://someone:" + secret() + "@127.0.0.1:port/%zz"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1/?key=" + secret()},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS=authorization " + secret() + ",b=%zz" +
			secret() + "\n,=" + secret()},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS=" + secret()},
	} {
		p := gateway.Start(t, rig.Settings{"auth": "{ required: false }", "store": `{ sql: "" }`,
			"drain":  "{ accept_grace: 1ms, timeout: 1s }",
			"health": `{ path: "off" }`, "tiers": c.Tiers("", ""), "log": "{ level: debug }"}.String(),
			append(env, "OTEL_BSP_SCHEDULE_DELAY=5")...)
		status, told := p.GetData("/v1/models")
		if status != http.StatusOK {
			t.Errorf("with %q the models are %d: %s", env, status, told)
		}
		_, config := p.Admin(http.MethodGet, "/metrics", "", "")
		p.Stop()
		c.search(t, "the log of a gateway", p.Log()+told+config, false)
		if !strings.Contains(p.Log(), `"level":"WARN"`) {
			t.Errorf("the log does not warn of %q: %s", env, p.Log())
		}
	}
}
