package store

import (
	"context"
	"database/sql"
	"time"
)

// SetOverride puts an override in the place of the one that its worker has,
// whatever that is.
func (s *SQL) SetOverride(ctx context.Context, a Actor, o Override) error {
	return s.change(ctx, a, "overriding a worker", func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
		before, err := overrideOf(ctx, tx, o.Worker)
		if err != nil {
			return edit{}, err
		}
		if o.By == "" {
			o.By = a.Name
		}
		o.At, o.Until = now, stamp(o.Until)
		return putOverride(ctx, tx, before, &o)
	})
}

// ClearOverride ends a worker's override; ErrNotFound: it has none.
func (s *SQL) ClearOverride(ctx context.Context, a Actor, worker string) error {
	return s.change(ctx, a, "clearing an override", func(ctx context.Context, tx *sql.Tx, _ time.Time) (edit, error) {
		before, err := overrideOf(ctx, tx, worker)
		if err != nil {
			return edit{}, err
		}
		if before == nil {
			return edit{}, ErrNotFound
		}
		return clearOverride(ctx, tx, *before)
	})
}
