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

// weightColumn is a column where NULL is nil; database/sql allocates the rest.
func weightColumn(name string, v **int) column {
	if *v == nil {
		return column{name, nil, v}
	}
	return column{name, int64(**v), v}
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
