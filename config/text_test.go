package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// writtenAs returns the spellings of a scalar in YAML, for a value that is indented by four spaces.
func writtenAs(value string) map[string]string {
	half := len(value) / 2
	return map[string]string{
		"plain":      value,
		"double":     `"` + value + `"`,
		"single":     "'" + value + "'",
		"escaped":    fmt.Sprintf(`"\x%02x%s"`, value[0], value[1:]),
		"folded":     ">-\n      " + value,
		"literal":    "|\n      " + value + "\n\n",
		"two lines":  "\"" + value[:half] + "\\\n      " + value[half:] + "\"",
		"anchored":   "&s " + value,
		"tagged":     "!!str " + value,
		"a next key": "|\n      a: " + value + "\n      b: " + value,
	}
}

// secretPlaces are configurations with a secret at %s. The last ones are invalid.
func secretPlaces() []string {
	return []string{
		"store:\n    sql: %s\n    redis: \"\"\ngateways: 2\n",
		"store: {redis: %s}\ngateways: 2\n",
		"auth:\n  keys:\n  - name: a\n    sha256: %s\n    tiers: [small]\ngateways: 2\n",
		"admin: { keys: [ { name: ops, sha256: %s , role: viewer } ] }\ngateways: 2\n",
		"tiers:\n- name: small\n  workers:\n  - name: w\n    api_key: %s\n    weight: 3\ngateways: 2\n",
		"tiers: [ { workers: [ { api_key_env: %s } ] } ]\ngateways: 2\n",
		"admin: { keys: [ { name: ops, Password: [ %s ] } ] }\ngateways: 2\n",
		"admin: { keys: [ %s ] }\ngateways: 2\n",
		"auth: { keys: %s }\ngateways: 2\n",
		"other:\n    nested:\n      deeper: { token: %s }\ngateways: 2\n",
		"x: [ { sha256: %s } ]\ngateways: 2\n",
		"policy: { name: random }\npassword: %s\ngateways: 2\n",
		"db_password: %s\ngateways: 2\n",
		"client_secret: %s\ngateways: 2\n",
		"other: { api_keys: [ %s ] }\ngateways: 2\n",
		"gateways: 2\n---\nauth:\n  keys:\n  - sha256: %s\n",
	}
}

// CF-03: no secret of a file is in its shown text, however it is written. Lines keep their numbers.
func TestTextNeverHasSecrets(t *testing.T) {
	for _, place := range secretPlaces() {
		for _, secret := range []string{"postgres-url", "Sk3-Z9y.q8w7", strings.Repeat("Ab3c", 16)} {
			value := secret
			if secret == "postgres-url" {
				secret = "Hunter2Hunter2"
				value = "postgres://tierway:" + secret + "@db.internal:5432/x"
			}
			for style, text := range writtenAs(value) {
				if strings.ContainsAny(text[:1], "|>") && strings.ContainsAny(place[:strings.Index(place, "%s")], "{[") {
					continue // flow style has no block scalars
				}
				src := fmt.Sprintf(place, text)
				shown, hidden := redactText([]byte(src))
				if strings.Contains(shown, secret) || strings.Contains(shown, secret[len(secret)/2:]) || hidden == 0 {
					t.Errorf("%s: the text %q is shown as %q", style, src, shown)
				}
				if strings.Count(shown, "\n") != strings.Count(src, "\n") {
					t.Errorf("%s: the text %q has other lines: %q", style, src, shown)
				}
				if !strings.Contains(shown, "gateways: 2") {
					t.Errorf("%s: the rest of %q is not shown: %q", style, src, shown)
				}
			}
		}
	}
}

