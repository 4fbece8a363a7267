package tenants

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestPeekAgreesWithTakeAndChangesNothing after any sequence of admissions and settlements.
func TestPeekAgreesWithTakeAndChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(most int64) int64 { return rapid.Int64Range(0, most).Draw(t, "number") }
		limits := func() Limits {
			return Limits{RPM: number(20), RPS: number(3), TPM: number(4000), Concurrent: number(4), DayTokens: number(3000)}
		}
		c := NewCaller(Tenant{Name: "a", Limits: limits()}, Key{ID: "k", Limits: limits()})
		l := NewLimiter()
		at := time.Unix(1_700_000_000, 0)
		var open []*Charge
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at = at.Add(time.Duration(number(2000)) * time.Millisecond)
			charge := &Charge{Caller: c, At: at, Tokens: number(900)}
			share := rapid.IntRange(1, 3).Draw(t, "share")
			peeked, uses := l.Peek(charge, share)
			again, same := l.Peek(charge, share)
			if d := cmp.Diff(peeked, again) + cmp.Diff(uses, same); d != "" {
				t.Fatalf("to peek changes something: %s", d)
			}
			taken := l.TakeCharge(charge, share)
			if d := cmp.Diff(peeked, taken); d != "" {
				t.Fatalf("peeked (-) is not what was taken (+): %s", d)
			}
			if taken.Refused == "" {
				open = append(open, charge)
			}
			if len(open) > 0 && rapid.Bool().Draw(t, "settle") {
				l.SettleCharge(open[0], Used{Tokens: number(900)}, at)
				open = open[1:]
			}
		}
	})
}

// TestPeekReturnsEachLimit: each limit of tenant and key with its usage. No state is created
// for an unknown caller.
func TestPeekReturnsEachLimit(t *testing.T) {
	all := Limits{RPM: 60, RPS: 5, TPM: 1000, Concurrent: 4, DayTokens: 10, MonthTokens: 20, DayMoney: 30, MonthMoney: 40}
	c := NewCaller(Tenant{Name: "a", Limits: all}, Key{ID: "k", Limits: Limits{Concurrent: 2}})
	l := NewLimiter()
	at := time.Unix(1_700_000_000, 0)
	if _, uses := l.Peek(&Charge{Caller: c, At: at, Tokens: 100}, 1); len(uses) != 9 {
		t.Fatalf("there are %d limits: %+v", len(uses), uses)
	}
	if n := len(l.subjects); n != 0 {
		t.Errorf("%d subjects are remembered", n)
	}
	l.TakeCharge(&Charge{Caller: c, At: at, Tokens: 100}, 1)
	_, uses := l.Peek(&Charge{Caller: c, At: at, Tokens: 300}, 1)
	got := map[string]float64{}
	for _, u := range uses {
		got[u.Scope+" "+string(u.Limit)] = u.Used
	}
	want := map[string]float64{"tenant rpm": 1, "tenant rps": 1, "tenant tpm": 100, "tenant concurrent": 1,
		"tenant day_tokens":   0,
		"tenant month_tokens": 0, "tenant day_money": 0, "tenant month_money": 0, "key concurrent": 1}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
