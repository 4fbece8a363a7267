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
	if _, err := f.Draft(t.Context(), []byte(edited)); err == nil {
		t.Error("a shortened digest is accepted")
	}
	if _, err := f.Draft(t.Context(), RestoreHidden([]byte(edited), path)); err != nil {
		t.Error(err)
	}
	for _, same := range []string{text, "x: deadbeef…\n", "policy: { name: \"01234567…\" }\n"} {
		if got := string(RestoreHidden([]byte(same), path)); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	if got := string(RestoreHidden([]byte(edited), "")); got != edited {
		t.Errorf("without a file it became %q", got)
	}
}

// TestAnUneditedRedactedTextHasNoChanges, although its URLs have passwords, however they are written.
func TestAnUneditedRedactedTextHasNoChanges(t *testing.T) {
	const rest = "tiers: [ { name: small, model: m, workers: [ { name: w0, url: \"http://127.0.0.1:9\" } ] } ]\n"
	env := func(name string) (string, bool) { return "Swordfish4", name == "PASSWORD" }
	for _, section := range []string{
		"store:\n  sql: postgres://u:Hunter2Hunter2@h:5432/d # of the ledger\n  redis: redis://:Hunter2Hunter3@h:6379\n",
		"store: { redis: 'redis://:Hunter2Hunter3@h:6379', sql: \"postgres://u:Hunter2Hunter2@h/d?sslmode=disable\" }\n",
		"store: { sql: \"postgres://u:${PASSWORD}@h/d\", redis: \"redis://u:Hunter2Hunter2@h:6379\" }\n",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(section+rest), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Parse(path, []byte(section+rest), env)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := ReadText(path)
		if err != nil || strings.Contains(shown.Text, "Hunter2") {
			t.Fatalf("%v: the text has a password:\n%s", err, shown.Text)
		}
		draft := RestoreHidden([]byte(shown.Text), path)
		if strings.Count(string(draft), "\n") != strings.Count(shown.Text, "\n") {
			t.Errorf("%q has other lines: %q", shown.Text, draft)
		}
		d, err := f.Draft(t.Context(), draft)
		if err != nil {
			t.Errorf("%q: %v", shown.Text, err)
			continue
		}
		if changes := Changes(f, d); len(changes) > 0 {
			t.Errorf("%q has the changes %v", shown.Text, changes)
		}
	}
}

// TestADraftShowsNoPasswordOfTheFile: a URL is restored only at its own key, and only if it is unchanged.
func TestADraftShowsNoPasswordOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "store: { sql: \"postgres://u:Hunter2@h/d\" }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, draft := range []string{
		"store: { sql: \"postgres://u:***@other/d\" }\n", "store: { redis: \"postgres://u:***@h/d\" }\n",
		"region: \"postgres://u:***@h/d\"\n", "store: &s { sql: \"postgres://u:***@h/d\" }\nmodels: *s\n",
		"store: { sql: &s \"postgres://u:***@h/d\" }\nregion: *s\n", "a: [\nstore: { sql: \"postgres://u:***@h/d\" }\n",
	} {
		if got := string(RestoreHidden([]byte(draft), path)); got != draft {
			t.Errorf("%q became %q", draft, got)
		}
	}
}
