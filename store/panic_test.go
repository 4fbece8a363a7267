package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/spool"
	"tierway/tenants"
)

// panics counts the panics that its recover has turned into errors.
type panics struct {
	mu sync.Mutex
	n  int
}

func (p *panics) recover(_ string, step func() error) (err error) {
	defer func() {
		if recover() != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.n++
			err = errors.New("recovered")
		}
	}()
	return step()
}

func (p *panics) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// mined is a shelf on which one row makes the write panic.
type mined struct {
	shelf
	mine string
}

func (m *mined) WriteRows(ctx context.Context, rows []Row) (int, error) {
	for _, r := range rows {
		if r.ID == m.mine {
			panic("a row that cannot be written")
		}
	}
	return m.shelf.WriteRows(ctx, rows)
}

func TestOnlyTheRowThatPanicsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, seen := &mined{mine: "000003"}, &panics{}
		l := newLedger(LedgerConfig{Recover: seen.recover}, to)
		stop := started(t, l)
		addRows(l, 0, 10)
		time.Sleep(2 * ledgerEvery)
		synctest.Wait()
		stats(t, l, spool.Stats{Written: 9, Dropped: 1})
		addRows(l, 10, 20)
		stop()
		stats(t, l, spool.Stats{Written: 19, Dropped: 1})
		if to.count() != 19 || seen.count() != 2 { // the batch, then the row alone
			t.Errorf("%d rows are there after %d panics", to.count(), seen.count())
		}
	})
}

// TestPanicInASettlementLosesNoOther: after a settlement that panics, the sender and the
// renewal continue.
func TestPanicInASettlementLosesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, seen := newLine(t).open(t, RedisConfig{}), &panics{}
		l := NewLimits(LimitsConfig{Local: tenants.NewLimiter(), Redis: r.Redis, Recover: seen.recover})
		defer start(l.Run)()
		for range 4 {
			l.queue.Add(&Grant{}) // without a charge: a programming error
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if seen.count() == 0 || l.queue.Stats().Waiting != 0 {
			t.Errorf("%d panics; the queue has %+v", seen.count(), l.queue.Stats())
		}
	})
}

// TestPanicOnAChangeDoesNotEndRedisRun: the function for changes panics at the first
// call.
func TestPanicOnAChangeDoesNotEndRedisRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &panics{}
		r := newLine(t).open(t, RedisConfig{Recover: seen.recover})
		var mu sync.Mutex
		calls := 0
		r.OnChange(func() {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == 1 {
				panic("the first word")
			}
		})
		defer start(r.Run)()
		synctest.Wait()
		for range 2 {
			if err := r.PublishChange(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if calls != 2 || seen.count() != 1 {
			t.Errorf("%d calls, %d panics", calls, seen.count())
		}
	})
}
