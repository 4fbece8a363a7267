package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/tenants"
)

// column is a column of a table with where its value comes from and goes to: what
// is written is read back in the same order, whatever the order.
type column struct {
	name  string
	value any // of a statement
	scan  any // of a row
}

// scanner reads a value of a row.
type scanner func(v any) error

// Scan calls the function.
func (s scanner) Scan(v any) error { return s(v) }

// read returns a scanner of a kind of value that databases hold as an S.
func read[S any](f func(S) error) scanner {
	return func(v any) error {
		s, ok := v.(S)
		if !ok {
			return fmt.Errorf("a column holds %T instead of %T", v, s)
		}
		return f(s)
	}
}

// Columns of the kinds of value that a table holds otherwise than Go does.
func textColumn(name string, v *string) column { return column{name, clean(*v), v} }
func boolColumn(name string, v *bool) column   { return column{name, number(*v), v} }
func intColumn[T ~int | ~int64](name string, v *T) column {
	return column{name, int64(*v), v}
}

func timeColumn(name string, v *time.Time) column {
	return column{name, micros(*v), read(func(us int64) error { *v = instant(us); return nil })}
}

// listColumn is a list of names, where NULL is nil: all.
func listColumn(name string, v *[]string) column {
	text := read(func(text string) error { return json.Unmarshal([]byte(text), v) })
	return column{name, written(*v), scanner(func(in any) error {
		*v = nil // no list shares the memory of the row before
		if in == nil {
			return nil
		}
		return text(in)
	})}
}

// classColumn is a class. A word that a newer release has written is batch, the least
// that there is.
func classColumn(name string, v *tenants.Class) column {
	return column{name, v.String(), read(func(text string) error {
		known := false
		if *v, known = tenants.ParseClass(text); !known {
			*v = tenants.Batch
		}
		return nil
	})}
}

// digestColumn is a digest. Its errors do not repeat it.
func digestColumn(name string, v *[sha256.Size]byte) column {
	return column{name, hex.EncodeToString(v[:]), read(func(text string) error {
		if hex.DecodedLen(len(text)) != len(v) {
			return fmt.Errorf("a digest has %d characters", len(text))
		}
		if _, err := hex.Decode(v[:], []byte(text)); err != nil {
			return errors.New("a digest is not hexadecimal")
		}
		return nil
	})}
}

// written returns a list as it is stored: nil as NULL.
func written(names []string) any {
	if names == nil {
		return nil
	}
	text, _ := json.Marshal(names) // strings are always written
	return string(text)
}

// clean returns text that both databases take: PostgreSQL knows no zero bytes and
// UTF-8 only.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// apart returns the parts of columns as statements take them.
func apart(cs []column) (names []string, values, scans []any) {
	for _, c := range cs {
		names, values, scans = append(names, c.name), append(values, c.value), append(scans, c.scan)
	}
	return names, values, scans
}

// condition is one of a search, unless it is not given.
type condition struct {
	given bool
	text  string // what stands before the argument
	arg   any
}

// where returns the clause of all conditions that are given, with its arguments.
func where(all ...condition) (text string, args []any) {
	text = " WHERE 1 = 1"
	for _, c := range all {
		if c.given {
			args = append(args, c.arg)
			text += " AND " + c.text + " $" + strconv.Itoa(len(args))
		}
	}
	return text, args
}

// insert writes a row unless one of its unique columns is taken: ErrExists.
func insert(ctx context.Context, tx *sql.Tx, table string, cs []column) error {
	names, values, _ := apart(cs)
	return affected(ErrExists)(tx.ExecContext(ctx,
		"INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES "+tuples(1, len(cs))+" ON CONFLICT DO NOTHING", values...))
}

// update writes columns of the one row whose key column has that value: else
// ErrNotFound.
func update(ctx context.Context, tx *sql.Tx, table string, cs []column, key, value string) error {
	names, values, _ := apart(cs)
	return affected(ErrNotFound)(tx.ExecContext(ctx,
		"UPDATE "+table+" SET ("+strings.Join(names, ", ")+") = "+tuples(1, len(cs))+" WHERE "+key+" = $"+strconv.Itoa(len(cs)+1),
		append(values, value)...))
}

// affected returns a function that fails with none when a statement touched no row.
func affected(none error) func(sql.Result, error) error {
	return func(r sql.Result, err error) error {
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return none
	}
}

// tuples returns the placeholders of n rows: ($1, $2), ($3, $4).
func tuples(rows, columns int) string {
	var b strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			b.WriteString("($")
		case i%columns == 0:
			b.WriteString("), ($")
		default:
			b.WriteString(", $")
		}
		b.WriteString(strconv.Itoa(i + 1))
	}
	b.WriteString(")")
	return b.String()
}

// querier is a transaction or a pool.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect reads rows into values, in the order of columns.
func collect[T any](ctx context.Context, q querier, columns func(*T) []column, tail string, args ...any) ([]T, error) {
	var one T // each row is read into it and copied; no scanner keeps what it gave before
	names, _, scans := apart(columns(&one))
	rows, err := q.QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" "+tail, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var all []T
	for rows.Next() {
		if err := rows.Scan(scans...); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// single returns the one row, or ErrNotFound.
func single[T any](all []T, err error) (T, error) {
	var none T
	switch {
	case err != nil:
		return none, err
	case len(all) == 0:
		return none, ErrNotFound
	}
	return all[0], nil
}

// readTable reads all rows of a table, sorted by a key.
func readTable[T any](ctx context.Context, q querier, name string, to *[]T, columns func(*T) []column, key func(T) string) (err error) {
	*to, err = collect(ctx, q, columns, "FROM "+name)
	sorted(*to, key)
	return err
}

// sorted sorts by a key in the order of bytes: databases sort text each in its own
// way.
func sorted[T any](all []T, key func(T) string) []T {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return all
}
