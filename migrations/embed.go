// Package migrations contains the schema of the SQL database, one file per version, the same for
// SQLite and PostgreSQL.
package migrations

import "embed"

// Files holds the migrations. A released migration never changes: the next change of the schema
// gets the next number.
//
//go:embed *.sql
var Files embed.FS
