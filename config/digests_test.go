package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestARedactedTextIsADraft: the text that ReadText returns can be edited and evaluated.
func TestARedactedTextIsADraft(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 4)
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "auth: { keys: [ { name: team-a, sha256: " + digest + " } ] }\n" +
		"tiers: [ { name: small, model: m, workers: [ { name: w0, url: \"http://127.0.0.1:9\" } ] } ]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	shown, err := ReadText(path)
	if err != nil || strings.Contains(shown.Text, digest) {
		t.Fatalf("%v: the text has the digest:\n%s", err, shown.Text)
	}
	f, err := Parse(path, []byte(text), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(shown.Text, "sha256", "limits: { rpm: 5 }, sha256", 1)
	if _, err := f.Draft([]byte(edited)); err == nil {
		t.Error("a shortened digest is accepted")
	}
	if _, err := f.Draft(RestoreDigests([]byte(edited), path)); err != nil {
		t.Error(err)
	}
	for _, same := range []string{text, "x: deadbeef…\n", "policy: { name: \"01234567…\" }\n"} {
		if got := string(RestoreDigests([]byte(same), path)); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	if got := string(RestoreDigests([]byte(edited), "")); got != edited {
		t.Errorf("without a file it became %q", got)
	}
}
