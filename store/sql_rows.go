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

// column is a table column with the source and the destination of its value. Statements and scans
// use the same list, so their order always agrees.
type column struct {
	name  string
	value any // for a statement
	scan  any // from a row
}

// scanner reads a value of a row.
type scanner func(v any) error

// Scan calls the function.
func (s scanner) Scan(v any) error { return s(v) }

// read returns a scanner for values that the database stores as an S.
func read[S any](f func(S) error) scanner {
	return func(v any) error {
		s, ok := v.(S)
		if !ok {
			return fmt.Errorf("a column holds %T instead of %T", v, s)
		}
		return f(s)
	}
}

// Columns whose stored form differs from the Go type.
func textColumn(name string, v *string) column { return column{name, clean(*v), v} }
func boolColumn(name string, v *bool) column   { return column{name, number(*v), v} }
func intColumn[T ~int | ~int64](name string, v *T) column {
	return column{name, int64(*v), v}
}

func timeColumn(name string, v *time.Time) column {
	return column{name, micros(*v), read(func(us int64) error { *v = instant(us); return nil })}
}

// listColumn is a list of names; NULL is nil, which means all.
func listColumn(name string, v *[]string) column {
	text := read(func(text string) error { return json.Unmarshal([]byte(text), v) })
	return column{name, written(*v), scanner(func(in any) error {
		*v = nil // lists of different rows must not share memory
		if in == nil {
			return nil
		}
		return text(in)
	})}
}

// classColumn is a class. A class that only a newer release knows is read as batch, the lowest.
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
			return fmt.Errorf("a stored digest has %d characters instead of %d", len(text), 2*len(v))
		}
		if _, err := hex.Decode(v[:], []byte(text)); err != nil {
			return errors.New("a stored digest is not hexadecimal")
		}
		return nil
	})}
}

// written returns the stored form of a list; nil is NULL.
func written(names []string) any {
	if names == nil {
		return nil
	}
	text, _ := json.Marshal(names) // marshalling strings cannot fail
	return string(text)
}

// clean returns text that both databases accept: PostgreSQL rejects zero bytes and invalid UTF-8.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// splitColumns returns the names, values and scan destinations of columns.
func splitColumns(cs []column) (names []string, values, scans []any) {
	for _, c := range cs {
		names, values, scans = append(names, c.name), append(values, c.value), append(scans, c.scan)
	}
	return names, values, scans
}

// condition is one condition of a search; it is omitted if its argument is empty.
type condition struct {
	given bool
	text  string // SQL before the argument
	arg   any
}

// where returns the WHERE clause of all conditions that are set, with its arguments.
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

// insert inserts a row. It returns ErrExists if a unique column's value is in use.
func insert(ctx context.Context, tx *sql.Tx, table string, cs []column) error {
	names, values, _ := splitColumns(cs)
	return affected(ErrExists)(tx.ExecContext(ctx,
		"INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES "+tuples(1, len(cs))+" ON CONFLICT DO NOTHING",
		values...))
}

// update updates all columns of the row with that key, except for the key column. It returns ErrNotFound if there is
// none. If a statement writes the key column, SQLite checks all rows that refer to the row, although the value stays
// the same.
func update(ctx context.Context, tx *sql.Tx, table string, cs []column, key, value string) error {
	cs = slices.DeleteFunc(cs, func(c column) bool { return c.name == key })
	names, values, _ := splitColumns(cs)
	return affected(ErrNotFound)(tx.ExecContext(ctx,
		"UPDATE "+table+" SET ("+strings.Join(names, ", ")+") = "+tuples(1, len(cs))+" WHERE "+key+" = $"+
			strconv.Itoa(len(cs)+1),
		append(values, value)...))
}

// affected returns a function that returns none if a statement changed no row.
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

// inserter inserts many rows in one transaction.
type inserter struct {
	db         *SQL
	tx         *sql.Tx
	into, tail string // of the statement, before and behind the values
	columns    int
	statements map[int]*sql.Stmt // by the number of rows; the transaction closes them
}

// add inserts the rows whose values are args.
func (i *inserter) add(ctx context.Context, args []any) (sql.Result, error) {
	rows := len(args) / i.columns
	statement := i.statements[rows]
	if statement == nil {
		var err error
		if statement, err = i.tx.PrepareContext(ctx, "INSERT INTO "+i.into+" VALUES "+i.values(rows)+i.tail); err != nil {
			return nil, err
		}
		if i.statements == nil {
			i.statements = map[int]*sql.Stmt{}
		}
		i.statements[rows] = statement
	}
	return statement.ExecContext(ctx, args...)
}

// values returns the parameters of rows: ($1, $2), or (?, ?) for SQLite. For each numbered parameter, the driver of
// SQLite would format and compare the numbers of all arguments.
func (i *inserter) values(rows int) string {
	if i.db.kind != kindSQLite {
		return tuples(rows, i.columns)
	}
	tuple := "(?" + strings.Repeat(", ?", i.columns-1) + ")"
	return tuple + strings.Repeat(", "+tuple, rows-1)
}

// querier is a transaction or a pool.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect reads rows into values, in the order of columns.
func collect[T any](ctx context.Context, q querier, columns func(*T) []column, tail string, args ...any) ([]T, error) {
	var one T // reused for every row and copied; no scanner keeps an earlier value
	names, _, scans := splitColumns(columns(&one))
	rows, err := q.QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" "+tail, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() // Err returns the error
	advance, isFull := func() {}, func() bool { return false }
	if r, ok := q.(*reading); ok {
		advance, isFull = r.advance, r.isFull
	}
	var all []T
	for rows.Next() {
		advance()
		if err := rows.Scan(scans...); err != nil {
			return nil, err
		}
		if all = append(all, one); isFull() {
			break
		}
	}
	return all, rows.Err()
}

// single returns the only row, or ErrNotFound.
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

// readTable reads all rows of a table, in no order.
func readTable[T any](ctx context.Context, q querier, name string, to *[]T, columns func(*T) []column) (err error) {
	*to, err = collect(ctx, q, columns, "FROM "+name)
	return err
}

// inOrder returns the elements of all, sorted. Rows are large, so their numbers are sorted and each row is copied once.
func inOrder[T any](all []T, compare func(a, b *T) int) []T {
	order := make([]int32, len(all))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return compare(&all[a], &all[b]) })
	out := make([]T, len(all))
	for to, from := range order {
		out[to] = all[from]
	}
	return out
}

// sorted sorts by the bytes of a key, because databases collate text differently.
func sorted[T any](all []T, key func(T) string) []T {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return all
}
