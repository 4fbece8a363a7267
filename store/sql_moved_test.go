package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An open file that was removed or replaced still accepts writes, which are lost with the process.
// Nothing is read from it or written to it until it is back.
func TestMovedFileRejectsWrites(t *testing.T) {
	dir := t.TempDir()
	file, away := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	s, err := OpenSQL(SQLConfig{URL: "sqlite://" + file})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	actor := Actor{Name: "ops", Via: "test"}
	use := func() map[string]error {
		_, contents := s.Contents(t.Context())
		_, revision := s.HasChanged(t.Context(), Position{})
		_, rows := s.WriteRows(t.Context(), []Row{{ID: "r", Tenant: "acme"}})
		return map[string]error{"a change": s.SetOverride(t.Context(), actor, Override{Worker: "w", Drain: true}),
			"contents": contents, "revision": revision, "rows": rows}
	}
	check := func(state string, refused bool) {
		t.Helper()
		for what, err := range use() {
			if (err != nil) != refused || refused && (!Unreachable(err) || !strings.Contains(err.Error(), file)) {
				t.Errorf("%s: %s: %v", state, what, err)
			}
		}
	}
	check("in its place", false)
	if err := os.Rename(file, away); err != nil {
		t.Fatal(err)
	}
	check("moved", true)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("another file in its place", true)
	if err := os.Rename(away, file); err != nil {
		t.Fatal(err)
	}
	check("back", false)
}
