package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAReplacedPolicyIsShown, also by commands that only read the configuration.
func TestAReplacedPolicyIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "auth: { required: false }\nstore: { sql: \"\" }\npolicy: { name: chwbl }\n" +
		"tiers: [ { name: small, model: m, workers: [ { name: w, url: \"http://127.0.0.1:1\" } ] } ]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]string{"": "",
		"consistent_hash": "the policy consistent_hash, from --policy or TIERWAY_POLICY, replaces"} {
		t.Setenv("TIERWAY_POLICY", variable)
		out, messages, err := runTree("", "check", "-c", path)
		if err != nil || !strings.Contains(out, "ok") || (want == "") != (messages == "") || !strings.Contains(messages,
			want) {
			t.Errorf("%q: %v, %s, %q", variable, err, out, messages)
		}
	}
}
