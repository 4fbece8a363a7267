package main

import (
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"tierway/tenants"
)

// TestARequestIsExplainedByTheConfigurationAlone, without sending it. The program prints the decision as text or
// JSON; its exit status reports whether the gateway would send the request.
func TestARequestIsExplainedByTheConfigurationAlone(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	digest := tenants.Digest("tenant")
	// These addresses refuse connections, so a request that is sent fails.
	config := file("config.yaml", `
auth: { required: true, keys: [ { name: team, sha256: `+hex.EncodeToString(digest[:])+`, tiers: [small] } ] }
tiers:
  - { name: small, model: s, workers: [ { name: s0, url: "http://127.0.0.1:1" } ] }
  - { name: large, model: l, workers: [ { name: l0, url: "http://127.0.0.1:2" }, { name: l1, url: "http://127.0.0.1:3" } ] }
`)
	request := file("request.json",
		`{"model":"auto","messages":[{"role":"user","content":"Write a canary function in Python that sorts a list"}]}`)
	wrong := file("wrong.json", `{"model":"nobody's","messages":[{"role":"user","content":"canary"}]}`)
	for _, c := range []struct {
		name   string
		args   []string
		status int
		has    []string
	}{
		{"by its words", []string{"-f", request}, 0, []string{"tier", "large", "keyword:code", "worker", "lowest_cost",
			"no key"}},
		{"by a header", []string{"-f", request, "-H", "X-Model-Tier: small"}, 0, []string{"small", "header", "s0"}},
		{"for a tenant", []string{"-f", request, "-H", "Authorization: Bearer tenant"}, 0,
			[]string{"small", "clamped", "keyword:code selected large", "team"}},
		{"with a wrong key", []string{"-f", request, "-H", "Authorization: Bearer nobody's"}, 1,
			[]string{"rejected", "401", "invalid_api_key"}},
		{"rejected", []string{"-f", wrong}, 1, []string{"rejected", "404", "model_not_found"}},
		{"no such file", []string{"-f", filepath.Join(dir, "none.json")}, 2, []string{"none.json"}},
		{"a header without a name", []string{"-f", request, "-H", "large"}, 2, []string{"Name: value"}},
		{"no request", nil, 2, []string{"file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tierway(t, append([]string{"explain", "-c", config}, c.args...)...)
			if got.status != c.status {
				t.Errorf("the status is %d, want %d", got.status, c.status)
			}
			said := got.out + got.messages
			for _, want := range c.has {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in what it says:\n%s", want, said)
				}
			}
			if strings.Contains(said, "canary") || strings.Contains(said, "Bearer tenant") {
				t.Errorf("it repeats the prompt or the key:\n%s", said)
			}
		})
	}
	s := must(t, "explain", "-c", config, "-f", request, "--json")
	var got struct{ Tier, Rule, Worker, Policy string }
	if err := json.Unmarshal([]byte(s.out), &got); err != nil || got.Tier != "large" ||
		got.Rule != "keyword:code" || got.Policy != "kv_aware" || got.Worker == "" {
		t.Errorf("%v in %s", err, s.out)
	}
}
