package store_test

import (
	"testing"
	"time"

	"tierway/store"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func write(t testing.TB, s *store.SQL, rows ...store.Row) int {
	t.Helper()
	return must(s.WriteRows(t.Context(), rows))(t)
}
