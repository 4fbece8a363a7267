package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// A later cause of an outage may need another repair: each cause is logged once per outage, however
// often it occurs and whatever port it names.
func TestEachCauseOfAnOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hook := newLine(t).open(t, RedisConfig{Timeout: patient}), &failing{}
		w.addHook(hook)
		probe := func(err error) {
			hook.err.Store(&err)
			for range tripAfter {
				if w.beat(t.Context()) == nil {
					t.Fatal("a probe succeeds")
				}
			}
		}
		for i := range 3 {
			probe(fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:6379: connection refused", 40000+i))
			probe(errors.New("NOAUTH Authentication required."))
			probe(errors.New("READONLY You can't write against a read only replica."))
		}
		if log := w.log.String(); w.log.lines() != 3 || strings.Count(log, "NOAUTH") != 1 ||
			strings.Count(log, "READONLY") != 1 {
			t.Errorf("%d lines:\n%s", w.log.lines(), log)
		}
		if len(w.states()) != 1 {
			t.Errorf("it is told %v", w.states())
		}
		for i := range 100 {
			probe(errors.New(strings.Repeat("x", i+1)))
		}
		if n := w.log.lines(); n > maxCauses {
			t.Errorf("%d lines of one outage", n)
		}
		hook.err.Store(nil)
		if err := w.beat(t.Context()); err != nil || !w.Up() {
			t.Fatal(err)
		}
		before := w.log.lines()
		probe(errors.New("NOAUTH Authentication required."))
		if got := w.log.lines() - before; got != 1 {
			t.Errorf("%d lines of the next outage", got)
		}
	})
}
