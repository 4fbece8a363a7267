package store

import (
	"context"
	"database/sql"
	"fmt"

	"tierway/tenants"
)

// InsertKeys inserts keys of a tenant in one change, without entries in the audit log.
func (s *SQL) InsertKeys(ctx context.Context, tenant string, n int) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE revision SET number = number + 1"); err != nil {
			return err
		}
		for i := range n {
			k := tenants.Key{ID: fmt.Sprintf("many-%07d", i), Tenant: tenant}
			k.Digest = tenants.Digest(k.ID)
			if err := insert(ctx, tx, "keys", keyColumns(&k)); err != nil {
				return err
			}
		}
		return nil
	})
}
