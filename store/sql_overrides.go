package store

import (
	"cmp"
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

// weightColumn is a nullable column; NULL is nil. database/sql allocates other values.
func weightColumn(name string, v **int) column {
	if *v == nil {
		return column{name, nil, v}
	}
	return column{name, int64(**v), v}
}

// InForce reports whether the override applies at the given time.
func (o Override) InForce(now time.Time) bool {
	return o.Says() && (o.Until.IsZero() || now.Before(o.Until))
}

// Says reports whether the override changes anything of its worker.
func (o Override) Says() bool { return o.Weight != nil || o.Drain }

// Number returns the version of the override. It grows with every change of the worker, and no
// version is used twice. An override without changes has the version 0.
func (o Override) Number() int64 {
	if !o.Says() {
		return 0
	}
	return micros(o.At)
}

// Edited returns the override that f makes of the one in force at now. f receives an expired
// override as one without changes. changed reports whether the result differs; then At is later
// than the time of any earlier change. An error of f is returned unchanged.
func (o Override) Edited(now time.Time, f func(Override) (Override, error)) (after Override, changed bool, err error) {
	was := o
	if !o.InForce(now) {
		was = Override{Worker: o.Worker}
	}
	after, err = f(was)
	if err != nil {
		return was, false, err
	}
	after.Worker, after.Until = o.Worker, stamp(after.Until)
	sameWeight := after.Weight == was.Weight || after.Weight != nil && was.Weight != nil && *after.Weight == *was.Weight
	if sameWeight && after.Drain == was.Drain && after.Until.Equal(was.Until) {
		return was, false, nil
	}
	if !after.Says() {
		return Override{Worker: o.Worker}, true, nil
	}
	after.At = stamp(now)
	if !after.At.After(o.At) { // clocks of gateways differ and can go back
		after.At = o.At.Add(time.Microsecond)
	}
	return after, true, nil
}

// EditOverride applies f to the override in force of a worker, as Edited does, and returns the
// result as stored. Concurrent changes of the worker wait, so f sees the last change and none is
// lost. f must not use this database. An override without changes is deleted. If f leaves By empty,
// it becomes the actor.
func (s *SQL) EditOverride(ctx context.Context, a Actor, worker string,
	f func(Override) (Override, error)) (after Override, err error) {
	err = s.change(ctx, a, fmt.Sprintf("overriding worker %q", worker),
		func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
			before, err := single(collect(ctx, tx, overrideColumns, "FROM overrides WHERE worker = $1", clean(worker)))
			if errors.Is(err, ErrNotFound) {
				before, err = Override{Worker: worker}, nil
			}
			if err != nil {
				return edit{}, err
			}
			changed := false
			if after, changed, err = before.Edited(now, f); err != nil || !changed {
				return edit{}, err
			}
			e := edit{action: "worker.override", target: worker}
			if before.Says() {
				e.before = before
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM overrides WHERE worker = $1", clean(worker)); err != nil {
				return edit{}, err
			}
			if !after.Says() {
				e.action = "worker.override.clear"
				return e, nil
			}
			after.By = cmp.Or(after.By, a.Name)
			e.after = after
			return e, insert(ctx, tx, "overrides", overrideColumns(&after))
		})
	return after, err
}
