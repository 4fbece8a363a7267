// Package migrations is the schema of the SQL database, one file a version, the
// same for SQLite and PostgreSQL.
package migrations

import "embed"

// Files holds the migrations. What is in one that was released never changes:
// the next change of the schema is the next number.
//
//go:embed *.sql
var Files embed.FS
