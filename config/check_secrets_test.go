package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesWithPasswordsAndKeysThatEveryUserCanReadAreNamed, also beside another warning.
func TestFilesWithPasswordsAndKeysThatEveryUserCanReadAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for src, warnings := range map[string][]string{
		keys + small + "store: {sql: 'postgres://u@h/db', sql_password_file: '${KEY}'}": {
			"store.sql_password_file: every user"},
		keys + small + "store: {redis: 'redis://h', redis_password_file: '${KEY}'}": {
			"store.redis_password_file: every user"},
		keys + "tiers: [{name: a, model: m, workers: [{name: w, url: 'http://h:1', api_key_file: '${KEY}'}]}]": {
			"api_key_file: the key in \"${KEY}\" has 5 characters", "api_key_file: every user"},
	} {
		for mode, named := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(problemsOf(t, src, map[string]string{"KEY": file}), "\n")
			for _, want := range warnings {
				if strings.Contains(got, want) != (named || !strings.Contains(want, "every user")) {
					t.Errorf("mode %o: %q in %s", mode, want, got)
				}
			}
		}
	}
}

// TestDoubtfulSecretsAreNamed: placeholders in place of digests, keys that are too short for one, and key files that
// every user of the machine can read.
func TestDoubtfulSecretsAreNamed(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "a")
	long := filepath.Join(dir, "long.key")
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(long, 1<<40); err != nil { // sparse
		t.Fatal(err)
	}
	worker := "tiers: [{name: a, model: m, workers: [{name: w, url: 'http://h:1', api_key_env: K}]}]\n"
	digest := func(d string) string {
		return "auth: {keys: [{name: a, sha256: " + strings.Repeat(d, 64) + "}]}\n" + small
	}
	secure := keys + small + "tls: {cert: '" + cert + "', key: '${KEY}'}\nadmin: {listen: '127.0.0.1:1'}\n"
	for name, c := range map[string]struct {
		src, key string
		mode     os.FileMode
		want     string // "": no problem
	}{
		"zeros": {src: digest("0"), want: "auth.keys[0].sha256: is a placeholder, which no key has as its digest"},
		"F":     {src: digest("F"), want: "auth.keys[0].sha256: is a placeholder"},
		"zeros of an admin": {src: keys + small + "admin: {keys: [{name: a, sha256: " + strings.Repeat("0", 64) + "}]}",
			want: "admin.keys[0].sha256: is a placeholder"},
		"a digest":             {src: digest("a")},
		"one character":        {src: keys + worker, key: "x", want: "tiers[0].workers[0].api_key_env: the key in the environment variable K has 1 character"},
		"seven":                {src: keys + worker, key: "1234567", want: "tiers[0].workers[0].api_key_env: the key in the environment variable K has 7 characters"},
		"eight":                {src: keys + worker, key: "12345678"},
		"a world-readable key": {src: secure, key: key, mode: 0o644, want: `tls.key: every user of this machine can read "${KEY}"`},
		"read by others":       {src: secure, key: key, mode: 0o604, want: `tls.key: every user`},
		"read by a group":      {src: secure, key: key, mode: 0o640},
		"a private key":        {src: secure, key: key, mode: 0o600},
		"an endless key":       {src: secure, key: long, mode: 0o600, want: `tls.key: cannot read "${KEY}": longer than 4MiB`},
		"a device":             {src: secure, key: "/dev/zero", want: `tls.key: cannot read "${KEY}": ${KEY} is not a regular file`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.mode != 0 {
				if err := os.Chmod(c.key, c.mode); err != nil {
					t.Fatal(err)
				}
			}
			got := problemsOf(t, c.src, map[string]string{"K": c.key, "KEY": c.key})
			if c.want == "" && len(got) > 0 || c.want != "" && !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