// CF-03: secrets in comments, and in a text that is no YAML, are hidden by their form.
func TestTextHidesSecretsByTheirForm(t *testing.T) {
	const secret = "Hunter2Hunter2Hunter2"
	digest := strings.Repeat("0f", 32)
	for _, src := range []string{
		"# redis://:" + secret + "@h:6379\n", "a: b # postgres://u:pa ss\"}" + secret + "@h/d\n",
		"# password: " + secret + "\n", "gateways: 2 # api_key = " + secret + "\n", "# Bearer " + secret + "\n",
		"# password " + secret + "\n", "gateways: 2 # the DB_PASSWORD is " + secret + ", as before\n",
		"# db_password: " + secret + "\n", "# client-secrets = " + secret + "\n",
		"a: [\ndb_password: " + secret + "\n", "a: [\napi_keys: " + secret + "\n",
		"a: [\nclient_secret: " + secret + "\n",
		"a: [\nmax_tokens: 5\nx: { max_tokens: 5, db_password: " + secret + " }\n",
		"region: http://u:" + secret + "@h\n", "region: tw-adm-" + secret + "\n", "# " + digest + "\n",
		"a: [\nstore:\n  sql: >-\n    postgres://u:\n    " + secret + "@h\nb: c\n",
		"a: [\npassword:\n  " + secret + "\nb: c\n", "# password: " + secret + ", token: x\n",
		"a: [\n  { password: " + secret + ", token: x }\n", "a: [\n- { name: x, sha256: " + secret + ", b: c\n  " + secret + " }\nb: c\n",
		"\t\"token\" : " + secret, "a: &a [ *b ]\ntoken: " + secret, "a: &x " + secret + "\npassword: *x",
	} {
		shown, hidden := redactText([]byte(src))
		if strings.Contains(shown, secret) || strings.Contains(shown, digest) || hidden == 0 {
			t.Errorf("%q is shown as %q", src, shown)
		}
		if strings.Count(shown, "\n") != strings.Count(src, "\n") {
			t.Errorf("%q has other lines: %q", src, shown)
		}
	}
}

// TestTextShowsTheRest: values that are no secrets stay, such as paths of certificates and names of variables.
func TestTextShowsTheRest(t *testing.T) {
	const src = `# a comment
tls: { cert: /etc/c.pem, key: /etc/k.pem } # of the "data" plane
store: { sql: "sqlite://tierway.db", redis: redis://10.0.0.7:6379 }
admin: { keys: [ { name: ops, sha256: "${OPS}" } ] }
tiers:
  - { name: small, model: m, workers: [ { name: w, url: "http://h:1", api_key_env: WORKER_KEY } ] }
models: { "gpt-4*": small, password: small }
session_keys: [ "X-Session-ID" ]
`
	if shown, hidden := redactText([]byte(src)); shown != src || hidden != 0 {
		t.Errorf("%d hidden in\n%s", hidden, shown)
	}
	digests := "auth:\n  keys:\n    - { name: a, sha256: " + digestA + " } # of ada\n"
	want := strings.Replace(digests, digestA, digestA[:8]+"…", 1)
	if shown, hidden := redactText([]byte(digests)); shown != want || hidden != 1 {
		t.Errorf("%d hidden in %q", hidden, shown)
	}
}

// TestTextShowsProse: a comment about a key is no secret, and a broken text shows its other keys.
func TestTextShowsProse(t *testing.T) {
	const src = `# the key of the worker; its password is in the vault
# 40 tokens per second, a token costs 12 units
a: [
auth:
  keys:
    - { name: team-a, limits: { day_tokens: 5000 } }
session_keys: [ "X-Session-ID" ]
`
	if shown, hidden := redactText([]byte(src)); shown != src || hidden != 0 {
		t.Errorf("%d hidden in\n%s", hidden, shown)
	}
}

// TestAnyTextKeepsItsLines: a broken text neither panics nor shifts the lines.
func TestAnyTextKeepsItsLines(t *testing.T) {
	parts := []string{"auth:", " ", "\n", "- ", "keys:", "sha256: ", digestA, "{", "}", "[", "]",
		"&a ", "*a", "\"", "'", ">-", "#", "password: ", "x", "\r\n", "---\n", "ü", "<<: ", "? ", "postgres://u:p@h", "store: ", "sql: ", ", ", "!!str "}
	rapid.Check(t, func(t *rapid.T) {
		src := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 40).Draw(t, "parts"), "")
		shown, _ := redactText([]byte(src))
		if len(strings.Split(shown, "\n")) != len(splitLines(src)) {
			t.Fatalf("%q has other lines: %q", src, shown)
		}
		if strings.Contains(shown, digestA) || strings.Contains(shown, "u:p@") {
			t.Fatalf("%q is shown as %q", src, shown)
		}
	})
}

func TestReadTextHasTheHashOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(keys+small), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := ReadText(path)
	f := must(Load(path, nil))
	if err != nil || text.Hash != f.Hash() || text.Hidden == 0 || text.ModifiedAt.IsZero() ||
		strings.Contains(text.Text, digestA) {
		t.Errorf("%+v (%v)", text, err)
	}
	if _, err := ReadText(filepath.Dir(path)); err == nil {
		t.Error("a directory has a text")
	}
}
