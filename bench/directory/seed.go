package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/tenants"
)

const (
	keysPerTenant = 50
	rowsPerInsert = 500    // a statement of 150 KB
	rowsPerCommit = 50_000 // bounds the journal
)

// seeds are the contents of a database.
type seeds struct {
	keys   int
	skewed bool // the first tenant has half of the keys
}

// String names the contents in the report.
func (s seeds) String() string {
	if s.skewed {
		return thousands(s.keys) + ", half in one tenant"
	}
	return thousands(s.keys)
}

// tenants returns the number of tenants, at least two.
func (s seeds) tenants() int { return max(2, s.keys/keysPerTenant) }

// tenantOf returns the number of the tenant of a key.
func (s seeds) tenantOf(key int) int {
	if s.skewed && key%2 == 0 {
		return 0
	}
	return key / 2 % s.tenants()
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%06d", i) }

// fill inserts tenants and keys, the same in each run, and returns the secret of one key. A column that the schema does
// not have is left out, and a column without a value here gets its default.
func (s seeds) fill(ctx context.Context, db *sql.DB, created time.Time) (secret string, err error) {
	random := rand.NewChaCha8([32]byte{1})
	now := created.UnixMicro()
	err = insertRows(ctx, db, "tenants", s.tenants(), func(i int) (row, error) {
		return row{"name": tenantName(i), "priority": "interactive", "default_priority": "interactive",
			"tpm": int64(10_000_000), "created_at": now, "updated_at": now}, nil
	})
	if err != nil {
		return "", err
	}
	err = insertRows(ctx, db, "keys", s.keys, func(i int) (row, error) {
		minted, k, err := tenants.Mint(random, tenantName(s.tenantOf(i)))
		if i == s.keys/2 {
			secret = minted
		}
		return row{"id": k.ID, "tenant": k.Tenant, "name": "key " + strconv.Itoa(i), "hint": k.Hint,
			"digest": hex.EncodeToString(k.Digest[:]), "priority": "interactive", "default_priority": "interactive",
			"created_by": "bench", "created_at": now}, err
	})
	return secret, err
}

// row is a row by its columns; values are of type string or int64.
type row map[string]any

// insertRows inserts n rows with literal values, because SQLite's driver is slow with many parameters.
func insertRows(ctx context.Context, db *sql.DB, table string, n int, rowAt func(i int) (row, error)) error {
	columns, err := columnsOf(ctx, db, table)
	if err != nil {
		return err
	}
	first := 0
	for first < n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("filling %s: %w", table, err)
		}
		for end := min(n, first+rowsPerCommit); first < end && err == nil; {
			last := min(end, first+rowsPerInsert)
			var statement string
			if statement, err = insertStatement(table, columns, first, last, rowAt); err == nil {
				_, err = tx.ExecContext(ctx, statement)
			}
			first = last
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			_ = tx.Rollback() // the first error is the cause
			return fmt.Errorf("filling %s: %w", table, err)
		}
	}
	return nil
}

// insertStatement returns the statement that inserts the rows from first up to last, without last. It has the columns
// of the first row that are in columns.
func insertStatement(table string, columns []string, first, last int, rowAt func(i int) (row, error)) (string, error) {
	var b strings.Builder
	for i := first; i < last; i++ {
		values, err := rowAt(i)
		if err != nil {
			return "", err
		}
		if i == first {
			columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return values[c] == nil })
			fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES ", table, strings.Join(columns, ", "))
		} else {
			b.WriteString(", ")
		}
		for j, c := range columns {
			b.WriteString(map[bool]string{true: "(", false: ", "}[j == 0])
			b.WriteString(literal(values[c]))
		}
		b.WriteString(")")
	}
	return b.String(), nil
}

// literal returns a value in SQL.
func literal(v any) string {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return "'" + strings.ReplaceAll(fmt.Sprint(v), "'", "''") + "'"
}

// columnsOf returns the columns that a table has.
func columnsOf(ctx context.Context, db *sql.DB, table string) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return nil, fmt.Errorf("reading the columns of %s: %w", table, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("reading the columns of %s: %w", table, err)
	}
	return columns, rows.Err()
}
