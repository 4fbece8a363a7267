package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The configuration names the same database in every working directory.
func TestSQLiteFileIsResolvedAgainstTheConfigurationsFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	file := filepath.Join(dir, "config.yaml")
	relative, err := filepath.Rel(must(os.Getwd()), file)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ store, want string }{
		"the default":  {"", "sqlite://" + dir + "/tierway.db"},
		"a name":       {"sqlite://my.db", "sqlite://" + dir + "/my.db"},
		"a folder":     {"sqlite://../data/my.db", "sqlite://" + filepath.Dir(dir) + "/data/my.db"},
		"a whole path": {"sqlite:///var/lib/my.db", "sqlite:///var/lib/my.db"},
		"in memory":    {"sqlite://:memory:", "sqlite://:memory:"},
		"PostgreSQL":   {"postgres://u@h/db", "postgres://u@h/db"},
	}
	for name, c := range cases {
		text := keys + small
		if c.store != "" {
			text += "store: {sql: \"" + c.store + "\"}\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, relative} {
			f, err := Load(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := f.Store.SQL
			if rest, isFile := strings.CutPrefix(got, "sqlite://"); isFile && rest != ":memory:" {
				got = "sqlite://" + must(filepath.Abs(rest))
			}
			if got != c.want {
				t.Errorf("%s of %s: %s, want %s", name, path, f.Store.SQL, c.want)
			}
		}
	}
	if f := parsed(t, keys+small, nil); f.Store.SQL != "sqlite://tierway.db" {
		t.Errorf("a text without a file has %s", f.Store.SQL)
	}
	if err := os.WriteFile(file, []byte(keys+small+"store: {sql: \"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Load(file, nil); err != nil || f.Store.SQL != "" {
		t.Errorf("no database: %v, %v", f, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A pipe without a writer must not block the reader.
func TestOnlyRegularFilesAreConfigurations(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		syscall.Mkfifo(at("pipe"), 0o600),
		os.Symlink("pipe", at("to-pipe")),
		os.WriteFile(at("file"), []byte(keys+small), 0o600),
		os.Symlink("file", at("to-file")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"pipe": "is not a regular file", "to-pipe": "is not a regular file", ".": "is a directory", "file": "", "to-file": "",
	} {
		_, err := Load(at(name), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), at(name))) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestOnlyViewersCauseAWarning(t *testing.T) {
	const viewers = "all keys are viewers"
	cases := map[string]struct {
		roles []string
		warns bool
	}{
		"nobody":              {nil, false},
		"an admin":            {[]string{"admin"}, false},
		"an admin by default": {[]string{""}, false},
		"a viewer":            {[]string{"viewer"}, true},
		"viewers":             {[]string{"viewer", "viewer"}, true},
		"both":                {[]string{"viewer", "admin"}, false},
	}
	for name, c := range cases {
		src := keys + small + "admin:\n  keys: [\n"
		for i, role := range c.roles {
			src += "    {name: a" + string(rune('0'+i)) + ", sha256: " + strings.Repeat(string(rune('1'+i)), 64)
			if role != "" {
				src += ", role: " + role
			}
			src += "},\n"
		}
		got := problemsOf(t, src+"  ]\n", nil)
		if warned := len(got) == 1 && strings.Contains(got[0], "warning: admin.keys: "+viewers); warned != c.warns ||
			!warned && len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// decode reads src over the defaults without checking combinations of values.
func decode(name string, src []byte, env lookup) (*File, *decoder) {
	d := newDecoder(name, env)
	return d.decode(src), d
}
