package chaos

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// get sends a GET request on a new connection.
func get(t *testing.T, url string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.Host = req.Header.Get("Host")
	resp, err := (&http.Transport{DisableKeepAlives: true, DialContext: rig.EnvironmentOf(t).Dial}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// keys returns settings with a tenant's key and, if admin is set, an operator's key.
func keys(admin bool) rig.Settings {
	s := rig.Settings{"auth": fmt.Sprintf("{ keys: [ { name: team, sha256: %s } ] }", rig.Digest("tenant"))}
	if admin {
		s["admin"] = fmt.Sprintf("{ keys: [ { name: ops, sha256: %s } ] }", rig.Digest("operator"))
	}
	return s
}

// TestPlanesOnOneAddress keep their own rules.
func TestPlanesOnOneAddress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorker(t, "w0", engines.Config{})
		s := keys(true)
		s["tiers"], s["health"] = tiers([]*rig.Worker{w}), `{ path: "off" }`
		at := rig.Address(t)
		p := rig.EnvironmentOf(t).StartCommand(t, nil, "serve", "-c", s.Write(t), "--listen", at, "--admin-listen", at)
		if data, admin := p.Addresses(); data != at || admin != at {
			t.Errorf("it serves at %s and %s", data, admin)
		}
		for path, status := range map[string]int{
			"/metrics": 200, "/readyz": 200, "/livez": 200, "/admin/workers": 401, "/admin/": 404, "/v1/models": 401,
			"/v1/../metrics": 401, "/v1/../admin/workers": 401, "//admin/workers": 401, "/x/%2e%2e/admin/workers": 401,
		} {
			if resp := get(t, "http://"+at+path); resp.StatusCode != status {
				t.Errorf("%s is %d, want %d", path, resp.StatusCode, status)
			}
		}
		if resp := get(t, "http://"+at+"/admin/workers", "Authorization", "Bearer operator"); resp.StatusCode !=
			http.StatusOK {
			t.Errorf("the operator gets %d", resp.StatusCode)
		}
		for path, key := range map[string]string{"/v1/models": "operator", "/admin/workers": "tenant"} {
			if resp := get(t, "http://"+at+path, "Authorization", "Bearer "+key); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("the %s gets %d for %s", key, resp.StatusCode, path)
			}
		}
		if resp := get(t, "http://"+at+"/v1/models", "Authorization", "Bearer tenant"); resp.StatusCode != http.StatusOK {
			t.Errorf("the tenant gets %d", resp.StatusCode)
		}
		if resp := get(t, "http://"+at+"/v1/../admin/workers", "Authorization", "Bearer tenant"); resp.StatusCode !=
			http.StatusNotFound {
			t.Errorf("the tenant climbs to %d", resp.StatusCode)
		}
	})
}

func TestMetricsOnTheirOwnAddress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		at := rig.Address(t)
		r := newRig(t, 1, rig.Settings{"metrics": fmt.Sprintf("{ listen: %q }", at)}, engines.Config{})
		r.MetricsAt = at
		if m, err := r.Metrics(); err != nil || m["tierway_inflight"] != 0 || len(m) < 20 {
			t.Errorf("the metrics are %v (%v)", m, err)
		}
		for _, url := range []string{"http://" + r.AdminAddr + "/metrics", "http://" + r.DataAddr + "/metrics",
			"http://" + at + "/admin/workers", "http://" + at + chat.path, "http://" + r.AdminAddr + chat.path} {
			if resp := get(t, url); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s is %d", url, resp.StatusCode)
			}
		}
	})
}

// TestAWebPageCannotUseAGatewayWithoutKeys: neither through a host name of its own that resolves
// to the gateway, nor from its own origin. Tools can use it.
func TestAWebPageCannotUseAGatewayWithoutKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorker(t, "w0", engines.Config{})
		p := rig.EnvironmentOf(t).StartCommand(t, nil, "serve", "--model", "sim", "--worker-urls", w.Server.URL,
			"--hosts", "ai.lan", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		data, admin := p.Addresses()
		for _, c := range []struct {
			url, host string
			headers   []string
			status    int
		}{
			{data + "/v1/models", "localhost", nil, 200},
			{data + "/v1/models", "ai.lan:8080", nil, 200},
			{data + "/v1/models", "evil.example", nil, 421},
			{data + "/readyz", "evil.example", nil, 421},
			{data + "/v1/models", "localhost", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
			{admin + "/metrics", "localhost", nil, 200},
			{admin + "/metrics", "evil.example", nil, 421},
		} {
			if resp := get(t, "http://"+c.url, append(c.headers, "Host", c.host)...); resp.StatusCode != c.status {
				t.Errorf("%+v is %d", c, resp.StatusCode)
			}
		}
	})
}

