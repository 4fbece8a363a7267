package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

func overrideColumns(o *Override) []column {
	return []column{
		textColumn("worker", &o.Worker), weightColumn("weight", &o.Weight), boolColumn("drain", &o.Drain),
		textColumn("made_by", &o.By), timeColumn("made_at", &o.At), timeColumn("until_at", &o.Until),
	}
}

// weightColumn is a column where NULL is nil; database/sql allocates the rest.
func weightColumn(name string, v **int) column {
	if *v == nil {
		return column{name, nil, v}
	}
	return column{name, int64(**v), v}
}

func overridesOf(ctx context.Context, tx *sql.Tx) ([]Override, error) {
	all, err := collect(ctx, tx, overrideColumns, "FROM overrides")
	return sorted(all, func(o Override) string { return o.Worker }), err
}

// overrideOf returns what is in force of a worker; nil: nothing.
func overrideOf(ctx context.Context, tx *sql.Tx, worker string) (*Override, error) {
	o, err := single(collect(ctx, tx, overrideColumns, "FROM overrides WHERE worker = $1", clean(worker)))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &o, err
}

// SetOverride puts an override in the place of the one that its worker has, if
// any. At is when it is stored; By is the actor, where it is empty.
func (s *SQL) SetOverride(ctx context.Context, a Actor, o Override) error {
	return s.change(ctx, a, fmt.Sprintf("overriding worker %q", o.Worker), func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
		if o.By == "" {
			o.By = a.Name
		}
		o.At, o.Until = now, stamp(o.Until)
		e := edit{action: "worker.override", target: o.Worker, after: o}
		before, err := overrideOf(ctx, tx, o.Worker)
		if err != nil {
			return edit{}, err
		}
		if before == nil {
			return e, insert(ctx, tx, "overrides", overrideColumns(&o))
		}
		e.before = *before
		return e, update(ctx, tx, "overrides", overrideColumns(&o), "worker", clean(o.Worker))
	})
}

// ClearOverride gives a worker back to what config.yaml says. ErrNotFound: nothing
// overrides it.
func (s *SQL) ClearOverride(ctx context.Context, a Actor, worker string) error {
	return s.change(ctx, a, fmt.Sprintf("clearing the override of worker %q", worker), func(ctx context.Context, tx *sql.Tx, _ time.Time) (edit, error) {
		before, err := overrideOf(ctx, tx, worker)
		if err != nil {
			return edit{}, err
		}
		if before == nil {
			return edit{}, ErrNotFound
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM overrides WHERE worker = $1", clean(worker))
		return edit{action: "worker.override.clear", target: worker, before: *before}, err
	})
}
