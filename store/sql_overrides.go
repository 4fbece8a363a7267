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

// overrideOf returns what is in force of a worker; nil: nothing.
func overrideOf(ctx context.Context, tx *sql.Tx, worker string) (*Override, error) {
	o, err := single(collect(ctx, tx, overrideColumns, "FROM overrides WHERE worker = $1", clean(worker)))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &o, err
}

// InForce reports whether the override lies over the configuration at a time.
func (o Override) InForce(now time.Time) bool {
	return o.Says() && (o.Until.IsZero() || now.Before(o.Until))
}

// Says reports whether there is anything that the override changes of its worker.
func (o Override) Says() bool { return o.Weight != nil || o.Drain }

// Number is the version of the override: it grows with every change of its
// worker's, and none has that of one before. What changes nothing has 0.
func (o Override) Number() int64 {
	if !o.Says() {
		return 0
	}
	return micros(o.At)
}

// Edited returns what f makes of the override, which f is given as it is in force:
// one that is over as one that changes nothing. It reports whether that is another
// than before; then At is the time of the change, later than that of any before. An
// error of f is returned as it is.
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
	if !after.At.After(o.At) { // clocks of gateways differ, and go back
		after.At = o.At.Add(time.Microsecond)
	}
	return after, true, nil
}

// EditOverride changes what is in force of a worker by f, as Override.Edited says,
// and returns it as it is stored. Whoever else changes the worker at the same time
// waits, so that f always sees the last change and none is lost; f must not ask this
// database. An override that changes nothing any more is cleared. By is the actor,
// where f leaves it empty.
func (s *SQL) EditOverride(ctx context.Context, a Actor, worker string, f func(Override) (Override, error)) (after Override, err error) {
	err = s.change(ctx, a, fmt.Sprintf("overriding worker %q", worker), func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
		before, err := overrideOf(ctx, tx, worker)
		if err != nil {
			return edit{}, err
		}
		o := Override{Worker: worker}
		if before != nil {
			o = *before
		}
		changed := false
		after, changed, err = o.Edited(now, f)
		switch {
		case err != nil || !changed:
			return edit{}, err
		case !after.Says():
			return clearOverride(ctx, tx, *before)
		}
		if after.By == "" {
			after.By = a.Name
		}
		return putOverride(ctx, tx, before, &after)
	})
	return after, err
}

// putOverride writes an override in the place of the one before, if any.
func putOverride(ctx context.Context, tx *sql.Tx, before, o *Override) (edit, error) {
	e := edit{action: "worker.override", target: o.Worker, after: *o}
	if before == nil {
		return e, insert(ctx, tx, "overrides", overrideColumns(o))
	}
	e.before = *before
	return e, update(ctx, tx, "overrides", overrideColumns(o), "worker", clean(o.Worker))
}

// clearOverride gives a worker back to what config.yaml says.
func clearOverride(ctx context.Context, tx *sql.Tx, before Override) (edit, error) {
	_, err := tx.ExecContext(ctx, "DELETE FROM overrides WHERE worker = $1", clean(before.Worker))
	return edit{action: "worker.override.clear", target: before.Worker, before: before}, err
}
