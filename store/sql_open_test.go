package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error for a file that cannot be opened has the whole path, the reason and the way out,
// instead of SQLite's number.
func TestErrorNamesTheFileThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"gone/tierway.db": "no such file or directory",
		"file/tierway.db": "not a directory",
		"folder":          "unable to open database file",
	} {
		s, err := OpenSQL(SQLConfig{URL: "sqlite://" + name})
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", name)
			continue
		}
		for _, part := range []string{filepath.Join(dir, name), want, "mount a volume there", `store.sql: ""`} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v\nwithout %q", name, err, part)
			}
		}
	}
}

// A file of something else is named with its path and the way out.
func TestErrorNamesTheFileThatIsNotADatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(strings.Repeat("listen: 127.0.0.1:8080\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSQL(SQLConfig{URL: "sqlite://" + file})
	if err == nil {
		s.Close()
		t.Fatal("opened")
	}
	if text := err.Error(); !strings.Contains(text, file+" is not a SQLite database") ||
		!strings.Contains(text, "store.sql") {
		t.Error(text)
	}
}