// TestCORS: pages of the configured origins may send requests and read errors. The preflight needs
// no key, and cookies are never allowed.
func TestCORS(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := keys(false)
		s["cors"] = `{ origins: ["https://app.example"] }`
		r := newRig(t, 1, s, engines.Config{})
		preflight := func(origin string) rig.Reply {
			return r.do(http.MethodOptions, chat.path, "", "Origin", origin, "Access-Control-Request-Method", "POST",
				"Access-Control-Request-Headers", "authorization, content-type, x-stainless-os")
		}
		got := preflight("https://app.example")
		if got.Status != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
			!strings.Contains(got.Header.Get("Access-Control-Allow-Methods"), "POST") ||
			got.Header.Get("Access-Control-Allow-Headers") != "authorization, content-type, x-stainless-os" ||
			got.Header.Get("Access-Control-Max-Age") != "600" || got.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("the preflight is %d %v", got.Status, got.Header)
		}
		for _, origin := range []string{"https://evil.example", "https://app.example.evil", "http://app.example", "null"} {
			for _, got := range []rig.Reply{preflight(origin), r.post(chat.path, chat.body, "Origin", origin, "Authorization",
				"Bearer tenant")} {
				if allowed := got.Header.Get("Access-Control-Allow-Origin"); allowed != "" ||
					!strings.Contains(got.Header.Get("Vary"), "Origin") {
					t.Errorf("%s is answered %d %v", origin, got.Status, got.Header)
				}
			}
		}
		for key, status := range map[string]int{"tenant": 200, "wrong": 401} {
			got := r.post(chat.path, chat.body, "Origin", "https://app.example", "Authorization", "Bearer "+key)
			exposed := got.Header.Get("Access-Control-Expose-Headers")
			if got.Status != status || got.Header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
				!strings.Contains(exposed, "X-Request-ID") || !strings.Contains(exposed, "X-Routed-To") ||
				!strings.Contains(strings.ToLower(exposed), "x-ratelimit-remaining-tokens") ||
				got.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: the answer is %d %v", key, got.Status, got.Header)
			}
		}
		if got := newRig(t, 1, nil, engines.Config{}).post(chat.path, chat.body, "Origin",
			"https://app.example"); got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Error("an origin is allowed although none is configured")
		}
	})
}

// TestServeWithoutAConfiguration is the shortest way to a gateway.
func TestServeWithoutAConfiguration(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, b := newWorker(t, "a", engines.Config{}), newWorker(t, "b", engines.Config{})
		p := rig.EnvironmentOf(t).StartCommand(t, nil, "serve", "--model", "sim",
			"--worker-urls", a.Server.URL+","+b.Server.URL, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		data, _ := p.Addresses()
		client, seen := rig.NewClient(t), map[string]bool{}
		n := int64(0)
		rig.Eventually(t, func() error {
			n++ // the policy spreads different prompts over the workers
			resp, err := client.Post("http://"+data+chat.path, "application/json", strings.NewReader(prompt(n, false)))
			if err != nil {
				return err
			}
			resp.Body.Close()
			if seen[resp.Header.Get("X-Routed-To")] = true; resp.StatusCode != http.StatusOK || len(seen) < 2 {
				return fmt.Errorf("the status is %d and %v have answered", resp.StatusCode, seen)
			}
			return nil
		})
		if !seen["worker-0"] || !seen["worker-1"] {
			t.Errorf("%v have answered", seen)
		}
	})
}

// TestSmokeCheckReportsAllProblems with line and column; serve does the same. The repository's example has none.
func TestSmokeCheckReportsAllProblems(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	file := rig.Settings{
		"auth":     `{ required: maybe }`,
		"listen":   `"0.0.0.0:8080"`,
		"nonsense": `1`,
		"retry":    `{ attempts: -1 }`,
		"tiers":    `[ { name: small, model: sim, polcy: { name: round_robin }, workers: [ { name: a, url: "ftp://x" }, { name: a, url: "http://127.0.0.1:1" } ] } ]`,
		"timeouts": `{ idle: 12 }`,
	}.Write(t)
	for _, args := range [][]string{{"check", "-c", file}, {"serve", "-c", file}} {
		p := gateway.StartCommand(t, nil, args...)
		if status := p.ExitStatus(); status != 1 {
			t.Errorf("%v: the status is %d, want 1", args, status)
		}
		said := p.Log()
		for _, path := range []string{"auth.required", "listen", "nonsense", "retry.attempts", "tiers[0].polcy",
			"tiers[0].workers[0].url", "timeouts.idle"} {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(file) + `:\d+:\d+: ` + regexp.QuoteMeta(path) +
				`\b`).MatchString(said) {
				t.Errorf("%v does not report %s with line and column:\n%s", args, path, said)
			}
		}
	}
	missing := gateway.StartCommand(t, nil, "check", "-c", filepath.Join(t.TempDir(), "missing.yaml"))
	if status := missing.ExitStatus(); status != 1 || !strings.Contains(missing.Log(), "missing.yaml") {
		t.Errorf("a missing file: status %d: %s", status, missing.Log())
	}
	if status := gateway.StartCommand(t, nil, "check", "--no-such-flag").ExitStatus(); status != 2 {
		t.Errorf("wrong usage: status %d, want 2", status)
	}
	root, err := gateway.Root()
	if err != nil {
		t.Fatal(err)
	}
	example := gateway.StartCommand(t, []string{"TIERWAY_KEY_SHA256=" + rig.Digest("key")}, "check", "-c",
		filepath.Join(root, "config.yaml"))
	if status := example.ExitStatus(); status != 0 || !strings.Contains(example.Stdout(), ": ok (") ||
		example.Log() != "" {
		t.Errorf("the repository's example: status %d: %s%s", status, example.Stdout(), example.Log())
	}
}
