package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// A full disk and a read-only file system can recover without a change of the request, so the same
// request may be sent again.
func TestUnwritableSeparatesReadOnlyFilesFromRefusals(t *testing.T) {
	for pragma, want := range map[string]string{"max_page_count = 1": "full", "query_only = 1": "read-only"} {
		s, err := OpenSQL(SQLConfig{URL: "sqlite://" + filepath.Join(t.TempDir(), "a.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.write.ExecContext(t.Context(), "PRAGMA "+pragma); err != nil {
			t.Fatal(err)
		}
		actor := Actor{Name: "ops", Via: "test"}
		for i := range 200 { // a page has room for some
			if err = s.SetOverride(t.Context(), actor, Override{Worker: fmt.Sprintf("w%d", i), Drain: true}); err != nil {
				break
			}
		}
		if !Unwritable(err) || Unreachable(err) {
			t.Errorf("%s: unwritable %v, unreachable %v: %v", want, Unwritable(err), Unreachable(err), err)
		}
	}
	for _, err := range []error{nil, ErrNotFound, errors.New("x")} {
		if Unwritable(err) {
			t.Errorf("%v counts as a file that takes no writes", err)
		}
	}
}
