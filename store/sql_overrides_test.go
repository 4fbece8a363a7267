package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tierway/store"
)

// TestConcurrentOverrideEditsAreAllKept: each edit starts from the last one of any
// gateway, so that no change of a weight undoes a drain.
func TestConcurrentOverrideEditsAreAllKept(t *testing.T) {
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		address := d.url(t)
		gateways := []*store.SQL{open(t, address), open(t, address)}
		migrate(t, gateways[0])
		one := 1
		must(gateways[0].EditOverride(t.Context(), actor, "w", func(o store.Override) (store.Override, error) {
			o.Weight = &one
			return o, nil
		}))(t)
		const each = 10
		var all sync.WaitGroup
		for _, s := range gateways {
			all.Go(func() {
				for range each {
					if _, err := s.EditOverride(t.Context(), actor, "w", func(o store.Override) (store.Override, error) {
						more := *o.Weight + 1
						o.Weight = &more
						return o, nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			if _, err := gateways[1].EditOverride(t.Context(), actor, "w", func(o store.Override) (store.Override, error) {
				o.Drain = true
				return o, nil
			}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		got := contents(t, gateways[0]).Overrides
		if len(got) != 1 || !got[0].Drain || *got[0].Weight != 1+2*each {
			t.Errorf("after all of them: %+v", got)
		}
	})
}

// TestOverrideEditIsAuditedAndNumbered: an edit that changes nothing or fails has no audit
// entry and no new number.
func TestOverrideEditIsAuditedAndNumbered(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		five, refused := 5, errors.New("no")
		edit := func(f func(o *store.Override) error) (store.Override, error) {
			return s.EditOverride(t.Context(), actor, "w", func(o store.Override) (store.Override, error) {
				err := f(&o)
				return o, err
			})
		}
		last := int64(0)
		for i, c := range []struct {
			f       func(o *store.Override) error
			changed bool
		}{
			{func(*store.Override) error { return nil }, false},
			{func(o *store.Override) error { o.Weight = &five; return nil }, true},
			{func(o *store.Override) error { five := 5; o.Weight = &five; return nil }, false},
			{func(o *store.Override) error { o.Drain = true; return nil }, true},
			{func(o *store.Override) error { o.Until = time.Now().Add(-time.Hour); return nil }, true}, // over already
			{func(o *store.Override) error {
				if o.Drain || o.Weight != nil || o.Worker != "w" {
					t.Errorf("what is over is edited as %+v", *o)
				}
				o.Drain = true
				return nil
			}, true},
			{func(o *store.Override) error { *o = store.Override{}; return nil }, true},
			{func(o *store.Override) error { o.Weight = &five; o.Until = time.Now().Add(time.Hour); return nil }, true},
		} {
			time.Sleep(10 * time.Microsecond) // the next number is the time
			lines := len(audit(t, s, store.AuditQuery{}))
			o := must(edit(c.f))(t)
			if n := len(audit(t, s, store.AuditQuery{})) - lines; n == 1 != c.changed {
				t.Errorf("step %d: %d lines", i, n)
			}
			switch {
			case o.Says() && c.changed && o.Number() <= last:
				t.Errorf("step %d: number %d after %d", i, o.Number(), last)
			case !o.Says() && o.Number() != 0:
				t.Errorf("step %d: nothing has number %d", i, o.Number())
			}
			last = max(last, o.Number())
			if stored := contents(t, s).Overrides; o.Says() {
				same(t, fmt.Sprintf("step %d: what is stored", i), stored, []store.Override{o})
			}
		}
		_, err := edit(func(o *store.Override) error { o.Drain = true; return fmt.Errorf("edit: %w", refused) })
		wants(t, err, refused)
		if got := contents(t, s).Overrides; len(got) != 1 || got[0].Drain || got[0].By != actor.Name {
			t.Errorf("after a refusal: %+v", got)
		}
	})
}

// TestEachOverrideEditHasALaterTime: also if the clock stands still or steps back.
func TestEachOverrideEditHasALaterTime(t *testing.T) {
	o := store.Override{Worker: "w"}
	for i, now := range []time.Time{noon, noon, noon.Add(-time.Hour), noon.Add(time.Nanosecond), noon.Add(time.Second)} {
		before := o
		var changed bool
		o, changed, _ = before.Edited(now, func(o store.Override) (store.Override, error) {
			o.Weight = &i
			return o, nil
		})
		if !changed || !o.At.After(before.At) {
			t.Errorf("at %s it is changed at %s, after %s", now, o.At, before.At)
		}
	}
}
